"""SASL mechanisms without sockets: PLAIN (RFC 4616), OAUTHBEARER (RFC 7628), SCRAM (RFC 5802). Kerberos: `kerberos.py`.

A mechanism returns the client's tokens and takes the broker's answers. No error contains a password or a token.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import ClassVar, TypeAlias

from streamgroup.errors import AuthenticationError, TransportError
from streamgroup.frozen import frozen

MAX_CHALLENGE = 64 * 1024
"""The longest message of a broker, in bytes, in the mechanisms with messages in text."""

CHECK_CREDENTIALS = "Check the credentials in kafka.sasl.jaas.config"
CHECK_BROKER = "Check that kafka.bootstrap.servers names the right cluster, and that its listener uses SASL"

_HIDDEN = "*****"
_LONGEST_EXCERPT = 300

Exchange: TypeAlias = Generator[bytes, bytes, None]
"""The steps of a mechanism: yields each token of the client, and receives each message of the broker. It returns when
the client has verified the broker as far as the mechanism can."""


class Mechanism(ABC):
    """One SASL exchange with the broker at `peer` (`host:port`). A subclass for each mechanism.

    `user` is the user in error messages, "" if the client does not know it. No error message contains one of `secrets`,
    even if the broker repeats it. `on_rejected()` is called if the broker rejects the client. `first` and `next` raise
    AuthenticationError if the exchange fails; it cannot be continued then.
    """

    shown: ClassVar[str] = "credentials"
    """The name of what the client shows to the broker, in error messages."""

    def __init__(
        self,
        name: str,
        peer: str,
        user: str = "",
        secrets: Sequence[str] = (),
        on_rejected: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        """The name of the mechanism in SaslHandshake."""
        self._peer = peer
        self._user = user
        self._secrets = secrets
        self._on_rejected = on_rejected
        self._begun = self._done = False
        self.takes_long = False
        """True if the next call of `next` would block other connections of the thread for too long."""
        self._running: Exchange | None = None

    @property
    def done(self) -> bool:
        """Whether the client has verified the broker as far as the mechanism can, and has no further token to send."""
        return self._done

    def first(self) -> bytes:
        """Return the first token of the client. Each object serves one exchange, because a nonce is used only once."""
        if self._begun:
            raise RuntimeError(f"SASL {self.name} with broker {self._peer} has begun already")
        self._begun = True
        exchange = self._exchange()
        token = next(exchange)
        self._running = exchange
        return token

    def next(self, challenge: bytes) -> bytes | None:
        """Return the next token for the broker's message `challenge`, or None if the exchange is complete."""
        exchange, self._running = self._running, None  # an exchange that raises must not end like one that succeeds
        if exchange is None:
            raise self.error("no exchange is under way", CHECK_BROKER)
        try:
            token = exchange.send(challenge)
        except StopIteration:
            self._done = True
            return None
        self._running = exchange
        return token

    @property
    def after_rejection(self) -> str:
        """The next step for the user after the broker has rejected the credentials."""
        return CHECK_CREDENTIALS

    def rejected(self, reason: str) -> AuthenticationError | TransportError:
        """Return the error if the broker rejects the client. `reason` is the broker's message, or "".

        It is a TransportError if the broker could not check the credentials: a retry may succeed.
        """
        if self._on_rejected is not None:
            self._on_rejected()
        cause = f": {self.excerpt(reason)}" if reason else ""
        return self.error(f"the broker rejected the {self.shown}{cause}", self.after_rejection)

    def error(self, cause: str, next_step: str) -> AuthenticationError:
        user = f" as user {self._user!r}" if self._user else ""
        return AuthenticationError(
            f"cannot authenticate to broker {self._peer}{user} by SASL {self.name}: {cause.rstrip('.')}. {next_step}"
        )

    def excerpt(self, text: str) -> str:
        """Return a text of the broker for an error message: printable, short and without the secrets."""
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN) if secret else text
        shown = text if len(text) <= _LONGEST_EXCERPT else f"{text[:_LONGEST_EXCERPT]}…"
        return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in shown)

    def _text(self, challenge: bytes) -> str:
        """Return the text of a message. Raises AuthenticationError if it is too long or not UTF-8."""
        if len(challenge) > MAX_CHALLENGE:
            raise self.error(
                f"the broker sent a message of {len(challenge)} bytes, more than {MAX_CHALLENGE}", CHECK_BROKER
            )
        try:
            return bytes(challenge).decode("utf-8")
        except UnicodeDecodeError:
            raise self.error("the broker sent a message that is not valid UTF-8", CHECK_BROKER) from None

    def _bytes(self, text: str, field: str) -> bytes:
        """Return a credential in UTF-8. `field` names it in the error."""
        try:
            return text.encode("utf-8")
        except UnicodeEncodeError:  # its text would show a part of the credential
            raise self.error(f"the {field} is not valid Unicode", CHECK_CREDENTIALS) from None

    @abstractmethod
    def _exchange(self) -> Exchange:
        """Return the steps of a new exchange."""


# -- PLAIN -------------------------------------------------------------------------------------------------------------

PLAIN = "PLAIN"


class PlainMechanism(Mechanism):
    """The SASL mechanism PLAIN, which sends the password itself. The authorization id is empty, as in Java's client."""

    def __init__(self, peer: str, username: str, password: str) -> None:
        super().__init__(PLAIN, peer, username, (password,))
        for field, value in (("user name", username), ("password", password)):
            if not value or "\0" in value:
                cause = "contains a NUL character, which separates the fields" if value else "is empty"
                raise self.error(f"the {field} {cause}", CHECK_CREDENTIALS)
        self._token = b"\0" + self._bytes(username, "user name") + b"\0" + self._bytes(password, "password")

    def _exchange(self) -> Exchange:
        yield self._token  # PLAIN verifies no broker, so its answer has no meaning; Java and librdkafka skip it too


