"""A small OIDC server on the loopback interface: clients get access tokens, brokers the key that checks them.

`python -m streamgroup.testing.security.oidc oidc.json` runs it. It knows the grant `client_credentials` (RFC 6749,
section 4.4), with the client's secret as HTTP Basic authentication or in the form.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import sys
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote_plus

from streamgroup.testing.ports import LOOPBACK
from streamgroup.testing.security.tokens import AUDIENCE, TokenKey, TokenServerAddress

ANNOUNCEMENT = "token server started"
LIFETIME_S = 3600

_MAX_FORM = 64 * 1024
_CONFIGURATION_PATH = "/.well-known/openid-configuration"

Answer = tuple[int, dict[str, object]]


class TokenIssuer:
    """Answers the requests of clients and brokers, without sockets."""

    def __init__(self, key: TokenKey, clients: Mapping[str, str], address: TokenServerAddress) -> None:
        self._key = key
        self._clients = clients
        self._address = address

    def get(self, path: str) -> Answer:
        """Answer a GET: the keys, or the description of this server."""
        if path == "/jwks":
            return 200, self._key.jwks()
        if path == _CONFIGURATION_PATH:
            return 200, {
                "issuer": self._address.issuer,
                "token_endpoint": self._address.token_url,
                "jwks_uri": self._address.jwks_url,
                "grant_types_supported": ["client_credentials"],
            }
        return 404, {"error": "not_found"}

    def post(self, path: str, authorization: str, form: Mapping[str, str], now: float) -> Answer:
        """Answer a POST to the token endpoint at `now`, in seconds since the epoch."""
        if path != "/token":
            return 404, {"error": "not_found"}
        client, secret = _basic(authorization) or (form.get("client_id", ""), form.get("client_secret", ""))
        expected = self._clients.get(client)
        if expected is None or not hmac.compare_digest(expected.encode(), secret.encode()):
            return 401, {"error": "invalid_client"}
        if form.get("grant_type") != "client_credentials":
            return 400, {"error": "unsupported_grant_type"}
        scope = form.get("scope", "")
        claims = {
            "iss": self._address.issuer,
            "sub": client,
            "aud": AUDIENCE,
            "scope": scope,
            "iat": int(now),
            "exp": int(now) + LIFETIME_S,
        }
        token = self._key.sign(claims)
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": LIFETIME_S, "scope": scope}


def _basic(authorization: str) -> tuple[str, str] | None:
    """Return the client and its secret in an `Authorization` header; None if it has none."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        client, colon, secret = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    # RFC 6749, section 2.3.1: both are encoded as forms are.
    return (unquote_plus(client), unquote_plus(secret)) if colon else None


class _Handler(BaseHTTPRequestHandler):
    issuer: TokenIssuer

    def do_GET(self) -> None:
        self._answer(self.issuer.get(self.path.partition("?")[0]))

    def do_POST(self) -> None:
        length = min(int(self.headers.get("Content-Length") or 0), _MAX_FORM)
        fields = parse_qs(self.rfile.read(length).decode(errors="replace"))
        form = {name: values[-1] for name, values in fields.items()}
        authorization = self.headers.get("Authorization") or ""
        self._answer(self.issuer.post(self.path.partition("?")[0], authorization, form, time.time()))

    def _answer(self, answer: Answer) -> None:
        status, values = answer
        body = json.dumps(values).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main(configuration: Path) -> None:
    """Serve as `configuration` says, until the process is killed."""
    values = json.loads(configuration.read_text())
    address = TokenServerAddress(values["port"])
    key = TokenKey.load(Path(values["key"]).read_bytes())
    _Handler.issuer = TokenIssuer(key, values["clients"], address)
    with ThreadingHTTPServer((LOOPBACK, address.port), _Handler) as server:
        print(f"{ANNOUNCEMENT} at {address.issuer}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
