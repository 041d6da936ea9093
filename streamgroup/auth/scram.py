"""SASL SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), without channel binding.

The client proves that it knows the password and never sends it. Then the broker proves that it knows the password too,
or a value derived from it. Until that proof is verified, the exchange is not complete.

As Java's client, this one sends names and passwords in UTF-8 and does not normalize them: the broker has computed its
keys from the same bytes (`ScramFormatter.normalize`).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass

from streamgroup.auth.mechanisms import CHECK_BROKER, CHECK_CREDENTIALS, Exchange, Mechanism

SCRAM_SHA_256 = "SCRAM-SHA-256"
SCRAM_SHA_512 = "SCRAM-SHA-512"

MIN_ITERATIONS = 4_096
"""The minimum of RFC 7677 and of Java's client: with fewer, a false broker could guess the password from the proof."""
MAX_ITERATIONS = 1_000_000
"""A second of CPU time at most. Brokers create credentials with 4 096 to 16 384 iterations."""

_HASHES = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
_GS2_HEADER = "n,,"
"""No channel binding, no authorization id."""

_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"[A-Za-z0-9+/]+={0,2}"
_EXTENSIONS = r"(?:,[A-Za-z]+=[^,\0]+)*"
_SERVER_FIRST = re.compile(rf"r=({_NONCE}),s=({_BASE64}),i=([0-9]+){_EXTENSIONS}")
_SERVER_FINAL = re.compile(rf"v=({_BASE64}){_EXTENSIONS}")
_SERVER_ERROR = re.compile(rf"e=([^,=\0]+){_EXTENSIONS}")


@dataclass(frozen=True, slots=True)
class _ServerFirst:
    """The broker's first message: the whole nonce, the salt, the iterations, and the text as it came."""

    nonce: str
    salt: bytes
    iterations: int
    text: str


class ScramMechanism(Mechanism):
    """SCRAM with one of the hashes that Kafka has.

    `nonce` is random, of printable ASCII characters without a comma, and new for every connection. With `token_auth`
    the user is the id of a delegation token and the password its HMAC (KIP-48).
    """

    def __init__(
        self, name: str, peer: str, username: str, password: str, nonce: str, *, token_auth: bool = False
    ) -> None:
        if name not in _HASHES or not re.fullmatch(_NONCE, nonce):
            raise ValueError(f"invalid mechanism {name!r} or invalid nonce of {len(nonce)} characters")
        super().__init__(name, peer, username, (password,))
        self._token_auth = token_auth
        self._hash = _HASHES[name]
        for field, value in (("user name", username), ("password", password)):
            if not value:
                raise self.error(f"the {field} is empty", CHECK_CREDENTIALS)
        self._password = self._bytes(password, "password")
        self._nonce = nonce
        sasl_name = username.replace("=", "=3D").replace(",", "=2C")
        extension = ",tokenauth=true" if token_auth else ""
        self._first_bare = self._bytes(f"n={sasl_name},r={nonce}{extension}", "user name")

    @property
    def after_rejection(self) -> str:
        if self._token_auth:
            return f"{CHECK_CREDENTIALS}, and with kafka-delegation-tokens that the token exists and has not expired"
        return f"{CHECK_CREDENTIALS}, and with kafka-configs that the user has a password for {self.name}"

    def _exchange(self) -> Exchange:
        self.takes_long = True  # as many rounds as the broker says
        server_first = self._server_first(self._text((yield _GS2_HEADER.encode() + self._first_bare)))
        channel_binding = base64.b64encode(_GS2_HEADER.encode()).decode()
        without_proof = f"c={channel_binding},r={server_first.nonce}".encode()
        message = b",".join((self._first_bare, server_first.text.encode(), without_proof))

        salted = hashlib.pbkdf2_hmac(self._hash, self._password, server_first.salt, server_first.iterations)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = hmac.digest(stored_key, message, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))

        self.takes_long = False
        challenge = yield without_proof + b",p=" + base64.b64encode(proof)
        expected = hmac.digest(hmac.digest(salted, b"Server Key", self._hash), message, self._hash)
        if not hmac.compare_digest(self._server_signature(self._text(challenge)), expected):
            raise self.error("the broker has not proved that it knows the password: wrong signature", CHECK_BROKER)

    def _server_first(self, text: str) -> _ServerFirst:
        """Parse and check the broker's first message. No work has been done for it yet."""
        self._refuse_early_end_or_error(text)
        match = _SERVER_FIRST.fullmatch(text)
        salt = self._base64(match[2]) if match is not None else None
        if match is None or salt is None:
            mandatory = text.startswith("m=")  # RFC 5802: fail on a mandatory extension
            kind = "has a mandatory extension, which streamgroup does not know" if mandatory else "is not valid"
            raise self.error(f"the first message of the broker {kind}", CHECK_BROKER)
        nonce = match[1]
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise self.error("the nonce of the broker does not continue the nonce of the client", CHECK_BROKER)
        digits = match[3].lstrip("0")
        # The number is compared before it is used: it may have thousands of digits.
        if len(digits) > len(str(MAX_ITERATIONS)) or not MIN_ITERATIONS <= int(digits or "0") <= MAX_ITERATIONS:
            raise self.error(
                f"the broker asks for {digits[:12] or '0'}{'…' if len(digits) > 12 else ''} iterations, and "
                f"{MIN_ITERATIONS} to {MAX_ITERATIONS} are allowed",
                "Create the user's credential again with kafka-configs and iterations in this range",
            )
        return _ServerFirst(nonce, salt, int(digits), text)

    def _server_signature(self, text: str) -> bytes:
        """Parse the broker's last message. It is a signature or an error."""
        self._refuse_early_end_or_error(text)
        match = _SERVER_FINAL.fullmatch(text)
        signature = self._base64(match[1]) if match is not None else None
        if signature is None:
            raise self.error("the last message of the broker is not valid", CHECK_BROKER)
        return signature

    def _refuse_early_end_or_error(self, text: str) -> None:
        if not text:
            raise self.error("the broker reports success without a proof that it knows the password", CHECK_BROKER)
        if (match := _SERVER_ERROR.fullmatch(text)) is not None:
            raise self.rejected(match[1])

    @staticmethod
    def _base64(text: str) -> bytes | None:
        """Decode canonical base64, None for any other text: each value has exactly one text."""
        try:
            decoded = base64.b64decode(text, validate=True)
        except ValueError:
            return None
        return decoded if base64.b64encode(decoded).decode() == text else None