# -- OAUTHBEARER -------------------------------------------------------------------------------------------------------

OAUTHBEARER = "OAUTHBEARER"

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""A bearer token (RFC 6750). Java's broker accepts no other."""
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
_SEPARATOR = "\x01"
_GIVE_UP = b"\x01"
"""The answer to an error challenge, after which the broker ends the exchange (RFC 7628, section 3.2.3)."""
_ERROR_FIELDS = ("status", "scope", "openid-configuration")
_TRANSIENT_STATUSES = ("server_error", "temporarily_unavailable")
"""The codes of RFC 6749 (section 4.1.2.1) for a server that cannot decide now. Kafka's own validator sends neither."""


class OAuthBearerMechanism(Mechanism):
    """The SASL mechanism OAUTHBEARER with the bearer token `token`.

    `extensions` are names and values for the broker, in their order. `expiry` is the token's end for an error message,
    "" if the client does not know it. `on_rejected()` is called if the broker rejects the token.
    """

    def __init__(
        self,
        peer: str,
        token: str,
        extensions: Mapping[str, str] | None = None,
        expiry: str = "",
        on_rejected: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(OAUTHBEARER, peer, secrets=(token,), on_rejected=on_rejected)
        if not _TOKEN.fullmatch(token):
            raise self.error(
                "the token is empty or has a character that a bearer token must not have",
                "Check the answer of the token endpoint",
            )
        pairs = [f"auth=Bearer {token}"]
        for name, value in (extensions or {}).items():
            if not _EXTENSION_NAME.fullmatch(name) or name == "auth":
                raise self.error(
                    f"invalid name {name!r} of a SASL extension",
                    "Name it with letters only, and not 'auth', in kafka.sasl.jaas.config",
                )
            if not _EXTENSION_VALUE.fullmatch(value):
                raise self.error(
                    f"invalid value of the SASL extension {name}",
                    "Write printable ASCII characters in kafka.sasl.jaas.config",
                )
            pairs.append(f"{name}={value}")
        self._message = _SEPARATOR.join(["n,,", *pairs, "", ""]).encode()
        self._expiry = f"the token expires at {expiry}" if expiry else ""
        self._problem = ""
        self._is_transient = False

    @property
    def after_rejection(self) -> str:
        return "Check the token's end, issuer and audience, and the clocks of this host and of the brokers"

    def rejected(self, reason: str) -> AuthenticationError | TransportError:
        """Return the error if the broker rejects the token, with the content of its error challenge.

        It is a TransportError if the challenge shows that the broker could not check the token: a retry may succeed.
        """
        if self._is_transient:
            return TransportError(
                f"broker {self._peer} could not check the token of SASL {self.name}: {self.excerpt(self._problem)}. A "
                "retry may succeed. If it does not, see the broker's log for its token service"
            )
        said = dict.fromkeys((self._problem, _problem_in(reason)))  # Kafka repeats its challenge in the last message
        return super().rejected("; ".join(filter(None, (*said, self._expiry))))

    def _exchange(self) -> Exchange:
        challenge = yield self._message
        if not challenge:
            return  # the broker accepts the token; it proves nothing about itself, as TLS does that
        text = self._text(challenge)
        self._problem = _problem_in(text)
        self._is_transient = (_fields_of(text) or {}).get("status") in _TRANSIENT_STATUSES
        yield _GIVE_UP
        raise self.rejected("")  # even if the broker now reports success


def _problem_in(text: str) -> str:
    """Return the known fields of a broker's error, a JSON object, or the text if it is something else."""
    fields = _fields_of(text)
    if fields is None:
        return text
    return ", ".join(f"{field} {fields[field]}" for field in _ERROR_FIELDS if isinstance(fields.get(field), str))


def _fields_of(text: str) -> dict[str, object] | None:
    """Return the fields of a JSON object; None for any other text."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


# -- SCRAM -------------------------------------------------------------------------------------------------------------

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


@frozen
class _ServerFirst:
    """The broker's first SCRAM message: the complete nonce, the salt, the iterations, and the unparsed text."""

    nonce: str
    salt: bytes
    iterations: int
    text: str


class ScramMechanism(Mechanism):
    """The SASL mechanism SCRAM, with one of the hashes that Kafka supports.

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
        self.takes_long = True  # the broker chooses the number of rounds
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
            raise self.error("the broker has not proved that it has the password: wrong signature", CHECK_BROKER)

    def _server_first(self, text: str) -> _ServerFirst:
        """Parse and check the broker's first message. No work has been done for it yet."""
        self._refuse_early_end_or_error(text)
        match = _SERVER_FIRST.fullmatch(text)
        salt = self._base64(match[2]) if match is not None else None
        if match is None or salt is None:
            mandatory = text.startswith("m=")  # RFC 5802: fail on a mandatory extension
            kind = "has a mandatory extension, which streamgroup does not support" if mandatory else "is not valid"
            raise self.error(f"the first message of the broker {kind}", CHECK_BROKER)
        nonce = match[1]
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise self.error("the nonce of the broker does not continue the nonce of the client", CHECK_BROKER)
        digits = match[3].lstrip("0")
        # The number is compared before it is used: it may have thousands of digits.
        if len(digits) > len(str(MAX_ITERATIONS)) or not MIN_ITERATIONS <= int(digits or "0") <= MAX_ITERATIONS:
            raise self.error(
                f"the broker requires {digits[:12] or '0'}{'…' if len(digits) > 12 else ''} iterations, and "
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
            raise self.error("the broker reports success without a proof that it has the password", CHECK_BROKER)
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
