"""Certificates of `streamgroup.testing` in the forms that the tests of TLS need."""

from __future__ import annotations

import ssl
from datetime import timedelta
from pathlib import Path

from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    KeySerializationEncryption,
    NoEncryption,
    pkcs12,
)

from streamgroup.testing import Authority, Identity, write_pem

DAY = timedelta(days=1)


def ca_text(authority: Authority) -> str:
    """Return the certificate of the authority alone, as PEM."""
    return authority.certificate_pem().decode()


def key_text(identity: Identity, password: str | None = None) -> str:
    """Return the private key as PEM, encrypted if there is a password."""
    return identity.key_pem(password).decode()


def chain_text(identity: Identity) -> str:
    """Return the certificate and those of the authorities, as PEM."""
    return identity.chain_pem().decode()


def unmarked_truststore(authority: Authority, password: str | None) -> bytes:
    """Return the certificate as PKCS12 without Java's mark of trust, which OpenSSL writes, too."""
    encryption: KeySerializationEncryption = NoEncryption()
    if password is not None:
        encryption = BestAvailableEncryption(password.encode())
    return pkcs12.serialize_key_and_certificates(None, None, None, [authority.certificate], encryption)


def server_context(
    issued: Identity, directory: Path, *, clients: Authority | None = None, newest: str = "TLSv1.3"
) -> ssl.SSLContext:
    """Return the context of a broker. With `clients` it demands certificates which that authority has issued."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}[newest]
    context.load_cert_chain(write_pem(directory / f"server-{issued.certificate.serial_number}.pem", issued))
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=ca_text(clients))
    return context
