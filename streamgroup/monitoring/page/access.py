"""Access to the page: the allowed host names and the token. Pure."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
from collections.abc import Collection
from dataclasses import field
from http import HTTPStatus

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streamgroup.errors import ConfigError
from streamgroup.frozen import frozen

LEAST_TOKEN = 16
"""The least characters of a token: fewer could be guessed over the network."""
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
_COOKIE_OF = b"the cookie of streamgroup ui"


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server that listens at `host`."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@frozen
class Access:
    """Decides which requests the server at `host` accepts. `names` are host names by which browsers may address it.

    A page of another site could make a browser resolve the site's own name to this server's address, and could then
    read the responses (DNS rebinding). So a request must name the server by an address or by one of `names`.
    """

    host: str
    token: str | None = field(default=None, repr=False)
    names: Collection[str] = ()

    def __post_init__(self) -> None:
        if self.token is None and not is_loopback(self.host):
            raise ConfigError(
                f"cannot serve the page at {self.host}: other machines could read the names of topics and groups. Set "
                "--token, for example to env:STREAMGROUP_UI_TOKEN, or keep the default --host 127.0.0.1"
            )
        if self.token is not None and len(self.token) < LEAST_TOKEN:
            raise ConfigError(
                f"the value of --token has {len(self.token)} characters: expected {LEAST_TOKEN} or more, for example "
                "those that `openssl rand -hex 16` prints"
            )

    def allows_host(self, header: str) -> bool:
        """Return whether a request with this `Host` header is meant for this server."""
        found = _HOST.fullmatch(header)
        if found is None:
            return False
        name = found["name"].strip("[]").lower().rstrip(".")
        if name in {known.lower() for known in self.names} or name == "localhost":
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not is_loopback(self.host)

    def allows_token(self, given: str) -> bool:
        """Return whether `given` is the token. The comparison takes constant time."""
        return self.token is None or secrets.compare_digest(given.encode(), self.token.encode())

    def allows_cookie(self, given: str) -> bool:
        """Return whether the cookie proves that the browser has sent the token before."""
        return self.token is None or secrets.compare_digest(given.encode(), self.cookie().encode())

    def cookie(self) -> str:
        """Return the value of the cookie: it proves the token without containing it."""
        assert self.token is not None, "a server without a token sets no cookie"
        return hmac.new(self.token.encode(), _COOKIE_OF, hashlib.sha256).hexdigest()


COOKIE = "streamgroup-ui"
_OPEN = ("/login", "/assets/login.css", "/assets/login.js", "/assets/theme.js")
"""The paths that need no token: the form for the token, and the files of the form."""
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
    """ASGI middleware. It rejects a request for another host, or without the required token."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
        """Return the response to a request that must not reach the page, or None."""
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
