"""Certificates for tests: an authority, and what it issues. All keys are of the curve P-256, which is fast."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)
_PEM = serialization.Encoding.PEM


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


@dataclass(frozen=True)
class Issued:
    """A key with its certificate, and the certificates of its authorities."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    authorities: tuple[x509.Certificate, ...] = ()

    @property
    def certificate_pem(self) -> str:
        return "".join(each.public_bytes(_PEM).decode() for each in (self.certificate, *self.authorities))

    def key_pem(self, password: str | None = None) -> str:
        return self.key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, _encryption(password)).decode()

    def pkcs12(self, password: str | None) -> bytes:
        return pkcs12.serialize_key_and_certificates(
            b"client", self.key, self.certificate, self.authorities or None, _encryption(password)
        )


def _encryption(password: str | None) -> serialization.KeySerializationEncryption:
    if password is None:
        return serialization.NoEncryption()
    return serialization.BestAvailableEncryption(password.encode())


class Authority:
    """Issues certificates. A `parent` makes it an intermediate authority."""

    def __init__(self, name: str = "Test authority", parent: Authority | None = None, until: datetime | None = None):
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.parent = parent
        issuer = self if parent is None else parent
        self.name = _name(name)
        self.certificate = _sign(
            self.key, self.name, issuer.name, issuer.key, (datetime.now(UTC) - DAY, until or datetime.now(UTC) + DAY)
        )

    @cached_property
    def pem(self) -> str:
        return self.certificate.public_bytes(_PEM).decode()

    def truststore(self, password: str | None) -> bytes:
        """Return a PKCS12 store with this certificate alone."""
        return pkcs12.serialize_key_and_certificates(None, None, None, [self.certificate], _encryption(password))

    def issue(
        self, *hosts: str, since: datetime | None = None, until: datetime | None = None, name: str = "broker"
    ) -> Issued:
        """Issue a certificate for host names and addresses, localhost if none is given, by default for a day."""
        key = ec.generate_private_key(ec.SECP256R1())
        times = since or datetime.now(UTC) - DAY, until or datetime.now(UTC) + DAY
        names = hosts or ("localhost", "127.0.0.1")
        certificate = _sign(key, _name(name), self.name, self.key, times, hosts=names)
        return Issued(key, certificate, () if self.parent is None else (self.certificate,))


def _sign(
    key: ec.EllipticCurvePrivateKey,
    subject: x509.Name,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    times: tuple[datetime, datetime],
    *,
    hosts: tuple[str, ...] = (),
) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(times[0])
        .not_valid_after(times[1])
        .add_extension(x509.BasicConstraints(ca=not hosts, path_length=None), critical=True)
    )
    if hosts:
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def server_context(
    issued: Issued, directory: Path, *, clients: Authority | None = None, newest: str = "TLSv1.3"
) -> ssl.SSLContext:
    """Return the context of a broker. With `clients` it demands certificates which that authority has issued."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}[newest]
    path = directory / f"server-{issued.certificate.serial_number}.pem"
    path.write_text(issued.key_pem() + issued.certificate_pem)
    context.load_cert_chain(path)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=clients.pem)
    return context
