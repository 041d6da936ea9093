"""Reads trusted certificates, and the client's key and certificates, from PEM and PKCS12.

Errors are ConfigErrors with the option, this machine, the file and the cause. They never show a password or a part of
a key.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import shlex
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

from streamgroup.errors import ConfigError
from streamgroup.options.secrets import Secret
from streamgroup.options.tls import PEM, TlsOptions, TlsServers

T = TypeVar("T")

_JKS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
"""The first bytes of Java's own formats, JKS and JCEKS."""
_DER = b"\x30"
"""The first byte of a PKCS12 store, as of every DER sequence."""
_BEGIN = b"-----BEGIN "
_SPELLED = frozenset(
    {
        NameOID.COMMON_NAME,
        NameOID.LOCALITY_NAME,
        NameOID.STATE_OR_PROVINCE_NAME,
        NameOID.ORGANIZATION_NAME,
        NameOID.ORGANIZATIONAL_UNIT_NAME,
        NameOID.COUNTRY_NAME,
        NameOID.STREET_ADDRESS,
        NameOID.DOMAIN_COMPONENT,
        NameOID.USER_ID,
    }
)
"""The attributes of a subject that RFC 2253 gives a keyword."""
_ESCAPED = "\\="


@dataclass(frozen=True, slots=True, repr=False)
class KeyAndCertificate:
    """The client's private key and its certificate chain, as PEM. Its `repr` contains neither."""

    origin: str
    """The option and the file that they come from, for messages."""
    pem: bytes

    def __repr__(self) -> str:
        return f"KeyAndCertificate({self.origin})"


class _Origin(NamedTuple):
    """Where a key or certificate comes from, for errors: the option (without its prefix), and the file if any."""

    option: str
    servers: TlsServers
    path: str | None = None

    @property
    def prefix(self) -> str:
        return self.servers.prefix

    def __str__(self) -> str:
        file = "" if self.path is None else f", file {self.path}"
        return f"option {self.prefix}{self.option} on host {socket.gethostname()}{file}"

    @property
    def type_option(self) -> str:
        return f"{self.prefix}{self.option.partition('.')[0]}.type"

    def problem(self, what: str, cause: str, next_step: str) -> ConfigError:
        return ConfigError(f"cannot use {what} of {self}: {cause}. {next_step}")


_TRUST = "the trusted certificates"
_CERTIFICATE = "the client certificate"
_KEY = "the private key"


def trusted_certificates(options: TlsOptions) -> bytes | None:
    """Return the certificates in the trust store, concatenated in DER; None if the operating system's are trusted.

    Raises ConfigError.
    """
    prefix = options.servers.prefix
    if options.truststore_certificates is not None:
        origin = _Origin("truststore.certificates", options.servers)
        text = options.truststore_certificates.reveal(f"{prefix}truststore.certificates")
        certificates = _certificates(blocks_of(text), origin, _TRUST)
    elif options.truststore_location is not None:
        origin = _Origin("truststore.location", options.servers, options.truststore_location)
        data = _read(origin, _TRUST)
        if _is_pem(data, options.truststore_type, origin, _TRUST):
            certificates = _certificates(blocks_of(data.decode("utf-8", "replace")), origin, _TRUST)
        else:
            store = _pkcs12(data, options.truststore_password, "truststore.password", origin, _TRUST)
            certificates = [entry.certificate for entry in (store.cert, *store.additional_certs) if entry is not None]
    else:
        return None
    if not certificates:
        raise origin.problem(_TRUST, "there is no certificate in it", "Import the authority's certificate")
    return b"".join(certificate.public_bytes(serialization.Encoding.DER) for certificate in certificates)


def client_identity(options: TlsOptions, now: datetime) -> KeyAndCertificate | None:
    """Return the client's key and certificates; None without a key store. `now` has a time zone.

    Raises ConfigError, also if the certificate has expired or does not belong to the key.
    """
    loaded = _key_and_chain(options, now)
    if loaded is None:
        return None
    key, chain, origin = loaded
    key_pem: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    chain_pem = b"".join(certificate.public_bytes(serialization.Encoding.PEM) for certificate in chain)
    return KeyAndCertificate(str(origin), key_pem + chain_pem)


