"""A certificate authority, and the certificates that it issues: good ones for the servers, bad ones for tests."""

from __future__ import annotations

import ipaddress
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
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

from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.testing.directories import write_private
from streamgroup.testing.java import java_executable

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
"""The names in the certificate of a broker."""

_VALID = timedelta(days=3650)
_CLOCK_SKEW = timedelta(days=1)


@dataclass(frozen=True, slots=True, repr=False)
class Identity:
    """A private key, its certificate, and those of its authorities, the nearest one first.

    Its `repr` shows the name only.
    """

    name: str
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    authorities: tuple[x509.Certificate, ...] = ()

    def __repr__(self) -> str:
        return f"<Identity {self.name}>"

    def key_pem(self, password: str | None = None) -> bytes:
        """Return the private key as PEM (PKCS #8), encrypted if there is a password."""
        encryption = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)

    def chain_pem(self) -> bytes:
        """Return the certificate and those of the authorities as PEM, the own one first."""
        return b"".join(each.public_bytes(Encoding.PEM) for each in (self.certificate, *self.authorities))

    def pkcs12(self, password: str) -> bytes:
        """Return key and certificates as PKCS #12, for a key store of Java."""
        return pkcs12.serialize_key_and_certificates(
            self.name.encode(),
            self.key,
            self.certificate,
            self.authorities,
            BestAvailableEncryption(password.encode()),
        )


@dataclass(frozen=True, slots=True, repr=False)
class Authority:
    """A certificate authority with a certificate of its own. Its `repr` shows the name only.

    `above` has the certificates of the authorities that it depends on, the nearest one first; none for a root.
    """

    name: str
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    above: tuple[x509.Certificate, ...] = ()

    def __repr__(self) -> str:
        return f"<Authority {self.name}>"

    @classmethod
    def create(
        cls, name: str = "streamgroup test authority", *, issued_by: Self | None = None, until: datetime | None = None
    ) -> Self:
        """Make a key and a certificate that is valid until a time, or for ten years.

        The authority is a root, or an intermediate one that another has issued.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        issuer, signing = (name, key) if issued_by is None else (issued_by.name, issued_by.key)
        builder = (
            _builder(name, issuer, key.public_key(), now - _CLOCK_SKEW, until or now + _VALID)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
        )
        above = () if issued_by is None else issued_by.chain
        return cls(name, key, builder.sign(signing, hashes.SHA256()), above)

    @property
    def chain(self) -> tuple[x509.Certificate, ...]:
        """Its certificate, and those of the authorities above it."""
        return (self.certificate, *self.above)

    @classmethod
    def load(cls, pem: bytes) -> Self:
        """Return the authority that `pem` wrote, as a root."""
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
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Identity:
        """Make a key, and a certificate for `name` (its CN) and `hosts` (names and addresses).

        An `expired` certificate was valid until yesterday. Others are valid until a time, or for ten years.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        ends = until or (now - timedelta(days=1) if expired else now + _VALID)
        builder = (
            _builder(name, self.name, key.public_key(), since or ends - _VALID - _CLOCK_SKEW, ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.certificate.public_key()),  # type: ignore[arg-type]
                critical=False,
            )
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(list(map(_general_name, hosts))), False)
        return Identity(name, key, builder.sign(self.key, hashes.SHA256()), self.chain)

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
        digital_signature=True,
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


_KEYTOOL_TIMEOUT_S = 60
_PASSWORD_VARIABLE = "STREAMGROUP_STORE_PASSWORD"


def write_pem(file: Path, identity: Identity, password: str | None = None) -> Path:
    """Write key and certificates as Java's `ssl.keystore.type=PEM` reads them; with a password the key is encrypted."""
    return write_private(file, identity.key_pem(password) + identity.chain_pem())


def write_pkcs12(file: Path, identity: Identity, password: str) -> Path:
    """Write key and certificates as PKCS #12."""
    return write_private(file, identity.pkcs12(password))


def write_jks(file: Path, of: Identity | Authority, password: str) -> Path:
    """Write a real JKS, as keytool made it by default before Java 9: a key store, or a trust store of an authority.

    Raises ConfigError if Java has no keytool, StreamGroupError with keytool's words if it fails.
    """
    keytool = shutil.which("keytool", path=str(java_executable().resolve().parent))
    if keytool is None:
        raise ConfigError(
            f"cannot write {file}: keytool is not installed next to {java_executable()}. Install a whole Java"
        )
    with tempfile.TemporaryDirectory(dir=file.parent) as work:
        made = Path(work, "made.jks")
        arguments = _import_of(of, Path(work), made, password)
        ran = subprocess.run(
            [keytool, *arguments],
            env={**os.environ, _PASSWORD_VARIABLE: password},
            capture_output=True,
            text=True,
            timeout=_KEYTOOL_TIMEOUT_S,
            check=False,
        )
        if ran.returncode != 0:
            raise StreamGroupError(f"cannot write {file}: keytool failed: {ran.stdout[-1000:]}{ran.stderr[-1000:]}")
        return write_private(file, made.read_bytes())


def _import_of(of: Identity | Authority, work: Path, made: Path, password: str) -> list[str]:
    """Return the arguments for keytool that put `of` into the JKS `made`."""
    if isinstance(of, Authority):
        source = write_private(work / "source.pem", of.certificate_pem())
        return [
            *("-importcert", "-noprompt", "-alias", "authority", "-file", str(source), "-keystore", str(made)),
            *("-storetype", "JKS", "-storepass:env", _PASSWORD_VARIABLE),
        ]
    source = write_pkcs12(work / "source.p12", of, password)
    return [
        *("-importkeystore", "-noprompt", "-srckeystore", str(source), "-destkeystore", str(made)),
        *("-srcstoretype", "PKCS12", "-srcstorepass:env", _PASSWORD_VARIABLE),
        *("-deststoretype", "JKS", "-deststorepass:env", _PASSWORD_VARIABLE),
    ]
