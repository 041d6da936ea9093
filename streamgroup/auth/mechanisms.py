"""SASL PLAIN (RFC 4616): the password itself, so the connection should be encrypted."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import ClassVar, TypeAlias

from streamgroup.errors import AuthenticationError, TransportError

MAX_CHALLENGE = 64 * 1024
"""The longest message of a broker, in bytes, in the mechanisms whose messages are text."""

CHECK_CREDENTIALS = "Check the credentials in kafka.sasl.jaas.config"
CHECK_BROKER = "Check that kafka.bootstrap.servers names the right cluster, and that its listener speaks SASL"

_HIDDEN = "*****"
_LONGEST_EXCERPT = 300

Exchange: TypeAlias = Generator[bytes, bytes, None]
"""The steps of a mechanism: yields each token of the client, and is sent each message of the broker. It returns when
the client has verified the broker as far as the mechanism can."""


class Mechanism(ABC):
    """One exchange of one SASL mechanism with the broker at `peer` (`host:port`).

    `user` is the user in error messages, empty if the client does not know it. No error message contains one of
    `secrets`, even if the broker repeats it. `on_rejected` is called when the broker rejects the client. `first` and
    `next` raise AuthenticationError if the exchange fails, and then it cannot go on.
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
        """True if the next `next` computes for longer than a thread that carries other connections may."""
        self._running: Exchange | None = None

    @property
    def done(self) -> bool:
        """True if the client has verified the broker as far as the mechanism can, and has no token after the last."""
        return self._done

    def first(self) -> bytes:
        """Return the first token of the client. A mechanism object serves one exchange: a nonce is used once."""
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
        """The next step for a user whose credentials the broker has rejected."""
        return CHECK_CREDENTIALS

    def rejected(self, reason: str) -> AuthenticationError | TransportError:
        """Return the error of a broker that rejects the client. `reason` is the broker's message, or empty.

        A TransportError says that the broker could not check the credentials, so that a retry may succeed.
        """
        if self._on_rejected is not None:
            self._on_rejected()
        said = f": {self.excerpt(reason)}" if reason else ""
        return self.error(f"the broker rejected the {self.shown}{said}", self.after_rejection)

    def error(self, cause: str, next_step: str) -> AuthenticationError:
        """Return the error of this exchange."""
        user = f" as user {self._user!r}" if self._user else ""
        return AuthenticationError(
            f"cannot authenticate to broker {self._peer}{user} by SASL {self.name}: {cause.rstrip('.')}. {next_step}"
        )

    def excerpt(self, text: str) -> str:
        """Return a printable and short form of a text that the broker has sent, without the secrets."""
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


PLAIN = "PLAIN"


class PlainMechanism(Mechanism):
    """PLAIN with an empty authorization id, as Java's client sends it."""

    def __init__(self, peer: str, username: str, password: str) -> None:
        super().__init__(PLAIN, peer, username, (password,))
        for field, value in (("user name", username), ("password", password)):
            if not value or "\0" in value:
                cause = "contains a NUL character, which separates the fields" if value else "is empty"
                raise self.error(f"the {field} {cause}", CHECK_CREDENTIALS)
        self._token = b"\0" + self._bytes(username, "user name") + b"\0" + self._bytes(password, "password")

    def _exchange(self) -> Exchange:
        yield self._token  # PLAIN verifies no broker, so its answer has no meaning; Java and librdkafka skip it too


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
    """OAUTHBEARER with the token `token`. `extensions` are names and values for the broker, in their order.

    `expiry` is the end of the token's life for an error message, empty if the client does not know it. `on_rejected` is
    called when the broker rejects the token.
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
        """Return the error of a broker that rejects the token, with what the broker's error challenge said before.

        It is a TransportError if the challenge says that the broker could not check the token: a retry may succeed.
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
