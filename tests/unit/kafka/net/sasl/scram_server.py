"""A reference server of SCRAM, written after RFC 5802 apart from the client: keys, proof check, signature."""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
from dataclasses import dataclass, field

HASHES = {"SCRAM-SHA-256": hashlib.sha256, "SCRAM-SHA-512": hashlib.sha512}


def hi(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """`Hi` of RFC 5802 step by step: U1 xor U2 xor ... xor Ui."""
    keyed = hmac.new(password, digestmod=HASHES[name])

    def mac(data: bytes) -> bytes:
        one = keyed.copy()
        one.update(data)
        return one.digest()

    last = mac(salt + b"\0\0\0\1")
    result = int.from_bytes(last, "big")
    for _ in range(iterations - 1):
        last = mac(last)
        result ^= int.from_bytes(last, "big")
    return result.to_bytes(len(last), "big")


@functools.cache
def salted(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(HASHES[name]().name, password, salt, iterations)


@dataclass
class ScramServer:
    """Knows one user. `accepted` is set once a client has proved the password."""

    name: str
    user: str
    password: str
    nonce: str = "server-nonce"
    salt: bytes = b"salt of the user"
    iterations: int = 4_096
    accepted: bool = field(default=False, init=False)
    extensions: dict[str, str] = field(default_factory=dict, init=False)

    def first(self, client_first: bytes) -> bytes:
        """The answer to the client's first message; empty for an unknown user."""
        header, _, bare = client_first.decode().partition(",,")
        user, nonce, *extensions = bare.split(",")
        assert header == "n"
        assert nonce.startswith("r=")
        self.extensions = dict(extension.split("=", 1) for extension in extensions)
        if user.removeprefix("n=").replace("=2C", ",").replace("=3D", "=") != self.user:
            return b"e=unknown-user"
        self._bare = bare
        self._all = nonce[2:] + self.nonce
        self._first = f"r={self._all},s={base64.b64encode(self.salt).decode()},i={self.iterations}"
        return self._first.encode()

    def final(self, client_final: bytes) -> bytes:
        """The server's signature, or an error if the proof is not that of the password."""
        without_proof, _, proof = client_final.decode().rpartition(",p=")
        if without_proof != f"c=biws,r={self._all}":
            return b"e=other-error"
        message = ",".join((self._bare, self._first, without_proof)).encode()
        key = salted(self.name, self.password.encode(), self.salt, self.iterations)
        hashed = HASHES[self.name]
        stored = hashed(hmac.new(key, b"Client Key", hashed).digest()).digest()
        signature = hmac.new(stored, message, hashed).digest()
        client_key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        if hashed(client_key).digest() != stored:
            return b"e=invalid-proof"
        self.accepted = True
        server_key = hmac.new(key, b"Server Key", hashed).digest()
        return b"v=" + base64.b64encode(hmac.new(server_key, message, hashed).digest())
