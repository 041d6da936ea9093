"""The settings of clients: their names in Spark, Java and librdkafka, and what hides their passwords."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamgroup.errors import ConfigError
from streamgroup.testing.releases import NEWEST, release_of
from streamgroup.testing.security.client import ClientSettings, client_settings
from streamgroup.testing.security.kdc import Kdc
from streamgroup.testing.security.material import Passwords, SecurityFiles
from streamgroup.testing.security.settings import SaslMechanism, settings_of
from streamgroup.testing.security.tokens import TokenServerAddress

FILES = SecurityFiles(Path("/s"))
PASSWORDS = Passwords("store-password", {"admin": "admin-password", "client": "client-password"})


def client(security: str, given: dict[str, Any] | None = None, **asked: Any) -> ClientSettings:
    settings = settings_of(release_of(NEWEST), security, **(given or {}))
    return client_settings(settings, "127.0.0.1:1", FILES, PASSWORDS, TokenServerAddress(5000), **asked)


def test_the_options_of_a_client_have_sparks_names() -> None:
    assert client("SASL_SSL", {"mechanisms": ["SCRAM-SHA-512"]}).options == {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/s/ca.pem",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="client" password="client-password";',
    }


def test_librdkafka_has_names_of_its_own() -> None:
    assert client("SSL", {"mutual_tls": True}).librdkafka == {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SSL",
        "ssl.ca.location": "/s/ca.pem",
        "ssl.certificate.location": "/s/user-client.pem",
        "ssl.key.location": "/s/user-client.pem",
    }


def test_a_client_gets_tokens_from_the_token_server() -> None:
    found = client("SASL_PLAINTEXT", {"mechanisms": ["PLAIN", "OAUTHBEARER"]}, mechanism="OAUTHBEARER", user="admin")
    assert found.properties["sasl.oauthbearer.token.endpoint.url"] == "http://127.0.0.1:5000/token"
    assert 'clientId="admin" clientSecret="admin-password"' in found.properties["sasl.jaas.config"]
    assert found.librdkafka["sasl.oauthbearer.client.secret"] == "admin-password"
    assert found.jvm_flags == (TokenServerAddress(5000).jvm_flag,)


def test_old_tools_get_their_stores_as_pkcs12_in_a_file_without_an_address() -> None:
    text = client("SSL", {"mutual_tls": True}, stores="PKCS12").text()
    assert text.splitlines() == [
        "security.protocol=SSL",
        "ssl.truststore.type=PKCS12",
        "ssl.truststore.location=/s/truststore.p12",
        "ssl.truststore.password=store-password",
        "ssl.keystore.type=PKCS12",
        "ssl.keystore.location=/s/user-client.p12",
        "ssl.keystore.password=store-password",
        "ssl.key.password=store-password",
    ]


def test_another_password_takes_the_place_of_the_users() -> None:
    found = client("SASL_PLAINTEXT", password="wrong")
    assert (found.mechanism, found.librdkafka["sasl.password"]) == (SaslMechanism.PLAIN, "wrong")
    assert 'password="wrong"' in found.properties["sasl.jaas.config"]


def test_unknown_users_and_mechanisms_are_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="unknown user 'bob': this server has admin, client"):
        client("SASL_SSL", user="bob")
    with pytest.raises(ConfigError, match="unknown mechanism 'SCRAM-SHA-256': this server has PLAIN"):
        client("SASL_SSL", mechanism="SCRAM-SHA-256")


def test_no_repr_shows_a_password() -> None:
    shown = f"{client('SASL_SSL')!r} {PASSWORDS!r} {client('SASL_SSL')}"
    assert "-password" not in shown
    assert "client SASL_SSL PLAIN" in shown


def test_a_client_of_kerberos_has_a_keytab_and_the_krb5_conf_of_the_server() -> None:
    kdc = Kdc(Path("/s/kdc"), ["client"])
    found = client("SASL_PLAINTEXT", {"mechanisms": ["GSSAPI"]}, kdc=kdc)
    assert found.properties["sasl.kerberos.service.name"] == "kafka"
    assert found.properties["sasl.jaas.config"] == (
        'com.sun.security.auth.module.Krb5LoginModule required useKeyTab="true" storeKey="true" '
        'keyTab="/s/kdc/user-client.keytab" principal="client@STREAMGROUP.TEST";'
    )
    assert found.librdkafka["sasl.kerberos.keytab"] == "/s/kdc/user-client.keytab"
    assert found.jvm_flags == ("-Djava.security.krb5.conf=/s/kdc/krb5.conf",)
    assert found.environment == {"KRB5_CONFIG": "/s/kdc/krb5.conf"}
    with pytest.raises(ConfigError, match="invalid password with GSSAPI"):
        client("SASL_PLAINTEXT", {"mechanisms": ["GSSAPI"]}, kdc=kdc, password="wrong")
