"""Signed access tokens (RFC 7519, RS256), the key that checks them (RFC 7517), and the addresses to get both."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from streamgroup.testing.ports import LOOPBACK

AUDIENCE = "kafka"
"""The `aud` of the access tokens."""

KEY_ID = "streamgroup"
_KEY_BITS = 2048
_EXPONENT = 65537


@dataclass(frozen=True, slots=True)
class TokenServerAddress:
    """The addresses of the token server on a port of the loopback interface."""

    port: int

    @property
    def issuer(self) -> str:
        """The `iss` of the access tokens."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def token_url(self) -> str:
        """The token endpoint."""
        return f"{self.issuer}/token"

    @property
    def jwks_url(self) -> str:
        """The address of the public key."""
        return f"{self.issuer}/jwks"

    @property
    def jvm_flag(self) -> str:
        """The flag without which Kafka 4 opens neither address (CVE-2025-27817)."""
        return f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.token_url},{self.jwks_url}"


@dataclass(frozen=True, slots=True, repr=False)
class TokenKey:
    """The RSA key that signs access tokens."""

    key: rsa.RSAPrivateKey

    @classmethod
    def create(cls) -> TokenKey:
        return cls(rsa.generate_private_key(public_exponent=_EXPONENT, key_size=_KEY_BITS))

    @classmethod
    def load(cls, pem: bytes) -> TokenKey:
        """Return the key that `pem` wrote."""
        key = load_pem_private_key(pem, None)
        assert isinstance(key, rsa.RSAPrivateKey)
        return cls(key)

    def pem(self) -> bytes:
        """Return the private key as PEM (PKCS #8)."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def sign(self, claims: Mapping[str, object]) -> str:
        """Return the claims as a token."""
        header = {"alg": "RS256", "typ": "JWT", "kid": KEY_ID}
        signed = f"{_part(json.dumps(header).encode())}.{_part(json.dumps(dict(claims)).encode())}"
        return f"{signed}.{_part(self.key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def jwks(self) -> dict[str, object]:
        """Return the set of the one public key."""
        public = self.key.public_key().public_numbers()
        numbers = {"n": _number(public.n), "e": _number(public.e)}
        return {"keys": [{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": KEY_ID, **numbers}]}


def _number(value: int) -> str:
    return _part(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