def client_subject(options: TlsOptions, now: datetime) -> str:
    """Return the subject of the client's certificate as it is in Kafka's default principal.

    It is "" without a key store, and for a subject that `java_name` does not support. Raises ConfigError as
    `client_identity`.
    """
    loaded = _key_and_chain(options, now)
    return "" if loaded is None else java_name(loaded[1][0].subject)


def java_name(subject: x509.Name) -> str:
    """Return a subject in the format of Java's X500Principal (RFC 2253); "" if it has other attributes.

    Java writes the values of other attributes, such as an e-mail address, in hexadecimal.
    """
    if any(attribute.oid not in _SPELLED for attribute in subject):
        return ""
    return ",".join("+".join(map(_java_attribute, rdn)) for rdn in reversed(subject.rdns))


def _java_attribute(attribute: x509.NameAttribute[str | bytes]) -> str:
    """Return an attribute of a subject. Unlike RFC 4514, Java escapes the equals sign in a value, too."""
    keyword, _, value = attribute.rfc4514_string().partition("=")
    return f"{keyword}={value.replace('=', _ESCAPED)}"


def _key_and_chain(options: TlsOptions, now: datetime) -> tuple[Any, list[x509.Certificate], _Origin] | None:
    """Return the client's key, its certificates and their source, after checking them; None without a key store."""
    prefix = options.servers.prefix
    if options.keystore_key is not None and options.keystore_certificate_chain is not None:
        origin = _Origin("keystore.certificate.chain", options.servers)
        key_origin = _Origin("keystore.key", options.servers)
        keys = blocks_of(options.keystore_key.reveal(f"{prefix}keystore.key"))
        chain_text = options.keystore_certificate_chain.reveal(f"{prefix}keystore.certificate.chain")
        key = _private_key(keys, options.key_password, key_origin)
        chain = _certificates(blocks_of(chain_text), origin, _CERTIFICATE)
    elif options.keystore_location is not None:
        origin = _Origin("keystore.location", options.servers, options.keystore_location)
        key, chain = _from_file(options, origin)
    else:
        return None
    if not chain:
        raise origin.problem(_CERTIFICATE, "there is no certificate in it", "Add the certificate of the key")
    _check(key, chain[0], origin, now)
    return key, chain, origin


def _from_file(options: TlsOptions, origin: _Origin) -> tuple[Any, list[x509.Certificate]]:
    data = _read(origin, _CERTIFICATE)
    if _is_pem(data, options.keystore_type, origin, _CERTIFICATE):
        blocks = blocks_of(data.decode("utf-8", "replace"))
        key = _private_key(blocks, options.key_password, origin)
        return key, _certificates(blocks, origin, _CERTIFICATE)
    store = _pkcs12(data, options.keystore_password, "keystore.password", origin, _CERTIFICATE)
    _check_key_password(options, origin)
    if store.key is None:
        raise origin.problem(_KEY, "there is no private key in it", "Import the key with its certificate")
    chain = [entry.certificate for entry in (store.cert, *store.additional_certs) if entry is not None]
    return store.key, chain


def _check_key_password(options: TlsOptions, origin: _Origin) -> None:
    """Refuse a separate password of the key, which Java's PKCS12 does not have either."""
    if options.key_password is None or options.keystore_password is None:
        return
    of_key = options.key_password.reveal(f"{origin.prefix}key.password")
    if of_key != options.keystore_password.reveal(f"{origin.prefix}keystore.password"):
        raise origin.problem(
            _KEY,
            f"{origin.prefix}key.password differs from {origin.prefix}keystore.password, and PKCS12 has one password",
            f"Leave {origin.prefix}key.password out",
        )


