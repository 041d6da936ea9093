"""SASL GSSAPI (RFC 4752): Kerberos. The machine carries the tokens of a security context that the caller passes in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from streamgroup.auth.kerberos_errors import KerberosFailure, remedy
from streamgroup.errors import StreamGroupError, TransportError
from streamgroup.kafka.net.sasl.mechanisms import CHECK_BROKER, Exchange, Mechanism

GSSAPI = "GSSAPI"

MAX_ROUNDS = 16
"""The most tokens of the context. Kerberos needs one or two; a broker must not keep a client busy for ever."""

_NO_LAYER = 1
"""The bit of "no security layer". Kafka never wraps its requests: TLS is there for that."""
_CHECK_TICKET = (
    "The log of the broker has the cause. Check that the keytab of the broker has the present key of its principal, "
    "and that the clocks of this machine, of the KDC and of the broker agree"
)


class SecurityContext(Protocol):
    """The client's side of a GSS-API security context. All methods raise KerberosFailure."""

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
    serves one exchange. `on_rejected` is called when the broker rejects the ticket.
    """

    shown = "ticket"

    def __init__(
        self, peer: str, context: SecurityContext, principal: str = "", on_rejected: Callable[[], None] | None = None
    ) -> None:
        super().__init__(GSSAPI, peer, principal, on_rejected=on_rejected)
        self._context = context
        self._authorization_id = self._bytes(principal, "principal")

    @property
    def after_rejection(self) -> str:
        return _CHECK_TICKET

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
        except KerberosFailure as failure:
            raise self._failed(failure) from failure

    def _unwrap(self, message: bytes) -> bytes:
        try:
            return self._context.unwrap(message)
        except KerberosFailure as failure:
            raise self.error(
                f"cannot read the security layers that the broker offers: {self.excerpt(failure.text)}", CHECK_BROKER
            ) from failure

    def _wrap(self, message: bytes) -> bytes:
        try:
            return self._context.wrap(message)
        except KerberosFailure as failure:
            raise self._failed(failure) from failure

    def _failed(self, failure: KerberosFailure) -> StreamGroupError:
        """Return the error of a failed call of the library: a TransportError if a retry may succeed."""
        found = remedy(failure)
        error = self.error(f"Kerberos failed: {self.excerpt(failure.text)}", found.next_step)
        return TransportError(str(error)) if found.retried else error
