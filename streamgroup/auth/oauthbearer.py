"""SASL OAUTHBEARER (RFC 7628): a bearer token, with the extensions of KIP-342."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from streamgroup.auth.mechanism import Exchange, Mechanism
from streamgroup.errors import AuthenticationError, TransportError

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
