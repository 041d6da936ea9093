from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.errors import ConfigError
from streamgroup.options.parse_client import kafka_properties, parse_client
from streamgroup.options.sasl import KerberosOptions, SaslOptions
from streamgroup.options.secrets import Secret
from streamgroup.options.tls import TlsOptions

FILE = r"""
# for Kafka's own tools
! another comment
security.protocol = SSL
ssl.truststore.location=/etc/kafka/ca\ file.p12
ssl.truststore.password: pass\u0077ord\\
  client.id     me
ssl.enabled.protocols=TLSv1.2,\
    TLSv1.3
ssl.key.password =
"""


def test_a_properties_file_is_read_as_java_does() -> None:
    assert kafka_properties(FILE) == {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": "/etc/kafka/ca file.p12",
        "kafka.ssl.truststore.password": "password\\",
        "kafka.client.id": "me",
        "kafka.ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
        "kafka.ssl.key.password": "",
    }


def test_the_last_of_equal_names_counts_and_values_may_have_separators() -> None:
    assert kafka_properties("a=1\na=x=y:z\\n") == {"kafka.a": "x=y:z\n"}


def test_a_name_may_have_the_prefix_with_which_errors_show_it() -> None:
    assert kafka_properties("kafka.security.protocol=SSL") == {"kafka.security.protocol": "SSL"}


def test_a_line_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="expected lines of the form name=value"):
        kafka_properties("=x")


def test_a_connection_is_parsed_without_anything_to_read() -> None:
    client, notes = parse_client(
        {
            "kafka.security.protocol": "SSL",
            "kafka.ssl.endpoint.identification.algorithm": "",
            "kafka.ssl.truststore.location": "/t",
            "kafka.ssl.truststore.password": "env:T",
        }
    )
    expected = TlsOptions(endpoint_identification="", truststore_location="/t", truststore_password=Secret("env:T"))
    assert (client.security_protocol, client.tls, client.bootstrap_servers) == ("SSL", expected, ())
    assert [note.split(",")[0] for note in notes] == ["host names of brokers are not verified"]


def test_kerberos_is_the_default_mechanism_and_ignores_the_renewal_of_java() -> None:
    client, notes = parse_client(
        {
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.kerberos.service.name": "kafka",
            "kafka.sasl.kerberos.kinit.cmd": "/usr/local/bin/kinit",
            "kafka.sasl.kerberos.ticket.renew.jitter": "0.1",
            "kafka.sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true "
            'storeKey=true keyTab="/etc/a.keytab" principal="a@X";',
        }
    )
    assert client.sasl == SaslOptions(
        "GSSAPI", kerberos=KerberosOptions("kafka", "a@X", use_keytab=True, keytab="/etc/a.keytab")
    )
    assert sorted(note.split(": ")[0] for note in notes) == [
        "ignored option kafka.sasl.kerberos.kinit.cmd",
        "ignored option kafka.sasl.kerberos.ticket.renew.jitter",
    ]


def test_what_concerns_other_clients_is_named_and_has_no_effect() -> None:
    client, notes = parse_client(
        {f"kafka.{name}": "1" for name in ("acks", "group.id", "retries", "default.api.timeout.ms", "key.deserializer")}
    )
    assert client == parse_client({})[0]
    assert notes == (
        "ignored options kafka.acks, kafka.default.api.timeout.ms, kafka.group.id, kafka.key.deserializer, "
        "kafka.retries: only the properties of the connection count here",
    )


def test_what_a_file_of_confluent_has_for_serializers_has_no_effect() -> None:
    given = {"schema.registry.url": "https://registry", "basic.auth.user.info": "me:hunter2", "client.id": "me"}
    client, notes = parse_client({f"kafka.{name}": value for name, value in given.items()})
    assert client.client_id == "me"
    assert notes == (
        "ignored options kafka.basic.auth.user.info, kafka.schema.registry.url: only the properties of the connection "
        "count here",
    )


def test_problems_are_named_together_without_secrets() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_client({"kafka.ssl.truststor.password": "hunter2", "kafka.security.protocol": "SASL_SSL"})
    assert "unknown option 'kafka.ssl.truststor.password'. Did you mean 'kafka.ssl.truststore.password'?" in str(
        caught.value
    )
    assert "cannot use kafka.sasl.mechanism=GSSAPI, the default: option kafka.sasl.jaas.config is not set" in str(
        caught.value
    )
    assert "hunter2" not in str(caught.value)


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_a_written_file_is_read_back(entries: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        return "".join(f"\\u{ord(c):04x}" if ord(c) < 0x10000 and not c.isalnum() else c for c in text)

    text = "\n".join(f"{escaped(name)}={escaped(value)}" for name, value in entries.items())
    assert kafka_properties(text) == {
        name if name.startswith(("kafka.", "zookeeper.")) else f"kafka.{name}": value for name, value in entries.items()
    }


@given(st.text())
def test_no_text_raises_anything_but_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert all(name.startswith("kafka.") for name in kafka_properties(text))
