from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from streamgroup.errors import ConfigError
from streamgroup.options.parse import parse_sink, parse_source
from streamgroup.options.secrets import Secret
from streamgroup.options.tls import OPENSSL_NAMES, TLS13, TlsOptions, openssl_name
from streamgroup.options.types import SourceOptions

STREAM = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "kafka.security.protocol": "ssl"}


def stream(**ssl: str) -> SourceOptions:
    """Parse the options of a stream; `truststore__type` is `kafka.ssl.truststore.type`."""
    return parse_source(
        {**STREAM, **{f"kafka.ssl.{name.replace('__', '.')}": text for name, text in ssl.items()}}, streaming=True
    )


def refused(**ssl: str) -> str:
    with pytest.raises(ConfigError) as caught:
        stream(**ssl)
    return str(caught.value)


# -- versions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "versions"),
    [
        (TlsOptions(), ("TLSv1.2", "TLSv1.3")),
        (TlsOptions(protocol="TLSv1.2"), ("TLSv1.2",)),
        (TlsOptions(enabled_protocols=("TLSv1.3",)), ("TLSv1.3",)),
        (TlsOptions(enabled_protocols=("TLSv1.3",), protocol="TLSv1.2"), ()),
        (TlsOptions(cipher_suites=("TLS_AES_128_GCM_SHA256",)), ("TLSv1.3",)),
        (TlsOptions(cipher_suites=("ECDHE-RSA-AES128-SHA",)), ("TLSv1.2",)),
        (TlsOptions(cipher_suites=("ECDHE-RSA-AES128-SHA", "TLS_AES_128_GCM_SHA256")), ("TLSv1.2", "TLSv1.3")),
    ],
)
def test_the_versions_are_those_that_all_options_allow(options: TlsOptions, versions: tuple[str, ...]) -> None:
    assert options.versions == versions


def test_options_that_leave_no_version_are_refused() -> None:
    assert "no version of TLS is left" in refused(enabled__protocols="TLSv1.2", cipher__suites="TLS_AES_128_GCM_SHA256")
    assert "no version of TLS is left" in refused(enabled__protocols="TLSv1.3", protocol="TLSv1.2")


@pytest.mark.parametrize("version", ["TLSv1", "TLSv1.1", "SSLv3", "SSL"])
def test_an_insecure_version_is_refused(version: str) -> None:
    assert "the version is insecure. Use TLSv1.2 or TLSv1.3" in refused(enabled__protocols=f"TLSv1.2,{version}")
    assert "the version is insecure" in refused(protocol=version)


def test_java_classes_are_refused() -> None:
    said = "cannot use option kafka.ssl.engine.factory.class: the engine is a Java class"
    assert said in refused(engine__factory__class="com.example.Engine")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("enabled__protocols", ",", "expected one or both of TLSv1.2, TLSv1.3"),
        ("cipher__suites", " ", "expected at least one cipher suite"),
        ("endpoint__identification__algorithm", "none", "expected https, or an empty value"),
        ("truststore__type", "BCFKS", "expected jks or pkcs12 or pem"),
    ],
)
def test_an_invalid_value_is_refused(name: str, text: str, expected: str) -> None:
    assert f"for option kafka.ssl.{name.replace('__', '.')}: {expected}" in refused(**{name: text})


# -- options that must fit together --------------------------------------------------------------------------------

KEY = {"keystore__type": "PEM", "keystore__key": "env:KEY", "keystore__certificate__chain": "env:CHAIN"}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"truststore__certificates": "x"}, "kafka.ssl.truststore.certificates: it holds PEM. Set kafka.ssl.trust"),
        (
            {"truststore__type": "PEM", "truststore__certificates": "x", "truststore__location": "/t"},
            "kafka.ssl.truststore.certificates and kafka.ssl.truststore.location exclude each other",
        ),
        (
            {"truststore__type": "PEM", "truststore__location": "/t", "truststore__password": "x"},
            "kafka.ssl.truststore.password: PEM has no password",
        ),
        ({"truststore__password": "x"}, "kafka.ssl.truststore.password requires kafka.ssl.truststore.location"),
        ({**KEY, "keystore__type": "PKCS12"}, "kafka.ssl.keystore.key: it holds PEM. Set kafka.ssl.keystore.type=PEM"),
        ({**KEY, "keystore__location": "/k"}, "kafka.ssl.keystore.key and kafka.ssl.keystore.location exclude"),
        ({**KEY, "keystore__password": "x"}, "in PEM only the key has a password. Set kafka.ssl.key.password"),
        ({"keystore__type": "PEM", "keystore__key": "x"}, "keystore.key requires kafka.ssl.keystore.certificate.chain"),
        (
            {"keystore__type": "PEM", "keystore__certificate__chain": "x"},
            "kafka.ssl.keystore.certificate.chain requires kafka.ssl.keystore.key",
        ),
        ({"keystore__location": "/k"}, "kafka.ssl.keystore.location requires kafka.ssl.keystore.password"),
        ({"keystore__password": "x"}, "kafka.ssl.keystore.password requires kafka.ssl.keystore.location"),
    ],
)
def test_stores_that_contradict_themselves_are_refused(given: dict[str, str], problem: str) -> None:
    text = refused(**given)
    assert problem in text
    assert "problems with the options" not in text


