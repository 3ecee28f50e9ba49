"""An HTTP server of the files in a folder, a process of its own that is slow and fails as told.

    python -m tests.helpers.store_server FOLDER

It prints its port. `POST /_behave` takes a JSON object of the fields of `Behaviour`, and
`GET /_told` returns what was asked of it since then.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.helpers.places import ROOT


@dataclass
class Behaviour:
    """How the server answers.

    Attributes:
        latency: Seconds before each answer.
        faults: What goes wrong with the first answers, one after the other: a status, "reset",
            "truncate" (the connection ends within the body), "short" (a smaller range than was
            asked, said so), "hang" or "flip" (a wrong byte).
        share: The share of the other answers with a fault drawn from `drawn`.
        drawn: Faults to draw from.
        etag: "strong", "weak" or "none".
        checks_etag: Whether If-Match is looked at.
        ranges: Whether ranges are looked at.
        password: The header Authorization that is wanted, if any.
        denial: The status without it.
        swap: After so many answers with bytes, each file becomes the one with ".new" behind its
            name.
        silent: So many requests, also for headers, are taken and never answered.
        head_denied: Whether requests for headers are refused.
    """

    latency: float = 0.0
    faults: list[str] = field(default_factory=list)
    share: float = 0.0
    drawn: list[str] = field(default_factory=list)
    etag: str = "strong"
    checks_etag: bool = True
    ranges: bool = True
    password: str = ""
    denial: int = 401
    swap: int = -1
    silent: int = 0
    head_denied: bool = False


class State:
    """What the server was told, and what it was asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lock = threading.Lock()
        self.behave(Behaviour())

    def behave(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.draw = random.Random(7)
        self.told = {"GET": 0, "HEAD": 0, "bytes": 0, "in_flight": 0, "most_in_flight": 0}
        self.bodies = 0

    def next_fault(self) -> str:
        with self.lock:
            if self.behaviour.faults:
                return self.behaviour.faults.pop(0)
            if self.draw.random() < self.behaviour.share:
                return self.draw.choice(self.behaviour.drawn)
        return ""

    def find(self, path: str) -> Path:
        found = self.folder / urllib.parse.unquote(urllib.parse.urlsplit(path).path).strip("/")
        replaced = found.with_name(found.name + ".new")
        swapped = 0 <= self.behaviour.swap <= self.bodies
        return replaced if swapped and replaced.exists() else found


@lru_cache(100)
def load(path: Path, changed: int) -> tuple[bytes, str]:
    """Return the bytes of a file and what tells them from others."""
    content = path.read_bytes()
    return content, hashlib.md5(content).hexdigest()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, *args: Any) -> None:
        """Clients may go away."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 2**16

    def __init__(self, state: State, *args: Any) -> None:
        self.state = state
        super().__init__(*args)

    def log_message(self, *args: Any) -> None: ...

    def do_POST(self) -> None:
        told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.state.behave(Behaviour(**told))
        self._send(200, b"{}")

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        if self.path == "/_told":
            self._send(200, json.dumps(self.state.told).encode())
            return
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        state, told = self.state, self.state.told
        with state.lock:
            told["GET" if body else "HEAD"] += 1
            told["in_flight"] += 1
            told["most_in_flight"] = max(told["most_in_flight"], told["in_flight"])
        try:
            time.sleep(state.behaviour.latency)
            self._answer_file(body)
        finally:
            with state.lock:
                told["in_flight"] -= 1

    def _answer_file(self, body: bool) -> None:
        behaviour = self.state.behaviour
        if behaviour.password and self.headers.get("Authorization") != behaviour.password:
            self._send(behaviour.denial, b"denied", body=body)
            return
        if behaviour.head_denied and not body:
            self._send(403, b"", body=False)
            return
        path = self.state.find(self.path)
        if path.is_dir():
            names = sorted(p.name + "/" * p.is_dir() for p in path.iterdir() if p.suffix != ".new")
            page = "".join(f'<a href="{name}">{name}</a>\n' for name in names)
            self._send(200, page.encode(), {"Content-Type": "text/html"}, body=body)
            return
        if not path.exists():
            self._send(404, b"", body=body)
            return
        content, tag = load(path, path.stat().st_mtime_ns)
        headers = {
            "strong": {"ETag": f'"{tag}"'},
            "weak": {"ETag": f'W/"{tag}"'},
            "none": {},
        }[behaviour.etag]
        headers["Last-Modified"] = "Sun, 22 Nov 2026 00:00:00 GMT"
        with self.state.lock:
            behaviour.silent -= 1
            is_silent = behaviour.silent >= 0
        if is_silent:
            time.sleep(5)
            self.close_connection = True
            return
        if not body:
            self._send(200, content, headers, body=False)
            return
        fault = self.state.next_fault()
        asked = self.headers.get("If-Match")
        if asked and behaviour.checks_etag and asked != headers.get("ETag"):
            self._send(412, b"", headers)
            return
        status, first, last = 200, 0, len(content)
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if found and behaviour.ranges:
            status, first = 206, int(found[1])
            last = min(int(found[2]) + 1 if found[2] else last, len(content))
            if first >= len(content):
                self._send(416, b"", {"Content-Range": f"bytes */{len(content)}"})
                return
        if fault == "short":
            last = max(first + 1, last - 5)
        if status == 206:
            headers["Content-Range"] = f"bytes {first}-{last - 1}/{len(content)}"
        self._fail_or_send(fault, status, content[first:last], headers)
        with self.state.lock:
            self.state.bodies += 1

    def _fail_or_send(self, fault: str, status: int, body: bytes, headers: dict[str, str]) -> None:
        if fault.isdecimal():
            self._send(int(fault), b"a page that says what went wrong", {})
        elif fault == "reset":
            self.close_connection = True
            self.connection.close()
        elif fault == "truncate":
            self.close_connection = True
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
        elif fault == "hang":
            time.sleep(5)
            self.close_connection = True
        elif fault == "flip":
            middle = len(body) // 2
            self._send(status, body[:middle] + b"\xa5" + body[middle + 1 :], headers)
        else:
            self._send(status, body, headers)

    def _send(
        self,
        status: int,
        content: bytes,
        headers: dict[str, str] | None = None,
        *,
        body: bool = True,
    ) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(content)
            with self.state.lock:
                self.state.told["bytes"] += len(content)


@dataclass
class StoreServer:
    """A running server.

    Attributes:
        url: The URL of its folder, with a slash at the end.
        folder: The folder.
    """

    url: str
    folder: Path

    def behave(self, **behaviour: Any) -> None:
        """Make it behave in another way, and forget what it was asked."""
        request = urllib.request.Request(
            self.url + "_behave", json.dumps(behaviour).encode(), method="POST"
        )
        urllib.request.urlopen(request).read()

    def tell(self) -> dict[str, int]:
        """Return how many requests of each kind it got, the bytes sent, and the most in flight."""
        counts: dict[str, int] = json.loads(urllib.request.urlopen(self.url + "_told").read())
        return counts


@contextmanager
def serve(folder: Path) -> Iterator[StoreServer]:
    """Serve a folder by a process of its own."""
    command = [sys.executable, "-m", "tests.helpers.store_server", str(folder)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield StoreServer(f"http://127.0.0.1:{port}/", folder)
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


def main(folder: str) -> None:
    server = Server(("127.0.0.1", 0), partial(Handler, State(Path(folder))))
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