def _read(origin: _Origin, what: str) -> bytes:
    assert origin.path is not None
    try:
        data = Path(origin.path).read_bytes()
    except OSError as error:
        raise origin.problem(
            what,
            error.strerror or type(error).__name__,
            f"The file must exist on {origin.servers.clients}, readable for the user of Spark",
        ) from None
    if not data:
        raise origin.problem(what, "the file is empty", "Write the store again")
    return data


def _is_pem(data: bytes, declared: str, origin: _Origin, what: str) -> bool:
    """Return whether a file is PEM, and not PKCS12. Raises ConfigError for another format than the declared one.

    Java takes PKCS12 for `JKS`, and its keytool has written PKCS12 into `.jks` files since Java 9.
    """
    if data.startswith(_JKS):
        raise origin.problem(what, "the file is a JKS store, which only Java reads", _conversion(origin))
    has_pem, is_pem = _BEGIN in data, declared == PEM
    if has_pem is is_pem and (has_pem or data.startswith(_DER)):
        return is_pem
    if has_pem:
        raise origin.problem(what, f"the file is PEM, not {declared}", f"Set {origin.type_option}=PEM")
    if data.startswith(_DER):
        return_to = f"Set {origin.type_option}=PKCS12"
        raise origin.problem(what, "the file is not PEM; it looks like PKCS12", return_to)
    raise origin.problem(what, f"the format is unknown: neither PEM nor PKCS12 (declared {declared})", "Check the path")


def _conversion(origin: _Origin) -> str:
    """Return the commands and options that replace a JKS store. keytool asks for the passwords."""
    assert origin.path is not None
    source, target = Path(origin.path), Path(origin.path).with_suffix(".p12")
    return (
        f"Convert it: keytool -importkeystore -srckeystore {shlex.quote(str(source))} -srcstoretype JKS -destkeystore "
        f"{shlex.quote(str(target))} -deststoretype PKCS12. Then set {origin.prefix}{origin.option}={target}"
    )


def _pkcs12(data: bytes, password: Secret | None, option: str, origin: _Origin, what: str) -> Any:
    revealed = None if password is None else password.reveal(f"{origin.prefix}{option}").encode()
    try:
        return pkcs12.load_pkcs12(data, revealed)
    except (ValueError, UnsupportedAlgorithm) as error:
        if _parses(lambda: x509.load_der_x509_certificate(data)):
            raise origin.problem(
                what,
                "the file is one certificate in DER, not a PKCS12 store",
                f"Convert it: openssl x509 -inform der -in {shlex.quote(str(origin.path))}, and set "
                f"{origin.type_option}=PEM",
            ) from None
        if isinstance(error, UnsupportedAlgorithm):
            raise origin.problem(
                what, "its encryption is not supported", "Write the store again with keytool of Java 17 or later"
            ) from None
        cause = "wrong password, or a damaged file" if revealed is not None else "it has a password"
        raise origin.problem(what, cause, f"Check {origin.prefix}{option}") from None


def _certificates(blocks: list[Block], origin: _Origin, what: str) -> list[x509.Certificate]:
    """Return the certificates in `blocks`. Blocks of other kinds are left to the caller."""
    try:
        return [x509.load_der_x509_certificate(block.decoded()) for block in blocks if block.is_certificate]
    except ValueError as error:
        raise origin.problem(what, f"damaged certificate: {_line(error)}", "Write the PEM again") from None


def _private_key(blocks: list[Block], password: Secret | None, origin: _Origin) -> Any:
    block = next((block for block in blocks if block.is_private_key), None)
    if block is None:
        raise origin.problem(_KEY, "there is no private key in it", "Add the block BEGIN PRIVATE KEY")
    option = f"{origin.prefix}key.password"
    is_encrypted = "ENCRYPTED" in block.label or "ENCRYPTED" in block.body
    if is_encrypted and password is None:
        raise origin.problem(_KEY, "it is encrypted, and no password is set", f"Set {option}")
    revealed = (
        password.reveal(f"{origin.prefix}key.password").encode() if is_encrypted and password is not None else None
    )
    try:
        return serialization.load_pem_private_key(block.canonical(), revealed)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # The cause is left out, since it may quote the key.
        if is_encrypted:
            raise origin.problem(
                _KEY, "wrong password, or a damaged key", f"Check {origin.prefix}key.password"
            ) from None
        raise origin.problem(_KEY, "the key is damaged or of an unknown kind", "Write it as PKCS8") from None


