"""Certificates in a handshake of Python's ssl: the good ones pass, each bad one fails for its reason."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography import x509

from streamgroup.testing.security.certificates import Authority, Identity
from streamgroup.testing.security.stores import write_pem

AUTHORITY = Authority.create()
GOOD = AUTHORITY.issue()


def handshake(directory: Path, server: Identity, host: str, trusted: Authority = AUTHORITY) -> None:
    """Shake hands in memory, as a client that trusts `trusted` and means `host`."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(write_pem(directory / "server.pem", server))
    calling = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    calling.load_verify_locations(cadata=trusted.certificate_pem().decode())
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        calling.wrap_bio(to_client, to_server, server_hostname=host),
        serving.wrap_bio(to_server, to_client, server_side=True),
    ]
    open_sides = sides
    while open_sides:
        open_sides = [side for side in open_sides if not is_done(side)]


def is_done(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_the_certificate_of_a_broker_is_for_the_loopback_interface(tmp_path: Path, host: str) -> None:
    handshake(tmp_path, GOOD, host)


@pytest.mark.parametrize(
    ("identity", "trusted", "reason"),
    [
        (AUTHORITY.issue(expired=True), AUTHORITY, "certificate has expired"),
        (AUTHORITY.issue(hosts=["elsewhere.example"]), AUTHORITY, "Hostname mismatch"),
        (GOOD, Authority.create("another"), "self-signed certificate in certificate chain"),
    ],
    ids=["expired", "other-host", "other-authority"],
)
def test_a_bad_certificate_is_refused_for_its_reason(
    tmp_path: Path, identity: Identity, trusted: Authority, reason: str
) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match=reason):
        handshake(tmp_path, identity, "localhost", trusted)


def test_an_authority_survives_its_file(tmp_path: Path) -> None:
    loaded = Authority.load(AUTHORITY.pem())
    assert loaded.name == AUTHORITY.name
    handshake(tmp_path, loaded.issue(), "localhost")


def test_a_user_is_the_only_name_in_its_certificate() -> None:
    assert AUTHORITY.issue("alice", hosts=()).certificate.subject.rfc4514_string() == "CN=alice"
    with pytest.raises(x509.ExtensionNotFound):
        AUTHORITY.issue("alice", hosts=()).certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)


def test_no_repr_shows_a_key() -> None:
    assert f"{GOOD!r} {AUTHORITY!r}" == "<Identity localhost> <Authority streamgroup test authority>"
