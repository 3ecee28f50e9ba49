"""Who may use the page: the browser of the user who started it, on this computer."""

from __future__ import annotations

import secrets
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


_REDIRECT = """<!doctype html>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={url}">
<title>fitplug explore</title>
"""


@contextmanager
def open_browser(url: str) -> Iterator[None]:
    """Open a URL in the browser without showing it to other users of the computer.

    They see the arguments of every process. So the browser opens a file that only this user can
    read and that redirects to the URL. The file is deleted at the end of the context.
    """
    with tempfile.TemporaryDirectory(prefix="fitplug-") as folder:
        file = Path(folder, "explore.html")
        file.touch(0o600)
        file.write_text(_REDIRECT.format(url=escape(url)), encoding="utf-8")
        webbrowser.open(file.as_uri())
        yield


class AccessControl:
    """Refuses requests of other sites, and requests without the token.

    A site whose name is made to resolve to 127.0.0.1 sends its own Host, and a form of another site
    its own Origin. The token comes in the first URL and then in a cookie, so that it does not stay
    in the address bar and the history. Cookies are shared by all ports of a host, so its name has
    the port. A strict cookie would not be sent when the file of `open_browser` leads to the page;
    only what the page itself sends has its Origin.

    Args:
        app: The application.
        token: The token.
        port: The port of the application on 127.0.0.1.
    """

    def __init__(self, app: ASGIApp, *, token: str, port: int) -> None:
        self._app, self._token = app, token
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._cookie = f"fitplug_explore_{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        answer = self._answer(scope) or self._app
        await answer(scope, receive, send_with_headers)

    def _answer(self, scope: Scope) -> Response | None:
        """Return the answer to a request that is not for the application."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if host not in self._hosts:
            return PlainTextResponse("Unknown host. Open the URL that fitplug printed.", 403)
        if scope["method"] not in ("GET", "HEAD") and headers.get("origin") != f"http://{host}":
            return PlainTextResponse("The request is from another site. Use fitplug's page.", 403)
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        if scope["path"] == "/" and given:
            if not self._matches(given[0]):
                return self._refuse()
            redirect = RedirectResponse("/", 303)
            redirect.set_cookie(self._cookie, self._token, httponly=True, samesite="lax")
            return redirect
        return None if self._matches(self._read_cookie(headers)) else self._refuse()

    def _read_cookie(self, headers: Headers) -> str:
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return ""
        return "" if cookie is None else cookie.value

    def _matches(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self._token.encode())

    def _refuse(self) -> Response:
        return PlainTextResponse(
            "The token is missing or wrong. Open the whole URL that fitplug explore printed.", 403
        )
