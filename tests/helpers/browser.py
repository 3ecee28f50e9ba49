"""A headless Chromium, driven by the DevTools protocol over a websocket."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tornado.websocket import websocket_connect

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
"""The program, if one is installed."""

_CODES = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowRight": 39, "ArrowUp": 38, "Backspace": 8}


class Browser:
    """One tab. Use it in a `with` block."""

    def __enter__(self) -> Browser:
        assert CHROMIUM is not None
        self._folder = tempfile.mkdtemp(prefix="fitplug-browser-")
        self._loop = asyncio.new_event_loop()
        self._number = 0
        options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run")
        self._process = subprocess.Popen(
            [CHROMIUM, *options, "--remote-debugging-port=0", f"--user-data-dir={self._folder}",
             "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        port = Path(self._folder, "DevToolsActivePort")
        wait_for(lambda: port.exists() and port.read_text().count("\n"), 60)
        number = port.read_text().split("\n")[0]
        with urlopen(f"http://127.0.0.1:{number}/json/list") as answer:
            (page,) = (tab for tab in json.load(answer) if tab["type"] == "page")
        self._socket = self._run(
            websocket_connect, page["webSocketDebuggerUrl"], max_message_size=2**27
        )
        self.complaints: list[str] = []
        for domain in ("Page", "Runtime", "Accessibility", "Log", "Network"):
            self.send(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._run(self._close)
        self._loop.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, start: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        async def wait() -> Any:
            return await asyncio.wait_for(start(*arguments, **options), 60)

        return self._loop.run_until_complete(wait())

    async def _close(self) -> None:
        self._socket.close()  # it needs a loop that runs

    def send(self, method: str, **parameters: Any) -> Any:
        """Send a command and return its result."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        self._run(self._socket.write_message, json.dumps(command))
        while True:
            message = json.loads(self._run(self._socket.read_message))
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]
            if message.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.complaints.append(json.dumps(message["params"]))

    def open(self, url: str, width: int = 1280, *, is_dark: bool = False) -> None:
        """Open a page in a window of a width."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Page.navigate", url="about:blank")  # so that nobody reads the page before
        self.wait("location.href == 'about:blank'")
        self.send("Page.navigate", url=url)

    def evaluate(self, script: str) -> Any:
        """Return the value of a JavaScript expression."""
        result = self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, script: str, seconds: float = 60) -> Any:
        """Wait until an expression is true, and return it."""
        return wait_for(lambda: self.evaluate(script), seconds, script)

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press a key."""
        code = _CODES.get(key, 0)
        text = "\r" if key == "Enter" else key if len(key) == 1 else ""
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.send(
                "Input.dispatchKeyEvent",
                type=kind, key=key, code=key if code else "", windowsVirtualKeyCode=code,
                modifiers=8 if shift else 0, **more,
            )  # fmt: skip

    def type(self, text: str) -> None:
        """Type over what is selected."""
        self.send("Input.insertText", text=text)

    def read_tree(self) -> list[tuple[str, str]]:
        """Return the role and name of everything that a screen reader finds, in its order."""
        nodes = self.send("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in nodes
            if not node["ignored"]
        ]

    def photograph(self, path: Path) -> None:
        """Write a picture of the whole page."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        taken = self.send("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(taken["data"]))


def wait_for(condition: Any, seconds: float, what: str = "") -> Any:
    """Wait until a function returns something true, and return it."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.02)
    return found
