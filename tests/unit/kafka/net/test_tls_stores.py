"""Reading key stores and trust stores."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import socket
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgroup.errors import ConfigError
from streamgroup.kafka.net.tls.stores import (
    Block,
    blocks_of,
    client_identity,
    java_name,
    readable_path,
    trusted_certificates,
)
from streamgroup.options.secrets import Secret
from streamgroup.options.tls import TlsOptions
from streamgroup.testing import Authority, Identity
from tests.certificates import DAY, ca_text, chain_text, key_text, unmarked_truststore

NOW = datetime.now(UTC)
HOST = socket.gethostname()
_STARTS = [b"", b"-----BEGIN CERTIFICATE-----\n", b"\x30\x82\x01\x00", b"\xfe\xed\xfe\xed"]


@pytest.fixture(scope="module")
def issued(authority: Authority) -> Identity:
    return authority.issue(name="client")


def trust(location: Path | str | None = None, kind: str = "JKS", password: str | None = None, **others: Any) -> Any:
    path = None if location is None else str(location)
    secret = None if password is None else Secret(password)
    return trusted_certificates(
        TlsOptions(truststore_type=kind, truststore_location=path, truststore_password=secret, **others)
    )


def identity(location: Path | None = None, kind: str = "PKCS12", password: str | None = "pw", **others: Any) -> Any:
    path = None if location is None else str(location)
    secret = None if password is None or kind == "PEM" else Secret(password)
    options = TlsOptions(keystore_type=kind, keystore_location=path, keystore_password=secret, **others)
    return client_identity(options, NOW)


def inline(key: str, chain: str, **others: Any) -> Any:
    return identity(kind="PEM", keystore_key=Secret(key), keystore_certificate_chain=Secret(chain), **others)


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def der(*certificates: x509.Certificate) -> bytes:
    return b"".join(each.public_bytes(serialization.Encoding.DER) for each in certificates)


def cause(*parts: str) -> str:
    """Return the pattern of an error with these parts in this order."""
    return "(?s:.*)".join(map(re.escape, parts))


# -- certificates to trust -----------------------------------------------------------------------------------------


def test_without_a_trust_store_the_system_decides() -> None:
    assert trust() is None
    assert identity() is None


def test_all_certificates_of_a_pem_file_are_trusted(authority: Authority, tmp_path: Path) -> None:
    other = Authority.create("other")
    file = written(tmp_path / "ca.pem", f"# die Behörde\n{ca_text(authority)}and another one:\n{ca_text(other)}")
    assert trust(file, "PEM") == der(authority.certificate, other.certificate)


def test_pem_may_stand_in_the_option_or_behind_a_reference(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = der(authority.certificate)
    file = written(tmp_path / "ca.pem", ca_text(authority))
    monkeypatch.setenv("CA", ca_text(authority))
    for text in (ca_text(authority), ca_text(authority).replace("\n", " "), f"file:{file}", "env:CA"):
        assert trust(kind="PEM", truststore_certificates=Secret(text)) == expected


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
@pytest.mark.parametrize("password", ["pw", None])
def test_certificates_in_pkcs12_are_trusted(
    kind: str, password: str | None, authority: Authority, tmp_path: Path
) -> None:
    file = written(tmp_path / "trust.jks", unmarked_truststore(authority, password))
    assert trust(file, kind, password) == der(authority.certificate)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_stores_of_keytool_are_read_or_refused_with_a_command_that_works(
    kind: str, authority: Authority, tmp_path: Path
) -> None:
    ca, store = written(tmp_path / "ca.pem", ca_text(authority)), tmp_path / "my trust.jks"
    keytool("-importcert", "-noprompt", "-alias", "ca", "-file", ca, "-keystore", store, "-storetype", kind)
    if kind == "JKS":
        with pytest.raises(ConfigError, match=cause(str(store), "is a JKS store", "Convert it: keytool ")) as caught:
            trust(store, password=PASSWORD)
        command = str(caught.value).partition("Convert it: ")[2].partition(". Then set ")[0]
        assert PASSWORD not in str(caught.value)
        passwords = f" -srcstorepass {PASSWORD} -deststorepass {PASSWORD}"
        subprocess.run(command + passwords, shell=True, check=True, capture_output=True)
        assert str(caught.value).endswith(f"Then set kafka.ssl.truststore.location={tmp_path / 'my trust.p12'}")
        store = tmp_path / "my trust.p12"
    assert trust(store, password=PASSWORD) == der(authority.certificate)


PASSWORD = "changeit"


def keytool(*arguments: str | Path) -> None:
    short = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC")
    subprocess.run(["keytool", *short, *map(str, arguments), "-storepass", PASSWORD], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("content", "kind", "why"),
    [
        (b"", "PEM", ("the file is empty",)),
        (b"hello", "PEM", ("the format is unknown",)),
        (b"hello", "JKS", ("the format is unknown",)),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", "PEM", ("damaged certificate",)),
        (b"-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----", "PEM", ("is not valid base64",)),
        (b"-----BEGIN X-----\nAAAA\n-----END X-----", "PEM", ("there is no certificate in it",)),
        (b"-----BEGIN X-----", "PKCS12", ("the file is PEM, not PKCS12", "Set kafka.ssl.truststore.type=PEM")),
        (b"0\x82\0\1x", "PEM", ("looks like PKCS12", "Set kafka.ssl.truststore.type=PKCS12")),
        (b"0\x82\0\1x", "JKS", ("wrong password, or a damaged file", "Check kafka.ssl.truststore.password")),
        (b"\xce\xce\xce\xce", "PEM", ("is a JKS store", "keytool -importkeystore")),
    ],
)
def test_a_file_of_another_format_is_refused(content: bytes, kind: str, why: tuple[str, ...], tmp_path: Path) -> None:
    file = written(tmp_path / "store", content)
    start = f"cannot use the trusted certificates of option kafka.ssl.truststore.location on host {HOST}, file {file}: "
    with pytest.raises(ConfigError, match=cause(start, *why)):
        trust(file, kind, "secret")


def test_a_certificate_in_der_is_refused_with_a_command_that_converts_it(authority: Authority, tmp_path: Path) -> None:
    file = written(tmp_path / "ca.der", der(authority.certificate))
    with pytest.raises(ConfigError, match=cause("one certificate in DER", "openssl x509 -inform der", "type=PEM")):
        trust(file, password="pw")


def test_a_missing_file_is_named_with_its_option_and_the_host(tmp_path: Path) -> None:
    where = f"kafka.ssl.truststore.location on host {HOST}, file {tmp_path}/none: No such file or directory. "
    with pytest.raises(ConfigError, match=cause(where, "on the driver and on each executor")):
        trust(tmp_path / "none")


@pytest.mark.parametrize(("password", "why"), [("wrong", "wrong password"), (None, "it has a password")])
def test_a_wrong_password_is_not_shown(password: str | None, why: str, authority: Authority, tmp_path: Path) -> None:
    file = written(tmp_path / "trust.p12", unmarked_truststore(authority, "right"))
    with pytest.raises(ConfigError, match=cause(why, "Check kafka.ssl.truststore.password")) as caught:
        trust(file, "PKCS12", password)
    assert "right" not in str(caught.value)
    assert "wrong." not in str(caught.value)


def test_a_reference_that_leads_nowhere_is_named() -> None:
    with pytest.raises(ConfigError, match=r"option kafka\.ssl\.truststore\.certificates: .*'NOTHING' is not set"):
        trust(kind="PEM", truststore_certificates=Secret("env:NOTHING"))


# -- the client's own certificate ----------------------------------------------------------------------------------


def test_a_key_and_its_chain_come_from_pkcs12(tmp_path: Path) -> None:
    root = Authority.create("root")
    issued = Authority.create("intermediate", issued_by=root).issue()
    file = written(tmp_path / "key.p12", issued.pkcs12("pw"))
    assert identity(file).pem.decode() == key_text(issued) + chain_text(issued)
    assert repr(identity(file)) == f"KeyAndCertificate(option kafka.ssl.keystore.location on host {HOST}, file {file})"


def test_a_key_and_its_chain_come_from_a_pem_file_in_any_order(issued: Identity, tmp_path: Path) -> None:
    for content in (key_text(issued) + chain_text(issued), chain_text(issued) + key_text(issued)):
        file = written(tmp_path / "key.pem", content)
        assert identity(file, "PEM").pem.decode() == key_text(issued) + chain_text(issued)


def test_an_encrypted_key_needs_its_password(issued: Identity, tmp_path: Path) -> None:
    file = written(tmp_path / "key.pem", key_text(issued, "secret") + chain_text(issued))
    found = identity(file, "PEM", key_password=Secret("secret"))
    assert found.pem.decode() == key_text(issued) + chain_text(issued)
    with pytest.raises(ConfigError, match=cause("it is encrypted, and no password is set. Set kafka.ssl.key.password")):
        identity(file, "PEM")
    with pytest.raises(ConfigError, match=cause("wrong password, or a damaged key. Check kafka.ssl.key.password")):
        identity(file, "PEM", key_password=Secret("other"))


def test_a_password_that_the_key_does_not_need_is_not_used(issued: Identity) -> None:
    assert inline(key_text(issued), chain_text(issued), key_password=Secret("x")) is not None


def test_a_key_in_openssls_old_format_is_read(issued: Identity) -> None:
    old = issued.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.BestAvailableEncryption(b"secret"),
    ).decode()
    assert "Proc-Type: 4,ENCRYPTED" in old
    assert inline(old, chain_text(issued), key_password=Secret("secret")) is not None


def test_a_key_in_the_options_may_stand_on_one_line(issued: Identity) -> None:
    key, chain = (text.replace("\n", " ") for text in (key_text(issued), chain_text(issued)))
    assert inline(key, chain).pem.decode() == key_text(issued) + chain_text(issued)


def test_a_key_without_its_parts_is_refused(issued: Identity, authority: Authority, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=cause("option kafka.ssl.keystore.key on host", "no private key in it")):
        inline(chain_text(issued), chain_text(issued))
    with pytest.raises(ConfigError, match=cause("keystore.certificate.chain on host", "no certificate in it")):
        inline(key_text(issued), key_text(issued))
    with pytest.raises(ConfigError, match="there is no private key in it"):
        identity(written(tmp_path / "trust.p12", unmarked_truststore(authority, "pw")))


def test_a_damaged_key_is_refused_and_not_shown(issued: Identity) -> None:
    lines = key_text(issued).splitlines()
    lines[1] = "AAAA" + lines[1][4:]
    with pytest.raises(ConfigError, match="the key is damaged or of an unknown kind") as caught:
        inline("\n".join(lines), chain_text(issued))
    assert lines[2] not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_certificate_of_another_key_is_refused(issued: Identity, authority: Authority) -> None:
    with pytest.raises(ConfigError, match=cause("the first certificate (CN=localhost) does not belong to the private")):
        inline(key_text(issued), chain_text(authority.issue()))


def test_a_certificate_out_of_its_time_is_refused(authority: Authority, tmp_path: Path) -> None:
    old = authority.issue(since=NOW - 3 * DAY, until=NOW - DAY, name="old")
    file = written(tmp_path / "old.p12", old.pkcs12("pw"))
    with pytest.raises(ConfigError, match=cause(str(file), f"CN=old has expired on {NOW - DAY:%Y-%m-%d %H:%M} UTC")):
        identity(file)
    new = authority.issue(since=NOW + DAY, until=NOW + 2 * DAY)
    with pytest.raises(ConfigError, match=cause("is not valid before", "Check the clock of this machine")):
        inline(key_text(new), chain_text(new))


def test_a_key_with_a_password_of_its_own_is_refused_in_pkcs12(issued: Identity, tmp_path: Path) -> None:
    file = written(tmp_path / "key.p12", issued.pkcs12("pw"))
    assert identity(file, key_password=Secret("pw")) is not None
    with pytest.raises(ConfigError, match=r"kafka\.ssl\.key\.password differs from kafka\.ssl\.keystore\.password"):
        identity(file, key_password=Secret("other"))


# -- damaged content ------------------------------------------------------------------------------------------------


@given(content=st.binary(max_size=200), kind=st.sampled_from(["PEM", "PKCS12", "JKS"]), prefix=st.sampled_from(_STARTS))
def test_no_content_of_a_file_raises_anything_but_a_config_error(
    content: bytes, kind: str, prefix: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = written(tmp_path_factory.getbasetemp() / "fuzzed", prefix + content)
    with pytest.raises(ConfigError, match=r"option kafka\.ssl\.truststore\.location on host"):
        trust(file, kind, "pw")


def test_a_certificate_with_a_key_of_an_unknown_curve_is_refused(issued: Identity) -> None:
    curve = issued.certificate.public_bytes(serialization.Encoding.DER).replace(
        bytes.fromhex("06082a8648ce3d030107"), bytes.fromhex("0608008648ce3d030107")
    )
    damaged = x509.load_der_x509_certificate(curve).public_bytes(serialization.Encoding.PEM).decode()
    with pytest.raises(ConfigError, match=cause("the key in the first certificate is damaged or of an unknown kind")):
        inline(key_text(issued), damaged)


@given(data=st.data())
def test_a_damaged_pem_file_raises_nothing_but_a_config_error(
    data: st.DataObject, issued: Identity, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray((key_text(issued) + chain_text(issued)).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    file = written(tmp_path_factory.getbasetemp() / "damaged", bytes(content))
    with contextlib.suppress(ConfigError):
        assert identity(file, "PEM").pem


@pytest.mark.parametrize(
    ("attributes", "spelled"),
    [
        ({"COMMON_NAME": "client"}, "CN=client"),
        (
            {"COUNTRY_NAME": "DE", "ORGANIZATION_NAME": "Acme, Inc.", "COMMON_NAME": "x+y z"},
            "CN=x\\+y z,O=Acme\\, Inc.,C=DE",
        ),
        (
            {"DOMAIN_COMPONENT": "org", "STATE_OR_PROVINCE_NAME": '"a" <b>;', "LOCALITY_NAME": "#1"}
            | {"STREET_ADDRESS": " s ", "ORGANIZATIONAL_UNIT_NAME": "é\\", "USER_ID": "7=x"},
            r"UID=7\=x,OU=é\\,STREET=\ s\ ,L=\#1,ST=\"a\" \<b\>\;,DC=org",
        ),
    ],
)
def test_a_subject_is_spelled_as_in_java(attributes: dict[str, str], spelled: str) -> None:
    """The expectations are what Java's `X500Principal.getName()` returns for these subjects."""
    rows = [x509.NameAttribute(getattr(NameOID, name), value) for name, value in attributes.items()]
    assert java_name(x509.Name(rows)) == spelled


