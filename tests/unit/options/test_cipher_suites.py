"""Java's names of cipher suites, as users write them in kafka.ssl.cipher.suites, become OpenSSL's names."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamgroup.options.cipher_suites import OPENSSL_NAMES, TLS13, openssl_name

VECTORS = Path(__file__).parents[2] / "vectors" / "options" / "cipher-suites-openssl-3.0.tsv"
"""The list of `openssl ciphers -stdname 'ALL:@SECLEVEL=0'`: the name of IANA's registry, and OpenSSL's own."""


def test_the_names_of_cipher_suites_are_those_of_openssl() -> None:
    listed = dict(line.split("\t") for line in VECTORS.read_text().splitlines())
    assert len(OPENSSL_NAMES) == 30
    assert {name: listed.get(name) for name in OPENSSL_NAMES} == OPENSSL_NAMES
    assert all(OPENSSL_NAMES[name] == name for name in TLS13)


def test_cipher_suites_may_have_any_case() -> None:
    assert openssl_name("tls_dhe_rsa_with_aes_128_cbc_sha") == "DHE-RSA-AES128-SHA"


@pytest.mark.parametrize("suite", ["TLS_RSA_WITH_RC4_128_SHA", "ECDHE-RSA-AES256-GCM-SHA384", "x", "TLS_ECDHE_RSA"])
def test_an_unknown_cipher_suite_is_refused_with_similar_ones(suite: str) -> None:
    with pytest.raises(ValueError, match=f"unknown or insecure cipher suite '{suite}'") as caught:
        openssl_name(suite)
    near = str(caught.value).partition("Similar ones are ")[2].split(", ")
    assert len(near) == 3
    assert set(near) <= OPENSSL_NAMES.keys()


@pytest.mark.parametrize(
    ("suite", "name"),
    [
        ("TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_256_CBC_SHA256", "AES256-SHA256"),
    ],
)
def test_a_suite_of_java_has_the_name_of_openssl(suite: str, name: str) -> None:
    assert openssl_name(suite) == name


@pytest.mark.parametrize("mark", ["RC4", "3DES", "MD5", "EXPORT", "NULL", "anon"])
def test_no_suite_without_encryption_or_authentication_or_with_a_broken_cipher_is_accepted(mark: str) -> None:
    assert [name for name in OPENSSL_NAMES if mark.upper() in name.upper()] == []
    with pytest.raises(ValueError, match="unknown or insecure cipher suite"):
        openssl_name(f"TLS_RSA_WITH_{mark}_SHA")


def test_a_suite_that_no_rfc_defines_is_refused_although_its_parts_exist() -> None:
    with pytest.raises(ValueError, match=r"Similar ones are .*TLS_RSA_WITH_AES_256_GCM_SHA384"):
        openssl_name("TLS_RSA_WITH_AES_256_CBC_SHA384")
