"""The interface of all SASL mechanisms, and the errors that they share.

The contract with the connection: send `first()`. Hand the bytes of each answer to `next`, and send the token that it
returns. None means that the exchange is complete. If the broker answers an error code in place of bytes, raise
`rejected(message)`.

    token = mechanism.first()
    while token is not None:
        token = mechanism.next(send_and_receive(token))

In SaslAuthenticate (KIP-152) the broker answers every token. Before that the tokens travel without headers, and a
broker does not answer the last token of GSSAPI. So there the connection leaves the loop when `done` is set after a
token.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
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
