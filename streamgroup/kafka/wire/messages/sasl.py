"""The APIs that authenticate a connection: SaslHandshake (KIP-43) and SaslAuthenticate (KIP-152, KIP-368)."""

from __future__ import annotations

from streamgroup.kafka.wire.fields import array, byte_string, int16, int64, message, string
from streamgroup.kafka.wire.primitives import Bytes
from streamgroup.kafka.wire.schema import Message, Request


@message
class SaslHandshakeResponse(Message, versions="0-1"):
    """The response to SaslHandshake: an error code, and all mechanisms that the listener supports."""

    error_code: int = int16("0+")
    mechanisms: tuple[str, ...] = array("string", "0+")


@message
class SaslHandshakeRequest(Request[SaslHandshakeResponse], api_key=17, versions="0-1"):
    """Selects the SASL mechanism.

    After v0, both sides send the mechanism's messages as a length and the bytes, without headers. After v1 they send
    them in SaslAuthenticate.
    """

    mechanism: str = string("0+")


@message
class SaslAuthenticateResponse(Message, versions="0-2", flexible=2):
    """The server's next SASL message. `session_lifetime_ms` is 0 if the session does not end."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    auth_bytes: Bytes = byte_string("0+")
    session_lifetime_ms: int = int64("1+", ignorable=True)


@message
class SaslAuthenticateRequest(Request[SaslAuthenticateResponse], api_key=36, versions="0-2", flexible=2):
    """The client's next SASL message. It may contain a password: no log or error may contain it."""

    auth_bytes: Bytes = byte_string("0+")