def test_a_subject_with_an_attribute_that_java_writes_in_hexadecimal_is_left_out() -> None:
    email = x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@example.org")
    assert java_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "client"), email])) == ""


# -- PEM, as users and Kafka's own options spell it --------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no block at all",
        "-----BEGIN CERTIFICATE-----\nYQ==",
        "-----BEGIN CERTIFICATE-----\nYQ==\n-----END PRIVATE KEY-----",
        "-----begin certificate-----\nYQ==\n-----end certificate-----",
    ],
    ids=["empty", "other text", "no end", "another end", "lower case"],
)
def test_a_text_without_a_whole_block_has_none(text: str) -> None:
    assert blocks_of(text) == []


def test_blocks_come_in_their_order_without_the_text_around_them() -> None:
    text = (
        "subject=CN = a\n-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\nissuer=\n"
        "-----BEGIN RSA PRIVATE KEY----- Yg== -----END RSA PRIVATE KEY----- end"
    )
    assert [(block.label, block.decoded()) for block in blocks_of(text)] == [
        ("CERTIFICATE", b"a"),
        ("RSA PRIVATE KEY", b"b"),
    ]


def test_the_label_says_what_a_block_holds() -> None:
    certificates, keys = ["CERTIFICATE", "X509 CERTIFICATE"], ["PRIVATE KEY", "EC PRIVATE KEY", "ENCRYPTED PRIVATE KEY"]
    others = ["CERTIFICATE REQUEST", "TRUSTED CERTIFICATE", "PUBLIC KEY"]
    blocks = [Block(label, "") for label in (*certificates, *keys, *others)]
    assert [block.label for block in blocks if block.is_certificate] == certificates
    assert [block.label for block in blocks if block.is_private_key] == keys


