"""SASL GSSAPI (RFC 4752): Kerberos. The machine carries the tokens of a security context that the caller passes in."""

from __future__ import annotations

from typing import Protocol

from streamgroup.auth.mechanism import CHECK_BROKER, Exchange, Mechanism

GSSAPI = "GSSAPI"

MAX_ROUNDS = 16
"""The most tokens of the context. Kerberos needs one or two; a broker must not keep a client busy for ever."""

_NO_LAYER = 1
"""The bit of "no security layer". Kafka never wraps its requests: TLS is there for that."""
_CHECK_TICKET = (
    "Check the ticket or the keytab, kafka.sasl.kerberos.service.name, and that the broker's host name is the one of "
    "its principal"
)


class SecurityContextError(Exception):
    """A step of a security context failed. Its text is the cause, without a key."""


class SecurityContext(Protocol):
    """The client's side of a GSS-API security context. All methods raise SecurityContextError."""

    @property
    def complete(self) -> bool:
        """True if the context is established."""

    def step(self, token: bytes | None) -> bytes | None:
        """Return the next token for the broker's `token`, which is None at first. None means no token."""

    def unwrap(self, message: bytes) -> bytes:
        """Return the content of a wrapped message, whose integrity has been checked."""

    def wrap(self, message: bytes) -> bytes:
        """Return the message with its integrity protected, not encrypted."""


class GssapiMechanism(Mechanism):
    """GSSAPI with `context`, as the client principal `principal`.

    As Java's client, this one sends the whole principal as authorization id, empty for that of the ticket. A context
    serves one exchange.
    """

    def __init__(self, peer: str, context: SecurityContext, principal: str = "") -> None:
        super().__init__(GSSAPI, peer, principal)
        self._context = context
        self._authorization_id = self._bytes(principal, "principal")

    def _exchange(self) -> Exchange:
        token = self._step(None)
        rounds = 1
        while not self._context.complete:
            if rounds == MAX_ROUNDS:
                raise self.error(f"the security context is not established after {MAX_ROUNDS} tokens", _CHECK_TICKET)
            token = self._step((yield token or b""))
            rounds += 1
        challenge = yield token or b""
        if not challenge:  # a broker that had no token to send now offers its security layers
            challenge = yield b""
        answer = self._wrap(self._choice(self._unwrap(challenge)))
        self._done = True  # before KIP-152 the broker does not answer this token
        yield answer

    def _choice(self, offer: bytes) -> bytes:
        """Return the answer to the security layers that the broker offers: none, for this authorization id."""
        if len(offer) != 4:
            raise self.error(f"the offer of security layers has {len(offer)} bytes in place of 4", CHECK_BROKER)
        if not offer[0] & _NO_LAYER:
            raise self.error(
                "the broker requires a security layer of SASL, which Kafka does not have",
                "Set javax.security.sasl.qop=auth on the broker",
            )
        return bytes((_NO_LAYER, 0, 0, 0)) + self._authorization_id

    def _step(self, token: bytes | None) -> bytes | None:
        try:
            return self._context.step(token)
        except SecurityContextError as error:
            raise self.error(f"Kerberos failed: {self.excerpt(str(error))}", _CHECK_TICKET) from error

    def _unwrap(self, message: bytes) -> bytes:
        try:
            return self._context.unwrap(message)
        except SecurityContextError as error:
            raise self.error(
                f"cannot read the security layers that the broker offers: {self.excerpt(str(error))}", CHECK_BROKER
            ) from error

    def _wrap(self, message: bytes) -> bytes:
        try:
            return self._context.wrap(message)
        except SecurityContextError as error:
            raise self.error(f"Kerberos failed: {self.excerpt(str(error))}", _CHECK_TICKET) from error
