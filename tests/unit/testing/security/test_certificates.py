"""Certificates in a handshake of Python's ssl: the good ones pass, each bad one fails for its reason."""

from __future__ import annotations

import os
import ssl
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key, pkcs12

from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.testing.java import java_executable
from streamgroup.testing.security.certificates import Authority, Identity, write_jks, write_pem, write_pkcs12

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


def test_an_encrypted_key_opens_only_with_its_password(tmp_path: Path) -> None:
    text = write_pem(tmp_path / "key.pem", GOOD, "secret").read_bytes()
    assert text.startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
    key = load_pem_private_key(text, b"secret")
    assert key.public_key() == GOOD.key.public_key()
    # One wrong password in 256 leaves a padding that looks right, and the text of a key that cannot be read.
    with pytest.raises(ValueError, match=r"Incorrect password|Could not deserialize key data"):
        load_pem_private_key(text, b"wrong")


def test_a_pkcs12_store_has_the_key_and_both_certificates(tmp_path: Path) -> None:
    file = write_pkcs12(tmp_path / "store.p12", GOOD, "secret")
    key, certificate, others = pkcs12.load_key_and_certificates(file.read_bytes(), b"secret")
    assert key is not None
    assert key.public_key() == GOOD.key.public_key()
    assert (certificate, others) == (GOOD.certificate, [AUTHORITY.certificate])
    with pytest.raises(ValueError, match="password"):
        pkcs12.load_key_and_certificates(file.read_bytes(), b"wrong")


@pytest.mark.slow
def test_java_reads_the_stores(tmp_path: Path) -> None:
    assert java_executable()
    jks = write_jks(tmp_path / "key.jks", GOOD, "secret")
    assert jks.read_bytes()[:4] == b"\xfe\xed\xfe\xed", "a real JKS, and not PKCS #12 under its name"
    assert "PrivateKeyEntry" in keytool_list(jks, "secret")
    trust = write_jks(tmp_path / "trust.jks", AUTHORITY, "secret")
    assert trust.read_bytes()[:4] == b"\xfe\xed\xfe\xed"
    assert "trustedCertEntry" in keytool_list(trust, "secret")
    store = tmp_path / "trust.p12"
    store.write_bytes(AUTHORITY.truststore("secret"))
    assert "trustedCertEntry" in keytool_list(store, "secret"), "Java ignores a certificate without its mark of trust"
    assert {file.stat().st_mode & 0o777 for file in (jks, trust)} == {0o600}


def test_a_pem_without_a_password_has_an_open_key_and_the_chain_up_to_the_authority(tmp_path: Path) -> None:
    text = write_pem(tmp_path / "key.pem", GOOD).read_bytes()
    assert load_pem_private_key(text, None).public_key() == GOOD.key.public_key()
    assert text.count(b"-----BEGIN CERTIFICATE-----") == 2
    assert text.endswith(AUTHORITY.certificate_pem())


def test_a_store_is_for_its_owner_only_even_where_an_older_file_was_open_to_all(tmp_path: Path) -> None:
    for name in ("key.pem", "store.p12"):
        (tmp_path / name).write_bytes(b"older")
        (tmp_path / name).chmod(0o666)
    written = [write_pem(tmp_path / "key.pem", GOOD), write_pkcs12(tmp_path / "store.p12", GOOD, "secret")]
    assert [file.stat().st_mode & 0o777 for file in written] == [0o600, 0o600]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["key.pem", "store.p12"]


# -- keytool -----------------------------------------------------------------------------------------------------------

JAVA = "#!/bin/sh\necho 'openjdk version \"21.0.1\"' >&2\n"
KEYTOOL = """#!/bin/sh
home=$(dirname "$0")
printf '%s\\n' "$@" > "$home/arguments"
printf '%s' "$STREAMGROUP_STORE_PASSWORD" > "$home/password"
while [ $# -gt 0 ]; do
    case "$1" in -keystore|-destkeystore) printf 'the store' > "$2" ;; esac
    shift
done
"""


def install(home: Path, monkeypatch: pytest.MonkeyPatch, keytool: str | None) -> Path:
    """Make `home` the only Java, with this script as its keytool. Return the directory of its programs."""
    programs = home / "bin"
    programs.mkdir(parents=True)
    for name, script in (("java", JAVA), ("keytool", keytool)):
        if script is not None:
            (programs / name).write_text(script)
            (programs / name).chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    return programs


@pytest.mark.parametrize(
    ("of", "command"), [(GOOD, "-importkeystore"), (AUTHORITY, "-importcert")], ids=["key", "trust"]
)
def test_keytool_makes_a_jks_and_gets_the_password_by_its_environment_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: Identity | Authority, command: str
) -> None:
    programs = install(tmp_path / "java", monkeypatch, KEYTOOL)
    store = tmp_path / "stores" / "made.jks"
    store.parent.mkdir()
    assert write_jks(store, of, "s3cret").read_bytes() == b"the store"
    arguments = (programs / "arguments").read_text().splitlines()
    assert (arguments[0], "JKS" in arguments, "-noprompt" in arguments) == (command, True, True)
    assert not [each for each in arguments if "s3cret" in each], "other users see the arguments of a process"
    assert (programs / "password").read_text() == "s3cret"
    assert os.listdir(store.parent) == ["made.jks"], "the files that keytool read are removed"
    assert store.stat().st_mode & 0o777 == 0o600


def test_a_java_without_keytool_is_an_error_that_names_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "java", monkeypatch, None)
    with pytest.raises(ConfigError, match=r"cannot write .*/a\.jks: keytool is not installed next to .* whole Java"):
        write_jks(tmp_path / "a.jks", GOOD, "secret")
    assert not (tmp_path / "a.jks").exists()


def test_the_words_of_a_keytool_that_fails_are_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "java", monkeypatch, "#!/bin/sh\necho 'keytool error: too short'\nexit 1\n")
    with pytest.raises(StreamGroupError, match=r"cannot write .*/a\.jks: keytool failed: keytool error: too short"):
        write_jks(tmp_path / "a.jks", GOOD, "secret")
    assert os.listdir(tmp_path) == ["java"], "neither a store nor the files that keytool read are left"


SHORT = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC")
"""For a Java that ends soon."""


def keytool_list(store: Path, password: str) -> str:
    """The output of `keytool -list` about a store."""
    ran = subprocess.run(
        [
            java_executable().resolve().parent / "keytool",
            *SHORT,
            "-list",
            "-keystore",
            store,
            "-storepass:env",
            "PASSWORD",
        ],
        env={**os.environ, "PASSWORD": password},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