def _check(key: Any, certificate: x509.Certificate, origin: _Origin, now: datetime) -> None:
    """Raise ConfigError if `certificate` does not belong to `key`, or is not valid at `now`."""
    encoding = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    try:
        certified = certificate.public_key().public_bytes(*encoding)
    except (ValueError, UnsupportedAlgorithm):  # the key is parsed later than its certificate
        raise origin.problem(
            _CERTIFICATE, "the key in the first certificate is damaged or of an unknown kind", "Write the file again"
        ) from None
    if certified != key.public_key().public_bytes(*encoding):
        raise origin.problem(
            _CERTIFICATE,
            f"the first certificate ({_name(certificate)}) does not belong to the private key",
            "Put the certificate of the key first, its authorities after it",
        )
    since, until = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > until:
        cause = f"the certificate of {_name(certificate)} has expired on {until:%Y-%m-%d %H:%M} UTC"
        raise origin.problem(_CERTIFICATE, cause, "Renew it")
    if now < since:
        cause = f"the certificate of {_name(certificate)} is not valid before {since:%Y-%m-%d %H:%M} UTC"
        raise origin.problem(_CERTIFICATE, cause, "Check the clock of this machine")


def _name(certificate: x509.Certificate) -> str:
    return certificate.subject.rfc4514_string() or "an empty subject"


def _parses(parse: Callable[[], object]) -> bool:
    try:
        parse()
    except ValueError:
        return False
    return True


def _line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


# -- PEM ---------------------------------------------------------------------------------------------------------------

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_WIDTH = 64


class Block(NamedTuple):
    """One block of a PEM file: its label, such as `CERTIFICATE`, and the text between its delimiters."""

    label: str
    body: str

    @property
    def is_certificate(self) -> bool:
        return self.label in ("CERTIFICATE", "X509 CERTIFICATE")

    @property
    def is_private_key(self) -> bool:
        return self.label.endswith("PRIVATE KEY")

    def decoded(self) -> bytes:
        """Return the bytes of the block. Raises ValueError for invalid base64."""
        try:
            return base64.b64decode("".join(self.body.split()), validate=True)
        except binascii.Error:
            raise ValueError(f"the block {self.label} is not valid base64") from None

    def canonical(self) -> bytes:
        """Return the block as PEM with lines of 64 characters, as most readers expect it."""
        if ":" in self.body:  # headers, as in keys that are encrypted in OpenSSL's old way
            lines = self.body.strip().splitlines()
        else:
            text = "".join(self.body.split())
            lines = [text[at : at + _WIDTH] for at in range(0, len(text), _WIDTH)]
        return "\n".join((f"-----BEGIN {self.label}-----", *lines, f"-----END {self.label}-----", "")).encode()


def blocks_of(text: str) -> list[Block]:
    """Return the PEM blocks in `text`, in their order. Other text is ignored."""
    return [Block(label, body) for label, body in _BLOCK.findall(text)]


# -- a path for a key in memory ----------------------------------------------------------------------------------------

_DESCRIPTORS = Path("/proc/self/fd")


@contextmanager
def readable_path(data: bytes) -> Iterator[str]:
    """Yield a path at which this process can read `data` as a file.

    On Linux the bytes never reach a disk: the path is a descriptor of anonymous memory. On other systems it is a file
    of mode 0600 in a directory of mode 0700. Both are removed at the end.
    """
    if hasattr(os, "memfd_create") and _DESCRIPTORS.is_dir():
        with open(os.memfd_create("streamgroup-key"), "wb") as file:
            file.write(data)
            file.flush()
            yield str(_DESCRIPTORS / str(file.fileno()))
        return
    with tempfile.TemporaryDirectory(prefix="streamgroup-") as directory:
        path = Path(directory) / "key"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        yield str(path)
