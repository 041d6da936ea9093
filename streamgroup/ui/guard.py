"""Lets a request through to the page, or answers it itself; and adds the headers that bind the browser."""

from __future__ import annotations

from http import HTTPStatus

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streamgroup.ui.access import Access

COOKIE = "streamgroup-ui"
_OPEN = ("/login", "/assets/login.css", "/assets/login.js", "/assets/theme.js")
"""The paths that need no token: the form that asks for it, and the files of the form."""
_BEARER = "Bearer "
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not no-referrer: browsers would then send the form of the token with `Origin: null`, which is refused.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Guard:
    """ASGI middleware. A request for another host, or without the token where there is one, reaches no view."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # a WebSocket: the page has none
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store" if scope["path"].startswith("/api/") else "no-cache")
            await send(message)

        refusal = self._refusal(HTTPConnection(scope))
        await (self._app if refusal is None else refusal)(scope, receive, send_with_headers)

    def _refusal(self, request: HTTPConnection) -> Response | None:
        """Return the answer to a request that must not reach the page, or None."""
        if not self._access.allows_host(request.headers.get("host", "")):
            return PlainTextResponse(
                "streamgroup ui does not serve this host name. Use its address, or start it with --name HOST",
                HTTPStatus.MISDIRECTED_REQUEST,
            )
        path = request.url.path
        if path in _OPEN or self._is_authorized(request):
            return None
        if path.startswith("/api/"):
            return JSONResponse(
                {"error": "the token is missing"}, HTTPStatus.UNAUTHORIZED, {"WWW-Authenticate": "Bearer"}
            )
        return RedirectResponse("/login", HTTPStatus.SEE_OTHER)

    def _is_authorized(self, request: HTTPConnection) -> bool:
        given = request.headers.get("authorization", "")
        if given.startswith(_BEARER):
            return self._access.allows_token(given.removeprefix(_BEARER))
        return self._access.allows_cookie(request.cookies.get(COOKIE, ""))
