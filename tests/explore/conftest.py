"""`fitplug explore`, started as users start it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.helpers.command_line import SPEC, make

START = "from fitplug_cli.__main__ import main; main()"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass(frozen=True)
class Server:
    """A running page.

    Attributes:
        url: The URL that was printed, with the token.
        folder: The folder of its spec.
        process: Its process.
    """

    url: str
    folder: Path
    process: subprocess.Popen[str]

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        return self.url.partition("token=")[2]

    @property
    def cookie(self) -> str:
        return f"fitplug_explore_{self.port}={self.token}"

    def ask(self, path: str, content: Any = None, *, without: str = "", **headers: str) -> Answer:
        """Send what the page sends, without one header or with others."""
        usual = {"Host": f"127.0.0.1:{self.port}", "Cookie": self.cookie}
        if content is not None:
            usual["Origin"] = self.origin
        usual |= {name.capitalize(): value for name, value in headers.items()}
        usual.pop(without, None)
        body = (
            None
            if content is None
            else content
            if isinstance(content, bytes)
            else json.dumps(content).encode()
        )
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.putrequest("GET" if body is None else "POST", path, skip_host=True)
        for name, value in usual.items():
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        found = Answer(answer.status, dict(answer.getheaders()), answer.read().decode())
        connection.close()
        return found

    def design(self, targets: Any) -> list[Any]:
        """The messages of a design."""
        answer = self.ask("/design", {"targets": targets})
        assert answer.status == 200, answer
        return [json.loads(line) for line in answer.text.splitlines()]


@contextmanager
def start(
    spec: Path, *, browser: str | None = None, end: signal.Signals = signal.SIGINT
) -> Iterator[Server]:
    """Start the command, with the command line of a browser if it opens one, and end it."""
    options = ["--no-browser"] if browser is None else []
    process = subprocess.Popen(
        [sys.executable, "-c", START, "explore", str(spec), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ, BROWSER=browser or ""),
    )
    try:
        assert process.stdout is not None
        opened = process.stdout.readline().split()
        assert opened[:1] == ["Open"], process.communicate()
        assert process.stdout.readline() == "Press Ctrl-C to stop.\n"
        yield Server(opened[1], spec.parent, process)
    finally:
        process.send_signal(end)
        rest = process.communicate(timeout=60)
    assert (process.returncode, *rest) == (0, "", "")


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    commented = SPEC.replace("std = 5.0", "std = 5.0  # as agreed")
    with start(make(tmp_path_factory.mktemp("explore") / "specs", commented)) as running:
        yield running