@pytest.mark.parametrize("body", ["YQ", "Y!Q=", "Y", "YQ==YQ=="])
def test_invalid_base64_is_an_error_that_names_the_block_and_shows_nothing_of_it(body: str) -> None:
    with pytest.raises(ValueError, match=r"^the block PRIVATE KEY is not valid base64$"):
        Block("PRIVATE KEY", body).decoded()


def test_the_headers_of_an_encrypted_key_keep_their_lines() -> None:
    lines = ["Proc-Type: 4,ENCRYPTED", "DEK-Info: AES-256-CBC,00FF", "", "YWJj"]
    (block,) = blocks_of("\r\n".join(["-----BEGIN RSA PRIVATE KEY-----", *lines, "-----END RSA PRIVATE KEY-----"]))
    begin, *inside, end, rest = block.canonical().decode().split("\n")
    assert inside == lines, "the empty line ends the headers"
    assert (begin, end, rest) == ("-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----", "")


@settings(max_examples=30)
@given(data=st.binary(max_size=200), gap=st.sampled_from(["\n", " ", "\r\n", "\t"]), width=st.integers(1, 80))
def test_any_bytes_survive_any_spelling_and_the_canonical_one(data: bytes, gap: str, width: int) -> None:
    encoded = base64.b64encode(data).decode()
    pieces = [encoded[at : at + width] for at in range(0, len(encoded), width)]
    (block,) = blocks_of(gap.join(["-----BEGIN CERTIFICATE-----", *pieces, "-----END CERTIFICATE-----"]))
    (canonical,) = blocks_of(block.canonical().decode())
    assert (block.decoded(), canonical.decoded()) == (data, data)
    assert max(map(len, block.canonical().splitlines())) <= 64


# -- a path for a key in memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_linux", [True, False])
def test_a_key_in_memory_has_a_path_that_ends_with_its_use(on_linux: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not on_linux:
        monkeypatch.delattr(os, "memfd_create")
    large = b"\0\r\n\xff" * 25_000
    with contextlib.suppress(ValueError), readable_path(large) as path, readable_path(b"small") as other:
        assert [Path(path).read_bytes() for _ in range(2)] == [large, large], "from the beginning each time"
        assert Path(other).read_bytes() == b"small"
        if on_linux:
            assert os.readlink(path).startswith("/memfd:"), "never on a disk"
        else:
            assert os.stat(path).st_mode & 0o777 == 0o600
            assert os.stat(Path(path).parent).st_mode & 0o777 == 0o700
        raise ValueError("not a key")
    assert not Path(path).exists()
