"""Signed access tokens (RFC 7519, RS256), the key that checks them (RFC 7517), and the addresses to get both."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote_plus

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from streamgroup.frozen import frozen
from streamgroup.testing.ports import LOOPBACK

AUDIENCE = "kafka"
"""The `aud` of the access tokens."""

KEY_ID = "streamgroup"
_KEY_BITS = 2048
_EXPONENT = 65537


@frozen
class TokenServerAddress:
    """The addresses of the token server on a port of the loopback interface."""

    port: int

    @property
    def issuer(self) -> str:
        """The `iss` of the access tokens."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def token_url(self) -> str:
        """The token endpoint."""
        return f"{self.issuer}/token"

    @property
    def jwks_url(self) -> str:
        """The address of the public key."""
        return f"{self.issuer}/jwks"

    @property
    def jvm_flag(self) -> str:
        """The flag without which Kafka 4 opens neither address (CVE-2025-27817)."""
        return f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.token_url},{self.jwks_url}"


@dataclass(frozen=True, slots=True, repr=False)
class TokenKey:
    """The RSA key that signs access tokens."""

    key: rsa.RSAPrivateKey

    @classmethod
    def create(cls) -> TokenKey:
        return cls(rsa.generate_private_key(public_exponent=_EXPONENT, key_size=_KEY_BITS))

    @classmethod
    def load(cls, pem: bytes) -> TokenKey:
        """Return the key that `pem` wrote."""
        key = load_pem_private_key(pem, None)
        assert isinstance(key, rsa.RSAPrivateKey)
        return cls(key)

    def pem(self) -> bytes:
        """Return the private key as PEM (PKCS #8)."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def sign(self, claims: Mapping[str, object]) -> str:
        """Return the claims as a token."""
        header = {"alg": "RS256", "typ": "JWT", "kid": KEY_ID}
        signed = f"{_part(json.dumps(header).encode())}.{_part(json.dumps(dict(claims)).encode())}"
        return f"{signed}.{_part(self.key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def jwks(self) -> dict[str, object]:
        """Return the set of the one public key."""
        public = self.key.public_key().public_numbers()
        numbers = {"n": _number(public.n), "e": _number(public.e)}
        return {"keys": [{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": KEY_ID, **numbers}]}


def _number(value: int) -> str:
    return _part(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


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
