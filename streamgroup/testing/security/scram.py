"""The SCRAM credentials of a user that a broker stores (RFC 5802, section 3)."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass

from streamgroup.testing.security.settings import SaslMechanism

ITERATIONS = 8192
"""Kafka's own default is 4096, which is also the least that brokers accept."""

_HASHES = {SaslMechanism.SCRAM_SHA_256: "sha256", SaslMechanism.SCRAM_SHA_512: "sha512"}


@dataclass(frozen=True, slots=True, repr=False)
class ScramCredential:
    """A user's salted password for one mechanism. Its `repr` shows the user and the mechanism only."""

    user: str
    mechanism: SaslMechanism
    salt: bytes
    salted_password: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"<ScramCredential {self.user} {self.mechanism}>"

    @property
    def stored_key(self) -> bytes:
        """H(ClientKey), by which the broker checks a client's proof."""
        return hashlib.new(_HASHES[self.mechanism], self._hmac(b"Client Key")).digest()

    @property
    def server_key(self) -> bytes:
        """The key of the broker's own signature."""
        return self._hmac(b"Server Key")

    def text(self) -> str:
        """Return the credential as brokers in ZooKeeper mode keep it (`ScramCredentialUtils.credentialToString`)."""
        salt, stored, server = (_base64(each) for each in (self.salt, self.stored_key, self.server_key))
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"

    def _hmac(self, message: bytes) -> bytes:
        return hmac.digest(self.salted_password, message, _HASHES[self.mechanism])


def credential(
    user: str, mechanism: SaslMechanism, password: str, salt: bytes, iterations: int = ITERATIONS
) -> ScramCredential:
    """Return the credential of `user`."""
    salted = hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)
    return ScramCredential(user, mechanism, salt, salted, iterations)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
