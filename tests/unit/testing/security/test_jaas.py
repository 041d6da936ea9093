"""The JAAS entries that give brokers and clients of a test server their mechanism, users and keytabs."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamgroup.testing.security.jaas import broker_entries, entry, file_text, keytab_options
from streamgroup.testing.security.kdc import Kdc
from streamgroup.testing.security.settings import Mechanism


def test_both_scrams_share_a_login_module_in_a_jaas_file() -> None:
    text = file_text((Mechanism.PLAIN, Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512), {"admin": "a"})
    assert text.splitlines() == [
        "KafkaServer {",
        '    org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="a";',
        "    org.apache.kafka.common.security.scram.ScramLoginModule required;",
        "};",
    ]


def test_quotes_and_backslashes_in_a_jaas_entry_are_escaped() -> None:
    text = entry(Mechanism.PLAIN, {"password": 'a"b\\c'})
    assert text.endswith('PlainLoginModule required password="a\\"b\\\\c";')


@pytest.mark.parametrize("mechanism", Mechanism)
def test_every_mechanism_has_a_login_module(mechanism: Mechanism) -> None:
    module = {
        "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
        "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
        "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
        "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
        "GSSAPI": "com.sun.security.auth.module.Krb5LoginModule",
    }[mechanism]
    assert entry(mechanism, {}) == f"{module} required;"
    assert entry(mechanism, {"a": "1", "b": ""}) == f'{module} required a="1" b="";', "the options keep their order"


def test_only_the_entry_of_plain_names_the_users() -> None:
    found = broker_entries((Mechanism.PLAIN, Mechanism.SCRAM_SHA_512), {"admin": "a", "client": 'c"'})
    assert list(found) == [Mechanism.PLAIN, Mechanism.SCRAM_SHA_512]
    assert found[Mechanism.PLAIN].endswith(' required user_admin="a" user_client="c\\"";')
    assert found[Mechanism.SCRAM_SHA_512].endswith("ScramLoginModule required;")


def test_a_broker_of_kerberos_logs_in_by_its_keytab() -> None:
    kdc = Kdc(Path("/s/kdc"), ["client"])
    found = broker_entries((Mechanism.GSSAPI,), {"admin": "a"}, kdc)
    assert found == {Mechanism.GSSAPI: entry(Mechanism.GSSAPI, keytab_options(kdc.broker, kdc.broker_keytab))}
    assert f'keyTab="{kdc.broker_keytab}" principal="{kdc.broker}";' in found[Mechanism.GSSAPI]
    assert list(broker_entries((Mechanism.PLAIN,), {}, kdc)) == [Mechanism.PLAIN]


def test_the_options_of_a_keytab_store_the_key_for_java() -> None:
    assert keytab_options("kafka/h@R", Path("/k")) == {
        "useKeyTab": "true",
        "storeKey": "true",
        "keyTab": "/k",
        "principal": "kafka/h@R",
    }


def test_a_jaas_file_has_one_line_for_each_login_module_in_order() -> None:
    text = file_text((Mechanism.SCRAM_SHA_512, Mechanism.PLAIN, Mechanism.SCRAM_SHA_256), {})
    assert [line.split(".")[-1] for line in text.splitlines()[1:-1]] == [
        "ScramLoginModule required;",
        "PlainLoginModule required;",
    ]
    assert file_text((), {}) == "KafkaServer {\n};\n"
