"""The properties of secured brokers; tests/live/test_secured_servers.py starts them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamgroup.errors import ConfigError
from streamgroup.testing import kafka
from streamgroup.testing.node import NodePlan
from streamgroup.testing.releases import NEWEST, Listeners, release_of
from streamgroup.testing.security import kdc as module
from streamgroup.testing.security.kdc import Kdc
from streamgroup.testing.security.material import Passwords, SecurityFiles
from streamgroup.testing.security.server import broker_jvm_flags, broker_properties
from streamgroup.testing.security.settings import file_text, settings_of
from streamgroup.testing.security.tokens import TokenServerAddress
from streamgroup.testing.zookeeper_mode import ZooKeeperMode, places

FILES = SecurityFiles(Path("/s"))
PASSWORDS = Passwords("store-password", {"admin": "admin-password", "client": "client-password"})
TOKENS = TokenServerAddress(5000)


def properties(version: str, security: str, token_server: TokenServerAddress | None = None, **more: Any) -> Any:
    release = release_of(version)
    return broker_properties(settings_of(release, security, **more), release, FILES, PASSWORDS, token_server)


def test_brokers_have_their_key_in_pkcs12_which_all_versions_read() -> None:
    assert properties("0.9.0.1", "SSL") == {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": "/s/broker.p12",
        "ssl.keystore.password": "store-password",
        "ssl.key.password": "store-password",
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": "/s/truststore.p12",
        "ssl.truststore.password": "store-password",
    }


def test_each_mechanism_has_a_login_module_of_its_own_where_the_version_knows_that() -> None:
    values = properties(NEWEST, "SASL_PLAINTEXT", mechanisms=["PLAIN", "SCRAM-SHA-512"])
    assert values["sasl.enabled.mechanisms"] == "PLAIN,SCRAM-SHA-512"
    plain = values["listener.name.sasl_plaintext.plain.sasl.jaas.config"]
    assert plain == (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'user_admin="admin-password" user_client="client-password";'
    )
    scram = values["listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config"]
    assert scram == "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    assert not any(name.startswith("ssl.") for name in values)


def test_old_brokers_read_a_jaas_file_and_not_properties() -> None:
    assert properties("0.10.2.2", "SASL_PLAINTEXT") == {"sasl.enabled.mechanisms": "PLAIN"}
    release = release_of("0.10.2.2")
    flags = broker_jvm_flags(settings_of(release, "SASL_SSL"), release, FILES, None)
    assert flags == ("-Djava.security.auth.login.config=/s/jaas.conf", "-Dzookeeper.sasl.client=false")
    newest = release_of(NEWEST)
    assert broker_jvm_flags(settings_of(newest, "SASL_SSL"), newest, FILES, None) == ()


def test_brokers_check_tokens_by_the_key_of_the_token_server() -> None:
    values = properties("3.9.1", "SASL_SSL", TOKENS, mechanisms=["OAUTHBEARER"])
    assert values["sasl.oauthbearer.jwks.endpoint.url"] == "http://127.0.0.1:5000/jwks"
    assert values["sasl.oauthbearer.expected.issuer"] == "http://127.0.0.1:5000"
    assert values["sasl.oauthbearer.expected.audience"] == "kafka"
    handler = values["listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class"]
    assert handler == "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
    release = release_of("3.9.1")
    (flag,) = broker_jvm_flags(settings_of(release, "SASL_SSL", mechanisms=["OAUTHBEARER"]), release, FILES, TOKENS)
    allowed = "http://127.0.0.1:5000/token,http://127.0.0.1:5000/jwks"
    assert flag == f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={allowed}"


@pytest.mark.parametrize(
    ("version", "security", "name"),
    [
        ("0.10.2.2", "SSL", "ssl.client.auth"),
        (NEWEST, "SSL", "listener.name.ssl.ssl.client.auth"),
        (NEWEST, "SASL_SSL", "listener.name.sasl_ssl.ssl.client.auth"),
    ],
)
def test_brokers_ask_for_client_certificates(version: str, security: str, name: str) -> None:
    assert properties(version, security, mutual_tls=True)[name] == "required"


def test_acls_bind_all_but_the_super_user_and_the_brokers() -> None:
    values = properties("1.1.1", "SASL_SSL", acls=True)
    assert values["authorizer.class.name"] == "kafka.security.auth.SimpleAclAuthorizer"
    assert values["super.users"] == "User:ANONYMOUS;User:admin"
    assert values["allow.everyone.if.no.acl.found"] == "false"
    assert properties(NEWEST, "SSL", acls=True, mutual_tls=True)["super.users"] == "User:ANONYMOUS;User:CN=admin"


def test_secured_brokers_in_kraft_mode_meet_at_a_listener_without_security() -> None:
    controller, first, _ = kafka.plan_nodes([1, 2], 9, internal=[21, 22])
    values = kafka.properties(first, [controller, first], Path("/data"), {}, "SASL_SSL")
    assert values["listeners"] == "SASL_SSL://127.0.0.1:1,INTERNAL://127.0.0.1:21"
    assert values["advertised.listeners"] == values["listeners"]
    assert values["inter.broker.listener.name"] == "INTERNAL"
    protocols = values["listener.security.protocol.map"]
    assert protocols == "SASL_SSL:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
    assert first.plain_port == 21
    alone = kafka.KRaftMode(NEWEST, 2, "SSL").plan(20_000, [])
    assert [node.plain_port == node.port for node in alone[1:]] == [False, False]


def test_secured_brokers_in_zookeeper_mode_meet_at_a_listener_without_security() -> None:
    values = places(NodePlan(0, 9092, internal_port=5, advertised_port=9), Listeners.NAMED, "SASL_SSL")
    assert values["listeners"] == "SASL_SSL://127.0.0.1:9092,INTERNAL://127.0.0.1:5"
    assert values["advertised.listeners"] == "SASL_SSL://127.0.0.1:9,INTERNAL://127.0.0.1:5"
    assert values["listener.security.protocol.map"] == "SASL_SSL:SASL_SSL,INTERNAL:PLAINTEXT"
    assert places(NodePlan(0, 9092, internal_port=5), Listeners.ONE, "SSL") == {
        "listeners": "SSL://127.0.0.1:9092,PLAINTEXT://127.0.0.1:5",
        "advertised.listeners": "SSL://127.0.0.1:9092,PLAINTEXT://127.0.0.1:5",
    }
    mode = ZooKeeperMode(release_of("0.9.0.1"), 2, zookeeper="z:1", detached=False, start_timeout_s=1.0, protocol="SSL")
    assert all(node.internal_port is not None for node in mode.plan(20_000, []))


@pytest.mark.parametrize("version", [NEWEST, "1.1.1"])
def test_brokers_of_kerberos_have_a_keytab_and_the_krb5_conf_of_the_server(version: str) -> None:
    kdc, release = Kdc(Path("/s/kdc"), ["client"]), release_of(version)
    settings = settings_of(release, "SASL_PLAINTEXT", mechanisms=["PLAIN", "GSSAPI"])
    found = broker_properties(settings, release, FILES, PASSWORDS, None, kdc=kdc)
    assert found["sasl.enabled.mechanisms"] == "PLAIN,GSSAPI"
    assert found["sasl.kerberos.service.name"] == "kafka"
    assert found["sasl.kerberos.principal.to.local.rules"] == "RULE:[1:$1]"
    options = f'useKeyTab="true" storeKey="true" keyTab="/s/kdc/broker.keytab" principal="{kdc.broker}"'
    expected = f"Krb5LoginModule required {options};"
    if version == NEWEST:
        assert found["listener.name.sasl_plaintext.gssapi.sasl.jaas.config"].endswith(expected)
    assert expected in file_text(settings.mechanisms, PASSWORDS.users, kdc)
    assert "-Djava.security.krb5.conf=/s/kdc/krb5.conf" in broker_jvm_flags(settings, release, FILES, None, kdc=kdc)


def test_missing_programs_name_the_packages_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"there is no krb5kdc\..*apt-get install krb5-kdc krb5-admin-server"):
        Kdc(tmp_path / "kdc", ["client"]).start()
    assert not (tmp_path / "kdc").exists()