def test_a_write_has_the_same_options_and_checks() -> None:
    given = {"kafka.bootstrap.servers": "b:1", "topic": "t", "kafka.security.protocol": "SSL"}
    assert parse_sink({**given, "kafka.ssl.protocol": "TLSv1.2"}).client.tls == TlsOptions(protocol="TLSv1.2")
    assert parse_sink({**given, "kafka.ssl.protocol": "TLS"}).client.tls == TlsOptions()
    with pytest.raises(ConfigError, match=r"requires kafka\.ssl\.keystore\.location"):
        parse_sink({**given, "kafka.ssl.keystore.password": "x"})


# -- the log -------------------------------------------------------------------------------------------------------


def test_the_log_warns_where_host_names_are_not_verified_and_names_what_is_ignored() -> None:
    (note,) = stream(endpoint__identification__algorithm="").notes
    assert note.startswith("host names of brokers are not verified, because kafka.ssl.endpoint.identification.algor")
    assert stream().notes == ()
    assert stream(key__password="x").notes == ("ignored option kafka.ssl.key.password: no key store is set",)


def test_without_tls_its_options_are_named_as_ignored() -> None:
    given = {**STREAM, "kafka.ssl.truststore.location": "/t", "kafka.ssl.protocol": "TLSv1.3"}
    del given["kafka.security.protocol"]
    options = parse_source(given, streaming=True)
    assert options.client.tls is None
    assert options.notes == (
        "ignored options kafka.ssl.protocol, kafka.ssl.truststore.location: kafka.security.protocol is PLAINTEXT, "
        "which has no TLS",
    )


# -- secrets -------------------------------------------------------------------------------------------------------


def test_no_representation_shows_a_secret_and_references_travel_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "canary")
    options = stream(**KEY, key__password="canary", truststore__location="/t", truststore__password="canary")
    assert "canary" not in repr(options)
    referenced = stream(**KEY)
    assert b"canary" not in pickle.dumps(referenced)
    assert pickle.loads(pickle.dumps(referenced)).client.tls.keystore_key.reveal("x") == "canary"


def test_the_file_of_a_reference_is_known() -> None:
    assert Secret("file:/etc/key.pem").file == "/etc/key.pem"
    assert Secret("env:KEY").file is None
    assert Secret("hunter2").file is None


VECTORS = Path(__file__).parents[2] / "vectors" / "options" / "cipher-suites-openssl-3.0.tsv"
"""The list of `openssl ciphers -stdname 'ALL:@SECLEVEL=0'`: the name of IANA's registry, and OpenSSL's own."""


def test_the_names_of_cipher_suites_are_those_of_openssl() -> None:
    listed = dict(line.split("\t") for line in VECTORS.read_text().splitlines())
    assert len(OPENSSL_NAMES) == 30
    assert {name: listed.get(name) for name in OPENSSL_NAMES} == OPENSSL_NAMES
    assert all(OPENSSL_NAMES[name] == name for name in TLS13)


@pytest.mark.parametrize("suite", ["TLS_RSA_WITH_RC4_128_SHA", "ECDHE-RSA-AES256-GCM-SHA384", "x", "TLS_ECDHE_RSA"])
def test_an_unknown_cipher_suite_is_refused_with_similar_ones(suite: str) -> None:
    with pytest.raises(ValueError, match=f"unknown or insecure cipher suite '{suite}'") as caught:
        openssl_name(suite)
    near = str(caught.value).partition("Similar ones are ")[2].split(", ")
    assert len(near) == 3
    assert set(near) <= OPENSSL_NAMES.keys()


def test_a_suite_of_java_has_the_name_of_openssl() -> None:
    assert openssl_name("TLS_AES_256_GCM_SHA384") == "TLS_AES_256_GCM_SHA384"
    assert openssl_name("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256") == "ECDHE-ECDSA-CHACHA20-POLY1305"
    assert openssl_name("TLS_RSA_WITH_AES_256_CBC_SHA256") == "AES256-SHA256"


@pytest.mark.parametrize("mark", ["RC4", "3DES", "MD5", "EXPORT", "NULL", "anon"])
def test_no_suite_without_encryption_or_authentication_or_with_a_broken_cipher_is_accepted(mark: str) -> None:
    assert [name for name in OPENSSL_NAMES if mark.upper() in name.upper()] == []
    with pytest.raises(ValueError, match="unknown or insecure cipher suite"):
        openssl_name(f"TLS_RSA_WITH_{mark}_SHA")


def test_a_suite_that_no_rfc_defines_is_refused_although_its_parts_exist() -> None:
    with pytest.raises(ValueError, match=r"Similar ones are .*TLS_RSA_WITH_AES_256_GCM_SHA384"):
        openssl_name("TLS_RSA_WITH_AES_256_CBC_SHA384")
