"""SASL PLAIN (RFC 4616): the password itself, so the connection should be encrypted."""

from __future__ import annotations

from streamgroup.auth.mechanism import CHECK_CREDENTIALS, Exchange, Mechanism

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
