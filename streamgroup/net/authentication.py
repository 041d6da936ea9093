"""SASL over one connection, a pure state machine: a mechanism's tokens in the requests that the broker knows.

From Kafka 1.0 on the tokens travel in SaslAuthenticate (KIP-152). A broker of 0.10 or 0.11 has only SaslHandshake v0:
after that both sides send tokens without headers, behind their length, and a broker that rejects the credentials closes
the connection without an answer. A broker of 0.9 has no SaslHandshake, and takes tokens of Kerberos alone.

A closed connection and the error codes that Java's clients retry are TransportErrors: another attempt may succeed. All
other codes are AuthenticationErrors. SASL_AUTHENTICATION_FAILED (58) is one, also where the broker itself lacks its
tokens' service. With 4.1.1 and its JWKS endpoint stopped, a token that needs a new key of that endpoint got the error
challenge `invalid_token` and code 58, byte for byte as a forged token does (`tests/live/test_lost_token_service.py`).
A token of a key that the broker had kept was accepted. `SaslServerAuthenticator` answers 58 to every failure but a
Kerberos error that is retriable, for which it closes the connection. Only an error challenge of a validator that says
`temporarily_unavailable` or `server_error` tells the two apart (`auth/mechanisms.py`).

The contract: send `first()`. Hand each answer to `on_response`, or to `on_token` while `is_raw`, and send what it
returns. The exchange is complete when `done` is true.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from streamgroup.auth.mechanisms import Mechanism
from streamgroup.errors import (
    AuthenticationError,
    ErrorCode,
    TransportError,
    UnsupportedVersionError,
    error_of,
    may_succeed_later,
)
from streamgroup.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from streamgroup.wire.schema import Request
from streamgroup.wire.versions import BrokerVersions


class SaslRequest(NamedTuple):
    """A request of the exchange, and the version in which to send it."""

    request: Request[Any]
    version: int

    def __str__(self) -> str:
        return f"{self.request.NAME} v{self.version}"


SaslStep: TypeAlias = SaslRequest | bytes | None
"""The next message of the client: a request, a token without a header, or None if it sends nothing."""


class Authentication:
    """One exchange of `mechanism` with the broker that has `versions`."""

    def __init__(self, mechanism: Mechanism, versions: BrokerVersions) -> None:
        self._mechanism = mechanism
        self._versions = versions
        self._in_requests = versions.speaks(SaslHandshakeRequest, 1) and versions.speaks(SaslAuthenticateRequest, 0)
        self.done = self.is_raw = False
        self.session_lifetime_ms = 0
        """Milliseconds after which the broker ends the session unless the client authenticates again; 0 for never."""

    @property
    def name(self) -> str:
        """The name of the mechanism."""
        return self._mechanism.name

    @property
    def takes_long(self) -> bool:
        """True if the next `on_response` or `on_token` computes long: call it beside the connections."""
        return self._mechanism.takes_long

    def first(self) -> SaslRequest:
        """Return the first request. Raises AuthenticationError if the broker authenticates in another way."""
        try:
            self._versions.highest(SaslHandshakeRequest)
        except UnsupportedVersionError:
            raise self._mechanism.error(
                "the broker has no SaslHandshake: Kafka 0.9 has only Kerberos, without a handshake, which this client "
                "does not support",
                "Use a listener of the broker with PLAINTEXT or SSL, or a newer broker",
            ) from None
        return SaslRequest(SaslHandshakeRequest(mechanism=self.name), 1 if self._in_requests else 0)

    def on_response(self, response: SaslHandshakeResponse | SaslAuthenticateResponse) -> SaslStep:
        """Handle an answer. Return the next request, a token to send without a header, or None if there is none.

        Raises AuthenticationError if the exchange has failed, TransportError if a retry may succeed.
        """
        if isinstance(response, SaslHandshakeResponse):
            self._check_handshake(response)
            self.is_raw = not self._in_requests
            return self._sent(self._mechanism.first())
        if response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED:
            raise self._mechanism.rejected(response.error_message or "")
        if response.error_code:
            self._check(response.error_code, response.error_message or "")
        self.session_lifetime_ms = response.session_lifetime_ms
        return self.on_token(bytes(response.auth_bytes))

    def on_token(self, token: bytes) -> SaslStep:
        """Handle a token of the broker. Return and raise as `on_response`."""
        return self._sent(self._mechanism.next(token))

    def on_silent_end(self) -> AuthenticationError | TransportError:
        """Return the error of a broker that ends the connection in place of an answer to a token without a header."""
        return self._mechanism.rejected("it closed the connection without an answer, as brokers before 1.0 do")

    def _sent(self, token: bytes | None) -> SaslStep:
        self.done = token is None or (self.is_raw and self._mechanism.done)
        if token is None or self.is_raw:
            return token
        version = self._versions.highest(SaslAuthenticateRequest)
        return SaslRequest(SaslAuthenticateRequest(auth_bytes=token), version)

    def _check_handshake(self, response: SaslHandshakeResponse) -> None:
        if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            theirs = ", ".join(response.mechanisms)
            raise self._mechanism.error(
                f"the listener does not have this mechanism, it has: {theirs or 'none'}",
                "Set kafka.sasl.mechanism to one of them, or enable this one in the broker's sasl.enabled.mechanisms",
            )
        if response.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise self._mechanism.error(
                "the listener authenticates nobody by SASL",
                "Set kafka.security.protocol to PLAINTEXT or SSL, or the port to that of a listener with SASL",
            )
        if response.error_code:
            self._check(response.error_code, "")

    def _check(self, code: int, message: str) -> None:
        """Raise the error of an answer with an error code that is not about the credentials."""
        said = f": {self._mechanism.excerpt(message)}" if message else ""
        error = error_of(code)
        if may_succeed_later(code):
            context = f"SASL {self.name} with broker {self._versions.broker}{said}"
            raise TransportError(f"{context}: {error.name}. A retry may succeed")
        # An AuthError ends the query in every room. The group's thread would connect again after a BrokerError.
        raise self._mechanism.error(
            f"the broker answered {error.name} ({code}): {error.text}{said}", "See the broker's log for the cause"
        )
