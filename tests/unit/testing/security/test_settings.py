"""Which security a release has, before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from streamgroup.errors import ConfigError
from streamgroup.testing import KafkaServer
from streamgroup.testing.releases import NEWEST, release_of
from streamgroup.testing.security.acls import Acl, AclOperation, ResourceType, acl_of, check_release
from streamgroup.testing.security.settings import SaslMechanism, authorizer_of, entry, file_text, settings_of


@pytest.mark.parametrize(
    ("version", "arguments", "reason"),
    [
        ("0.7", {"security": "SSL"}, "cannot secure Kafka 0.7 by SSL: brokers have TLS since 0.9"),
        ("0.8.2.2", {"security": "SSL"}, "by SSL: brokers have TLS since 0.9"),
        ("0.9.0.1", {"security": "SASL_SSL"}, "by SASL_SSL: brokers have the handshake of SASL since 0.10.0"),
        ("0.9.0.1", {"security": "SASL_PLAINTEXT", "mechanisms": ["SCRAM-SHA-256"]}, "since 0.10.0"),
        ("1.1.1", {"security": "SASL_SSL", "mechanisms": ["OAUTHBEARER"]}, "by OAUTHBEARER: .* since 3.1"),
        ("1.1.1", {"security": "SASL_SSL", "mutual_tls": True}, "client certificates with SASL_SSL .* since 2.8"),
    ],
)
def test_a_release_is_refused_security_that_it_does_not_have(
    version: str, arguments: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        KafkaServer(version, **arguments)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"security": "TLS"}, "invalid security='TLS': expected SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"security": "SSL", "mechanisms": ["PLAIN"]}, "invalid mechanisms with security='SSL'"),
        ({"security": "SASL_SSL", "mechanisms": ["NTLM"]}, "invalid mechanisms NTLM: expected some of PLAIN"),
        ({"security": "SASL_PLAINTEXT", "mutual_tls": True}, "only TLS has certificates"),
        ({"security": "SSL", "acls": True}, "every client is User:ANONYMOUS.*Add mutual_tls=True"),
        ({"security": "SASL_SSL", "users": ["admin"]}, "invalid user 'admin'"),
        ({"security": "SASL_SSL", "users": []}, "at least one is needed"),
        ({"security": "SASL_SSL", "users": ['a" b']}, "invalid user"),
        ({"mechanisms": ["PLAIN"], "acls": True}, "invalid mechanisms, acls without security"),
        ({"users": ["alice"]}, "invalid users without security"),
        ({"broker_identity": lambda authority: authority.issue()}, "invalid broker_identity without security"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        KafkaServer(**arguments)


def test_sasl_without_mechanisms_has_plain_and_a_user_called_client() -> None:
    settings = settings_of(release_of(NEWEST), "SASL_SSL")
    assert (settings.mechanisms, settings.everybody) == ((SaslMechanism.PLAIN,), ("admin", "client"))
    assert settings.principal("client") == "User:client"


def test_without_sasl_a_user_is_the_subject_of_its_certificate() -> None:
    settings = settings_of(release_of(NEWEST), "SSL", mutual_tls=True, acls=True, users=["alice"])
    assert settings.principal("alice") == "User:CN=alice"


def test_each_release_has_the_authorizer_of_its_time() -> None:
    assert authorizer_of(release_of(NEWEST)) == "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    assert authorizer_of(release_of("1.1.1")) == "kafka.security.auth.SimpleAclAuthorizer"


def test_a_server_without_security_says_so() -> None:
    with pytest.raises(ConfigError, match="has no security: start it with security='SASL_SSL'"):
        _ = KafkaServer().security


def test_a_secured_server_that_was_not_started_says_so() -> None:
    security = KafkaServer(security="SASL_SSL").security
    with pytest.raises(ConfigError, match="is not started"):
        security.client()
    with pytest.raises(ConfigError, match="without acls=True"):
        security.add_acl("client", "READ", topic="orders")


def test_quotes_and_backslashes_in_a_jaas_entry_are_escaped() -> None:
    text = entry(SaslMechanism.PLAIN, {"password": 'a"b\\c'})
    assert text.endswith('PlainLoginModule required password="a\\"b\\\\c";')


def test_a_jaas_file_has_one_line_for_each_login_module_in_order() -> None:
    text = file_text((SaslMechanism.SCRAM_SHA_512, SaslMechanism.PLAIN, SaslMechanism.SCRAM_SHA_256), {})
    assert [line.split(".")[-1] for line in text.splitlines()[1:-1]] == [
        "ScramLoginModule required;",
        "PlainLoginModule required;",
    ]
    assert file_text((), {}) == "KafkaServer {\n};\n"


# -- ACLs --------------------------------------------------------------------------------------------------------------


def test_an_acl_is_about_one_resource() -> None:
    found = acl_of("User:a", "describe", group="g", allow=False)
    assert found == Acl("User:a", AclOperation.DESCRIBE, ResourceType.GROUP, "g", allow=False)
    assert acl_of("User:a", "CREATE", cluster=True).name == "kafka-cluster"
    assert str(found) == "the ACL DENY DESCRIBE on GROUP g for User:a"


@pytest.mark.parametrize("resource", [{}, {"topic": "t", "group": "g"}, {"topic": "t", "cluster": True}])
def test_an_acl_about_none_or_several_resources_is_refused(resource: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="expected one of topic, group, transactional_id and cluster"):
        acl_of("User:a", "READ", **resource)


def test_an_unknown_operation_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="invalid operation 'PRODUCE' of an ACL: expected ALL, READ, WRITE"):
        acl_of("User:a", "PRODUCE", topic="t")


@pytest.mark.parametrize(
    ("version", "operation", "resource", "reason"),
    [
        ("1.1.1", "READ", {"topic": "t", "prefixed": True}, "names that begin with 't' to Kafka 1.1.1: .* since 2.0"),
        ("0.10.2.2", "IDEMPOTENT_WRITE", {"cluster": True}, "IDEMPOTENT_WRITE of a CLUSTER .* since 0.11"),
        ("0.9.0.1", "WRITE", {"transactional_id": "x"}, "TRANSACTIONAL_ID .* since 0.11"),
    ],
)
def test_brokers_get_no_acl_that_they_do_not_know(
    version: str, operation: str, resource: dict[str, Any], reason: str
) -> None:
    acl = acl_of("User:a", operation, **resource)
    check_release(acl, release_of(NEWEST))
    with pytest.raises(ConfigError, match=reason):
        check_release(acl, release_of(version))
