"""A certificate authority, and the certificates that it issues: good ones for the servers, bad ones for tests."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
"""The names in the certificate of a broker."""

_VALID = timedelta(days=3650)
_CLOCK_SKEW = timedelta(days=1)


@dataclass(frozen=True, slots=True, repr=False)
class Identity:
    """A private key, its certificate, and the authority's. Its `repr` shows the name only."""

    name: str
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    authority: x509.Certificate

    def __repr__(self) -> str:
        return f"<Identity {self.name}>"

    def key_pem(self, password: str | None = None) -> bytes:
        """Return the private key as PEM (PKCS #8), encrypted if there is a password."""
        encryption = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)

    def chain_pem(self) -> bytes:
        """Return the certificate and the authority's as PEM, the own one first."""
        return self.certificate.public_bytes(Encoding.PEM) + self.authority.public_bytes(Encoding.PEM)

    def pkcs12(self, password: str) -> bytes:
        """Return key and certificates as PKCS #12, for a key store of Java."""
        return pkcs12.serialize_key_and_certificates(
            self.name.encode(), self.key, self.certificate, [self.authority], BestAvailableEncryption(password.encode())
        )


@dataclass(frozen=True, slots=True, repr=False)
class Authority:
    """A certificate authority with a certificate of its own. Its `repr` shows the name only."""

    name: str
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    def __repr__(self) -> str:
        return f"<Authority {self.name}>"

    @classmethod
    def create(cls, name: str = "streamgroup test authority") -> Self:
        """Make a key and a certificate that is valid for ten years."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        builder = (
            _builder(name, name, key.public_key(), now - _CLOCK_SKEW, now + _VALID)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
        )
        return cls(name, key, builder.sign(key, hashes.SHA256()))

    @classmethod
    def load(cls, pem: bytes) -> Self:
        """Return the authority that `pem` wrote."""
        key = load_pem_private_key(pem, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        certificate = x509.load_pem_x509_certificate(pem)
        (name,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return cls(str(name.value), key, certificate)

    def issue(
        self,
        name: str = "localhost",
        hosts: Sequence[str] = LOOPBACK_HOSTS,
        *,
        expired: bool = False,
    ) -> Identity:
        """Make a key, and a certificate for `name` (its CN) and `hosts` (names and addresses).

        An `expired` certificate was valid until yesterday.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        ends = now - timedelta(days=1) if expired else now + _VALID
        builder = (
            _builder(name, self.name, key.public_key(), ends - _VALID - _CLOCK_SKEW, ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
                critical=False,
            )
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(list(map(_general_name, hosts))), False)
        return Identity(name, key, builder.sign(self.key, hashes.SHA256()), self.certificate)

    def certificate_pem(self) -> bytes:
        """Return the certificate as PEM, for clients that trust it."""
        return self.certificate.public_bytes(Encoding.PEM)

    def pem(self) -> bytes:
        """Return the private key and the certificate as PEM."""
        key = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return key + self.certificate_pem()

    def truststore(self, password: str) -> bytes:
        """Return the certificate as PKCS #12 with Java's mark of trust, without which Java ignores it."""
        entry = pkcs12.PKCS12Certificate(self.certificate, b"authority")
        return pkcs12.serialize_java_truststore([entry], BestAvailableEncryption(password.encode()))


def _builder(
    subject: str, issuer: str, key: ec.EllipticCurvePublicKey, begins: datetime, ends: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
