"""The server of the page: on 127.0.0.1 only, and for one user who has its token."""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext, suppress
from dataclasses import asdict
from importlib.resources import files
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from fitplug.errors import FitplugError, InputError
from fitplug_explore.access import AccessControl, open_browser
from fitplug_explore.designer import Designer
from fitplug_explore.session import AlreadyExists, Budget, Session, TargetError, read_targets

_MOST_BYTES = 2**22
"""The most bytes of a request: the targets of some ten thousand groups."""

_PAGES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/targets.js": ("targets.js", "text/javascript; charset=utf-8"),
}


def explore(
    session: Session, *, port: int, announce: Callable[[str], object], opens_browser: bool
) -> None:
    """Serve the page of a session until Ctrl-C is pressed.

    Args:
        session: The content of the page.
        port: The port on 127.0.0.1; 0 for a free port.
        announce: A function that is called with the URL once the page can be loaded.
        opens_browser: Whether to open the page in the browser as well.

    Raises:
        InputError: The port cannot be used.
    """
    listener = _listen(port)
    port = listener.getsockname()[1]
    token = secrets.token_urlsafe(32)
    designer = Designer(session.design)
    application = build_application(session, designer, token=token, port=port)
    server = uvicorn.Server(
        uvicorn.Config(
            application,
            lifespan="off",
            ws="none",
            log_level="error",
            access_log=False,  # it would show the token
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=1,
        )
    )
    url = f"http://127.0.0.1:{port}/?token={token}"
    try:
        announce(url)
        with open_browser(url) if opens_browser else nullcontext(), suppress(KeyboardInterrupt):
            server.run(sockets=[listener])
    finally:
        designer.close()
        listener.close()


def _listen(port: int) -> socket.socket:
    """Listen on a port of 127.0.0.1."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen()
    except OSError as error:
        listener.close()
        why = (error.strerror or "it cannot be used").lower()
        raise InputError(f"Port {port}: {why}. Choose another --port, or remove --port.") from None
    return listener


def build_application(session: Session, designer: Designer, *, token: str, port: int) -> Starlette:
    """Build the application that serves a session.

    Args:
        session: The content of the page.
        designer: Designs the session's plans.
        token: The secret that a browser must know.
        port: The port it is served on, which the Host and Origin of a request must name.
    """
    page = _Page(session, designer)
    folder = files("fitplug_explore")
    routes = [
        Route(path, _serve_file(folder.joinpath("page", name).read_bytes(), form))
        for path, (name, form) in _PAGES.items()
    ]
    routes += [
        Route("/state", page.describe),
        Route("/design", page.design, methods=["POST"]),
        Route("/write", page.write, methods=["POST"]),
    ]
    access = Middleware(AccessControl, token=token, port=port)
    return Starlette(routes=routes, middleware=[access])


def _serve_file(content: bytes, form: str) -> Callable[[Request], Awaitable[Response]]:
    async def serve(_: Request) -> Response:
        return Response(content, media_type=form)

    return serve


class _Page:
    """The answers to the requests of the page."""

    def __init__(self, session: Session, designer: Designer) -> None:
        self._session, self._designer = session, designer

    async def describe(self, _: Request) -> Response:
        """Describe the spec and its budget."""
        session = self._session
        try:
            budget = await asyncio.to_thread(session.read_budget)
        except FitplugError as error:
            budget = str(error)
        names = ("name", "suggested", "unit", "delta", "spend", "max_rho")
        return JSONResponse(
            {name: getattr(session, name) for name in names}
            | {
                "groups": [asdict(group) for group in session.groups],
                "budget": asdict(budget) if isinstance(budget, Budget) else None,
                "budget_note": budget if isinstance(budget, str) else None,
            }
        )

    async def design(self, request: Request) -> Response:
        """Design a plan: a line of JSON for each message of the design.

        The design is cancelled when the page closes the connection.
        """
        try:
            targets = read_targets((await _read_json(request)).get("targets"), self._session.groups)
        except InputError as error:
            return _refuse(error)

        async def stream() -> AsyncIterator[str]:
            async for message in self._designer.run(targets, request.is_disconnected):
                yield json.dumps(message) + "\n"

        return StreamingResponse(stream(), media_type="application/x-ndjson")

    async def write(self, request: Request) -> Response:
        """Write a new spec file."""
        try:
            given = await _read_json(request)
            targets = read_targets(given.get("targets"), self._session.groups)
            name, may_replace = str(given.get("name", "")), given.get("replace") is True
            written = await asyncio.to_thread(self._session.write, name, targets, may_replace)
        except FitplugError as error:
            return _refuse(error)
        return JSONResponse({"written": list(written)})


async def _read_json(request: Request) -> dict[str, Any]:
    """Read the JSON object of a request.

    Raises:
        InputError: It is too large, or not a JSON object.
    """
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > _MOST_BYTES:
            raise InputError("The request is too large. Load the page again.")
    try:
        given = json.loads(content)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise InputError("The request is not a JSON object. Load the page again.")
    return given


def _refuse(error: FitplugError) -> Response:
    """Answer with an error, and the position of the group that it is about."""
    exists = isinstance(error, AlreadyExists)
    said: dict[str, Any] = {"error": str(error), "exists": exists}
    if isinstance(error, TargetError):
        said["group"] = error.group
    return JSONResponse(said, 409 if exists else 400)
