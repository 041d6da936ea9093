from __future__ import annotations

import contextlib
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.errors import ConfigError
from streamgroup.model import EARLIEST, LATEST, ConfiguredOffsets
from streamgroup.options.default_mode import parse_default_mode, with_default_mode
from streamgroup.options.parse import OPTIONS, check_source, kafka_properties, parse_client, parse_source
from streamgroup.options.rows import Effect, Scope
from streamgroup.options.sasl import KerberosOptions, SaslOptions
from streamgroup.options.secrets import Secret
from streamgroup.options.source import HINTS
from streamgroup.options.tls import TlsOptions
from streamgroup.options.types import (
    WEIGHT_OF_CORES,
    ClientOptions,
    FetchOptions,
    GroupMode,
    GroupOptions,
    GroupProtocol,
    Isolation,
    LimitOptions,
    OffsetsStorage,
    Subscription,
)
from tests.unit.options.reads import BATCH, STREAM, A, B, batch, stream

# -- the least that works ----------------------------------------------------------------------------------------------


def test_a_stream_needs_servers_and_a_topic_and_joins_the_group_that_is_named() -> None:
    options = stream()
    assert options.client == ClientOptions((("b1", 9092),))
    assert options.subscription == Subscription(topics=("orders",))
    assert options.group == GroupOptions("etl")
    assert (options.fetch, options.limits) == (FetchOptions(), LimitOptions())
    assert options.starting == ConfiguredOffsets(LATEST)
    assert options.ending is None
    assert options.fail_on_data_loss
    assert options.notes == ()


def test_a_batch_read_starts_at_the_earliest_and_ends_at_the_latest() -> None:
    options = batch()
    assert options.starting == ConfiguredOffsets(EARLIEST)
    assert options.ending == ConfiguredOffsets(LATEST, no_match_is_latest=True)
    assert options.group is None


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ("kafka.bootstrap.servers", r"Add option\('kafka.bootstrap.servers', 'host:port'\)"),
        ("subscribe", "none is set. Set exactly one of subscribe, subscribePattern, assign"),
    ],
)
def test_a_missing_option_is_named_with_its_example(missing: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        parse_source({k: v for k, v in STREAM.items() if k != missing}, streaming=True)


@pytest.mark.parametrize("change", [str.lower, str.upper, str.title])
def test_names_may_have_any_case(change: Any) -> None:
    given = {**STREAM, "maxOffsetsPerTrigger": "7", "kafka.isolation.level": "read_committed"}
    options = parse_source({change(name): value for name, value in given.items()}, streaming=True)
    assert options == parse_source(given, streaming=True)
    assert options.limits.max_offsets_per_trigger == 7
    assert options.fetch.isolation is Isolation.READ_COMMITTED


# -- every used option sets its field ----------------------------------------------------------------------------------

JAVAS_SUITES = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, TLS_AES_128_GCM_SHA256"
TLS_EXAMPLES = {
    "enabled.protocols": ("TLSv1.3", ("TLSv1.3",)),
    "protocol": ("tlsv1.2", "TLSv1.2"),
    "cipher.suites": (JAVAS_SUITES, ("ECDHE-RSA-AES256-GCM-SHA384", "TLS_AES_128_GCM_SHA256")),
    "endpoint.identification.algorithm": ("", ""),
    "truststore.type": ("pkcs12", "PKCS12"),
    "truststore.location": ("/t.p12", "/t.p12"),
    "truststore.password": ("env:T", Secret("env:T")),
    "truststore.certificates": ("file:/ca.pem", Secret("file:/ca.pem")),
    "keystore.type": ("pem", "PEM"),
    "keystore.location": ("/k.p12", "/k.p12"),
    "keystore.password": ("env:K", Secret("env:K")),
    "keystore.key": ("env:KEY", Secret("env:KEY")),
    "keystore.certificate.chain": ("env:CHAIN", Secret("env:CHAIN")),
    "key.password": ("env:P", Secret("env:P")),
}
EXAMPLES = {
    "offsets.store": (" postgresql://db/orders ", "postgresql://db/orders"),
    "offsets.store.user": ("writer", "writer"),
    "offsets.store.password": ("env:DB", Secret("env:DB")),
    "failOnDataLoss": ("False", False),
    "includeHeaders": (" TRUE ", True),
    "maxOffsetsPerTrigger": ("9223372036854775807", 2**63 - 1),
    "maxBytesPerTrigger": ("5000000000", 5_000_000_000),
    "minOffsetsPerTrigger": ("100", 100),
    "maxTriggerDelay": ("5m", 300_000),
    "minPartitions": ("12", 12),
    "maxRecordsPerPartition": ("5000000000", 5_000_000_000),
    "fetchOffset.numRetries": ("0", 0),
    "fetchOffset.retryIntervalMs": ("17", 17),
    "kafkaConsumer.pollTimeoutMs": ("512", 512),
    "partition.metadata.cache.ttl.ms": ("30000", 30_000),
    "group.mode": ("Commit", GroupMode.COMMIT),
    "group.member": (" left ", "left"),
    "group.member.weight": ("3", 3),
    "group.joinTimeout": ("90s", 90_000),
    "group.rebalanceWait": ("2 min", 120_000),
    "group.prefetch": ("3", 3),
    "group.maxOffsetsPerSecond": ("9000", 9_000),
    "group.maxBytesPerSecond": ("5000000000", 5_000_000_000),
    "group.targetBatchDuration": ("10s", 10_000),
    "group.maxDecompressedBytes": ("1048576", 1_048_576),
    "kafka.bootstrap.servers": ("b1:1, [::1]:2,,b1:1", (("b1", 1), ("::1", 2))),
    "kafka.client.id": ("me", "me"),
    "kafka.security.protocol": ("plaintext", "PLAINTEXT"),
    **{f"kafka.ssl.{name}": example for name, example in TLS_EXAMPLES.items()},
    "kafka.request.timeout.ms": ("40000", 40_000),
    "kafka.default.api.timeout.ms": ("70000", 70_000),
    "kafka.socket.connection.setup.timeout.ms": ("5", 5),
    "kafka.retry.backoff.ms": ("200", 200),
    "kafka.retry.backoff.max.ms": ("2000", 2_000),
    "kafka.metadata.max.age.ms": ("9", 9),
    "kafka.connections.max.idle.ms": ("-1", -1),
    "kafka.client.rack": (" a ", "a"),
    "kafka.receive.buffer.bytes": ("65536", 65_536),
    "kafka.send.buffer.bytes": ("131072", 131_072),
    "kafka.isolation.level": ("READ_COMMITTED", Isolation.READ_COMMITTED),
    "kafka.fetch.min.bytes": ("2", 2),
    "kafka.fetch.max.wait.ms": ("3", 3),
    "kafka.fetch.max.bytes": ("4", 4),
    "kafka.max.partition.fetch.bytes": ("5", 5),
    "kafka.check.crcs": ("false", False),
    "kafka.group.id": ("g", "g"),
    "kafka.group.instance.id": ("node-1", "node-1"),
    "kafka.transactional.id": (" copy-1 ", "copy-1"),
    "kafka.transaction.timeout.ms": ("90000", 90_000),
    "kafka.session.timeout.ms": ("6000", 6_000),
    "group.maxSilence": ("10m", 600_000),
    "kafka.heartbeat.interval.ms": ("1000", 1_000),
    "kafka.max.poll.interval.ms": ("7", 7),
    "kafka.group.protocol": ("Consumer", GroupProtocol.CONSUMER),
    "kafka.group.remote.assignor": ("range", "range"),
    "kafka.partition.assignment.strategy": (
        "org.apache.kafka.clients.consumer.RoundRobinAssignor,range,roundrobin,"
        "org.apache.kafka.clients.consumer.CooperativeStickyAssignor,cooperative-sticky",
        ("roundrobin", "range", "cooperative-sticky"),
    ),
    "kafka.offsets.storage": ("Kafka", OffsetsStorage.KAFKA),
    "kafka.dual.commit.enabled": ("false", False),
    "includeInnerIndex": ("true", True),
    "includeDamagedBatches": ("true", True),
    "zookeeper.session.timeout.ms": ("9000", 9_000),
    "zookeeper.connection.timeout.ms": ("700", 700),
    "zookeeper.username": ("bob", "bob"),
    "zookeeper.password": ("env:ZK", Secret("env:ZK")),
    "zookeeper.sasl.mechanism": ("digest-md5", "DIGEST-MD5"),
    "zookeeper.set.acl": ("true", True),
    **{f"zookeeper.ssl.{name}": example for name, example in TLS_EXAMPLES.items()},
    "zookeeper.ssl.keystore.location": ("/k.pem", "/k.pem"),
}
IN_ZOOKEEPER = {"zookeeper.connect": "zk1", "zookeeper.username": "bob", "zookeeper.password": "p"}
ZOOKEEPER_WITH_TLS = {"zookeeper.connect": "zk1", "zookeeper.ssl.client.enable": "true"}
ZOOKEEPER_STORES = {
    **ZOOKEEPER_WITH_TLS,
    "zookeeper.ssl.truststore.location": "/t.p12",
    "zookeeper.ssl.keystore.location": "/k.p12",
    "zookeeper.ssl.keystore.password": "env:K",
}
ZOOKEEPER_PEM = {
    **ZOOKEEPER_WITH_TLS,
    "zookeeper.ssl.keystore.key": "env:KEY",
    "zookeeper.ssl.keystore.certificate.chain": "env:CHAIN",
}
STORED = {"zookeeper.connect": "zk1", "kafka.offsets.storage": "kafka"}
WITH_TLS = {"kafka.security.protocol": "SSL"}
TRUST_IN_PEM = {**WITH_TLS, "kafka.ssl.truststore.type": "PEM"}
STORES = {**WITH_TLS, "kafka.ssl.truststore.location": "/t.p12", "kafka.ssl.keystore.location": "/k.p12"}
KEY_IN_PEM = {
    **WITH_TLS,
    "kafka.ssl.keystore.type": "PEM",
    "kafka.ssl.keystore.key": "env:KEY",
    "kafka.ssl.keystore.certificate.chain": "env:CHAIN",
}
NEEDS = {
    "kafka.group.remote.assignor": {"kafka.group.protocol": "consumer"},
    "zookeeper": IN_ZOOKEEPER,
    "kafka.dual.commit.enabled": STORED,
    "tls": WITH_TLS,
    "zookeeper_tls": ZOOKEEPER_WITH_TLS,
    "zookeeper.ssl.truststore.password": ZOOKEEPER_STORES,
    "zookeeper.ssl.keystore.password": ZOOKEEPER_STORES,
    "zookeeper.ssl.keystore.key": ZOOKEEPER_PEM,
    "zookeeper.ssl.keystore.certificate.chain": ZOOKEEPER_PEM,
    "kafka.ssl.truststore.password": {**STORES, "kafka.ssl.keystore.password": "env:K"},
    "kafka.ssl.truststore.certificates": TRUST_IN_PEM,
    "kafka.ssl.keystore.location": {**WITH_TLS, "kafka.ssl.keystore.password": "env:K"},
    "kafka.ssl.keystore.password": STORES,
    "kafka.ssl.keystore.key": KEY_IN_PEM,
    "kafka.ssl.keystore.certificate.chain": KEY_IN_PEM,
    "kafka.ssl.key.password": KEY_IN_PEM,
}
"""The settings without which an option, or the options of a section, has no meaning."""


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_value_reaches_its_field(name: str) -> None:
    text, value = EXAMPLES[name]
    section, _, field = OPTIONS[name.lower()].target.partition(".")
    needed = NEEDS.get(name) or NEEDS.get(section) or {}
    options = parse_source({**STREAM, **needed, name: text}, streaming=True)
    registry = options.client.zookeeper
    sections = {
        "source": options,
        "zookeeper": registry,
        "tls": options.client.tls,
        "zookeeper_tls": registry and registry.tls,
    }
    assert getattr(sections.get(section) or getattr(options, section), field) == value


def test_the_examples_are_all_options_that_set_a_field() -> None:
    assert set(EXAMPLES) == {o.name for o in OPTIONS.values() if o.target}


# -- limits ------------------------------------------------------------------------------------------------------------


def test_the_least_offsets_of_a_batch_must_not_exceed_the_most_and_a_delay_needs_them() -> None:
    assert stream(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="5").limits == LimitOptions(5, 5)
    with pytest.raises(ConfigError, match=r"minOffsetsPerTrigger \(6\) must not be above maxOffsetsPerTrigger \(5\)"):
        stream(minOffsetsPerTrigger="6", maxOffsetsPerTrigger="5")
    (note,) = stream(maxTriggerDelay="1m").notes
    assert note.startswith("ignored option maxTriggerDelay: ")


# -- refused and ignored ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize(
    "name", ["auto.offset.reset", "key.deserializer", "value.deserializer", "enable.auto.commit", "interceptor.classes"]
)
def test_an_option_that_spark_refuses_is_refused(name: str, streaming: bool) -> None:
    with pytest.raises(ConfigError, match=f"^cannot use option kafka.{name}: "):
        parse_source({**(STREAM if streaming else BATCH), f"kafka.{name}": "x"}, streaming=streaming)


@pytest.mark.parametrize(
    ("store", "expected"),
    [
        ("postgresql://u:hunter2@db/orders", "a URL without a password"),
        ("postgresql://db/orders?user=u&password=hunter2", "a URL without a password"),
        ("postgresql://user@server:hunter2@db/orders", "a URL without a password"),
        ("postgresql://u:a/b?#hunter2@db/orders", "a URL without a password"),
        ("mariadb://db/orders?passwd=hunter2", "a URL without a password"),
        ("mariadb://db/orders?ssl_ca=/ca&ssl_key_password=hunter2", "a URL without a password"),
        ("orders.db", "the URL of a database"),
    ],
)
def test_a_database_is_named_by_a_url_without_a_password(store: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=f"^invalid value .*for option offsets.store: .*{expected}") as caught:
        stream(**{"offsets.store": store})
    assert "hunter2" not in str(caught.value)


def test_a_group_in_zookeeper_has_no_offset_table() -> None:
    with pytest.raises(ConfigError, match=r"^cannot use offsets\.store with a group .* in ZooKeeper"):
        parse_source({**STREAM, **IN_ZOOKEEPER, "offsets.store": "sqlite:////o.db"}, streaming=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kafka.partition.assignment.strategy", "range,sticky"),
        ("kafka.partition.assignment.strategy", "org.apache.kafka.clients.consumer.StickyAssignor"),
    ],
)
def test_an_unsupported_value_is_never_silently_ignored(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s)^invalid value .* for option {name}: .*not supported yet"):
        parse_source({**STREAM, name: value}, streaming=True)


CONSUMER = {"kafka.group.protocol": "consumer"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({**CONSUMER, "kafka.partition.assignment.strategy": "range"}, r"strategy has no effect with .*=consumer"),
        ({**CONSUMER, "kafka.heartbeat.interval.ms": "1000"}, r"group\.consumer\.heartbeat\.interval\.ms"),
        ({**CONSUMER, "group.member.weight": "2"}, r"have no weights"),
        ({**CONSUMER, "group.rebalanceWait": "5s"}, r"no member waits for this one"),
        ({"kafka.group.remote.assignor": "range"}, r"has no effect with kafka\.group\.protocol=classic"),
        ({**CONSUMER, **IN_ZOOKEEPER}, r"a group in ZooKeeper has another protocol"),
    ],
)
def test_what_has_no_effect_under_the_protocol_of_the_group_is_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        parse_source({**STREAM, **options}, streaming=True)


def test_the_session_timeout_is_not_compared_with_an_interval_that_the_broker_sets() -> None:
    group = stream(**CONSUMER, **{"kafka.session.timeout.ms": "2000"}).group
    assert group is not None
    assert group.session_timeout_ms == 2000


def test_with_auto_options_of_both_protocols_are_accepted() -> None:
    auto = {"kafka.group.protocol": "auto", "kafka.partition.assignment.strategy": "range"}
    group = stream(**auto, **{"kafka.group.remote.assignor": "uniform", "group.member.weight": "1"}).group
    assert group is not None
    assert (group.protocol, group.strategies, group.remote_assignor) == (GroupProtocol.AUTO, ("range",), "uniform")


def test_ignored_options_are_logged_once_for_each_reason() -> None:
    options = stream(**{"kafka.linger.ms": "5", "kafka.acks": "all", "kafka.max.poll.records": "9"})
    assert options.notes == (
        "ignored options kafka.acks, kafka.linger.ms: the property is for producers",
        "ignored option kafka.max.poll.records: tasks do not poll; 'maxRecordsPerPartition' limits a task",
    )


def test_a_batch_read_ignores_the_options_of_groups_and_the_limits_of_batches() -> None:
    options = batch(**{"kafka.group.id": "etl", "group.mode": "commit", "kafka.session.timeout.ms": "none"})
    assert options.group is None
    (note,) = options.notes
    assert "group.mode, kafka.group.id, kafka.session.timeout.ms: a batch read never joins a group" in note
    options = batch(maxOffsetsPerTrigger="5", minOffsetsPerTrigger="3")
    assert options.limits == LimitOptions()
    assert "maxOffsetsPerTrigger, minOffsetsPerTrigger: a batch read takes the whole backlog" in options.notes[0]


def test_a_backoff_beyond_its_maximum_is_constant() -> None:
    options = batch(**{"kafka.retry.backoff.ms": "5000"})
    assert (options.client.retry_backoff_ms, options.client.retry_backoff_max_ms) == (5_000, 5_000)
    assert "every backoff is 5000 ms" in options.notes[0]


# -- texts and values --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", [Scope.STREAM, Scope.BATCH])
def test_no_reason_and_no_hint_names_an_option_that_is_refused(scope: Scope) -> None:
    texts = {option.name: option.reason(scope) for option in OPTIONS.values()} | HINTS
    offered = {(name, word) for name, text in texts.items() for word in re.findall(r"'([\w.]+)'", text)}
    named = [(name, OPTIONS[word.lower()]) for name, word in offered if word.lower() in OPTIONS]
    assert len(named) > 20
    assert [(name, o.name) for name, o in named if o.effect(scope) is Effect.REFUSED] == []


@pytest.mark.parametrize(
    ("options", "client_id"),
    [
        ({}, "streamgroup"),
        ({"group.member": "a"}, "streamgroup-a"),
        ({"group.member": "Köln 1/2"}, "streamgroup-K_ln_1_2"),
        ({"group.member": "a", "kafka.client.id": "mine"}, "mine"),
        ({"group.member": "a", "kafka.client.id": "streamgroup"}, "streamgroup"),
        ({"group.member": "a", "group.mode": "commit"}, "streamgroup"),
        ({"group.member": "a", "group.mode": "off"}, "streamgroup"),
    ],
)
def test_the_client_id_has_the_name_of_the_member_unless_the_user_has_set_one(
    options: dict[str, str], client_id: str
) -> None:
    parsed = parse_source({**STREAM, "kafka.group.id": "g", **options}, streaming=True)
    assert parsed.client.client_id == client_id


def test_one_error_names_all_problems() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_source({"maxOffsetsPerTrigger": "-5", "asign": "1", "failOnDataLoss": "yes"}, streaming=True)
    lines = str(caught.value).splitlines()
    assert lines[0] == "5 problems with the options:"
    assert [line.partition(":")[0].removeprefix("  - ") for line in lines[1:]] == [
        "unknown option 'asign'. Did you mean 'assign'?",
        "invalid value 'yes' for option failOnDataLoss",
        "invalid value '-5' for option maxOffsetsPerTrigger",
        "unclear what to read",
        "kafka.bootstrap.servers is required. Add option('kafka.bootstrap.servers', 'host",
    ]


def test_options_invalid_in_streams_and_in_batch_reads_fail_load() -> None:
    check_source({**STREAM, "endingOffsets": "latest"})
    check_source({**STREAM, "startingOffsets": "latest", "group.mode": "member"})
    with pytest.raises(ConfigError, match=r"^unknown option 'asign'"):
        check_source({**STREAM, "endingOffsets": "latest", "asign": "1"})
    with pytest.raises(
        ConfigError, match=r"(?s)^2 prob.*in a stream: .*endingO.*no end.*\n.*in a batch read: .*starting.*empty$"
    ):
        check_source({**STREAM, "endingOffsets": "latest", "startingOffsets": "latest"})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"endingOffsets": "{bad"}, ["endingOffsets"]),
        ({"endingOffsets": "earliest"}, ["endingOffsets"]),
        ({"endingOffsetsByTimestamp": "{bad", "group.mode": "member"}, ["endingOffsetsByTimestamp"]),
        ({"endingOffsets": "{bad", "startingOffsets": "{bad"}, ["startingOffsets", "endingOffsets"]),
        ({"endingOffsets": "{bad", "endingOffsetsByTimestamp": "{"}, ["endingOffsets", "endingOffsetsByTimestamp"]),
    ],
)
def test_an_invalid_value_of_a_batch_read_is_not_reported_a_second_time_for_a_stream(
    given: dict[str, str], expected: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_source({**STREAM, **given})
    problems = [line.removeprefix("  - ") for line in str(caught.value).splitlines() if "invalid value" in line]
    assert [line.partition(" for option ")[2].partition(":")[0] for line in problems] == expected
    assert "in a stream" not in str(caught.value)


def test_a_long_value_is_cut_short() -> None:
    with pytest.raises(ConfigError) as caught:
        stream(startingOffsets="x" * 100_000)
    assert len(str(caught.value)) < 1_000


NAMES = st.sampled_from([o.name for o in OPTIONS.values() if o.target or not o.name.startswith("kafka.")])
JSON = ('{"orders": {"0": 5}}', '{"orders": [0]}', '{"orders": {"0": 1e3}}')
VALUES = st.text(max_size=20) | st.sampled_from(["1", "-1", "earliest", "true", "{", "[[", "a:1", *JSON])


@given(st.dictionaries(NAMES, VALUES, max_size=4), st.booleans(), st.booleans())
def test_any_options_are_understood_or_a_config_error(given: dict[str, str], on_top: bool, streaming: bool) -> None:
    with contextlib.suppress(ConfigError):
        options = parse_source({**STREAM, **given} if on_top else given, streaming=streaming)
        assert (options.group is not None) == streaming
        assert (options.ending is None) == streaming


# -- a connection, and its properties file -----------------------------------------------------------------------------

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
    assert kafka_properties("kafka.security.protocol=SSL") == {"kafka.security.protocol": "SSL"}, "as errors show it"
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


OF_OTHERS = ("acks", "default.api.timeout.ms", "group.id", "key.deserializer", "retries")
OF_SERIALIZERS = ("basic.auth.user.info", "schema.registry.url")
"""What a file of Confluent has."""


@pytest.mark.parametrize("names", [OF_OTHERS, OF_SERIALIZERS])
def test_what_concerns_other_clients_is_named_and_has_no_effect(names: tuple[str, ...]) -> None:
    client, notes = parse_client({**{f"kafka.{name}": "1" for name in names}, "kafka.client.id": "me"})
    assert client == parse_client({"kafka.client.id": "me"})[0]
    named = ", ".join(f"kafka.{name}" for name in names)
    assert notes == (f"ignored options {named}: only the properties of the connection count here",)


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


# -- what is read ------------------------------------------------------------------------------------------------------


def test_topics_are_separated_by_commas() -> None:
    assert stream(subscribe=" b, a,,b ").subscription.topics == ("b", "a")


@pytest.mark.parametrize(
    ("given", "said"), [("assign", "subscribe and assign"), ("subscribePattern", "subscribePattern")]
)
def test_two_subscriptions_are_an_error_that_names_both(given: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"{said} are set. Set exactly one of"):
        batch(**{given: '{"orders": [0]}' if given == "assign" else "o.*"})


@pytest.mark.parametrize("read", [batch, stream])
def test_a_pattern_or_partitions_may_be_read(read: Any) -> None:
    assert read(subscribe=None, subscribePattern="o.*").subscription == Subscription(pattern="o.*")
    assert read(subscribe=None, assign='{"orders": [1, 0, 1]}').subscription == Subscription(assign=(A, B))


# -- the modes ---------------------------------------------------------------------------------------------------------

NO_GROUP = {"kafka.group.id": None}
BY_ITSELF = {"subscribe": None, "assign": '{"orders": [0]}'}


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        ({}, GroupMode.MEMBER),
        (NO_GROUP, GroupMode.OFF),
        (BY_ITSELF, GroupMode.COMMIT),
        ({**BY_ITSELF, **NO_GROUP}, GroupMode.OFF),
        ({**BY_ITSELF, "group.mode": "off"}, GroupMode.OFF),
        ({"group.mode": "commit"}, GroupMode.COMMIT),
        ({"group.mode": "MEMBER"}, GroupMode.MEMBER),
        ({**NO_GROUP, "group.mode": "off"}, GroupMode.OFF),
    ],
)
def test_the_mode_is_the_one_given_or_follows_from_group_and_subscription(given: Any, mode: GroupMode) -> None:
    assert stream(**given).group == GroupOptions("" if mode is GroupMode.OFF else "etl", mode)


@pytest.mark.parametrize(
    ("mode", "ignored"),
    [
        ("commit", {"kafka.group.instance.id", "kafka.heartbeat.interval.ms"}),
        ("off", {"group.joinTimeout", "kafka.group.id", "kafka.group.instance.id", "kafka.heartbeat.interval.ms"}),
    ],
)
def test_options_outside_the_mode_are_ignored(mode: str, ignored: set[str]) -> None:
    given = {"kafka.group.instance.id": "a", "kafka.heartbeat.interval.ms": "60000", "group.joinTimeout": "5s"}
    (note,) = stream(**given, **{"group.mode": mode}).notes
    names, _, why = note.removeprefix("ignored options ").partition(": ")
    assert set(names.split(", ")) == ignored
    assert why.startswith(f"with group.mode={mode} ")


def test_a_stream_with_a_group_takes_the_default_of_its_application_and_the_log_says_so() -> None:
    given = {**BATCH, "KAFKA.Group.ID": "g"}
    options, notes = with_default_mode(given, GroupMode.OFF, "HERE")
    assert parse_source(options, streaming=True).group == GroupOptions("", GroupMode.OFF)
    assert notes == ("group.mode is off: HERE sets it",)
    assert with_default_mode(given, GroupMode.MEMBER, "HERE") == (given, ())


@pytest.mark.parametrize(
    "given", [{**STREAM, "Group.Mode": "member"}, BATCH], ids=["a mode of its own, in any case", "no group"]
)
def test_a_stream_with_a_mode_of_its_own_or_without_a_group_leaves_the_default(given: dict[str, str]) -> None:
    assert with_default_mode(given, GroupMode.OFF, "HERE") == (given, ())


@pytest.mark.parametrize(
    ("text", "mode"), [("off", GroupMode.OFF), (" OFF ", GroupMode.OFF), ("member", GroupMode.MEMBER)]
)
def test_the_modes_by_default_are_off_and_member(text: str, mode: GroupMode) -> None:
    assert parse_default_mode(text, "HERE") is mode


@pytest.mark.parametrize("text", ["", "none", "commit"])
def test_another_word_is_refused_by_the_place_where_it_is(text: str) -> None:
    with pytest.raises(ConfigError, match=f"invalid value {text!r} for HERE: expected off or member"):
        parse_default_mode(text, "HERE")


def test_a_weight_of_auto_is_left_to_the_coordinator() -> None:
    group = stream(**{"group.member.weight": " Auto"}).group
    assert group is not None
    assert group.weight == WEIGHT_OF_CORES


SESSION = {"kafka.session.timeout.ms": "6000", "kafka.heartbeat.interval.ms": "6000"}
ENDLESS = "cannot use option {}: a stream has no end"
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"Subscribe": "clicks"}, "option subscribe is set twice"),
    ({"minPartitions": "0"}, r"^invalid value '0' for option minPartitions: expected an integer from 1 to 2147483647$"),
    (SESSION, r"heartbeat.interval.ms \(6000\) must be below kafka.session.timeout.ms \(6000\)"),
    ({"group.member.weight": "0"}, r"option group.member.weight: expected an integer from 1 to 1000000, or auto$"),
    (
        {"group.member.weight": "auto", "kafka.partition.assignment.strategy": "range"},
        r"group.member.weight \(auto\) has no effect under kafka.partition.assignment.strategy range: only streamgroup",
    ),
    (
        {"group.member.weight": "2", "kafka.partition.assignment.strategy": "range"},
        r"group.member.weight \(2\) has no effect under kafka.partition.assignment.strategy range: only streamgroup",
    ),
    ({"kafka.fetch.max.wait.ms": "30000"}, r"fetch.max.wait.ms \(30000\) must be below kafka.request.timeout.ms"),
    *(
        ({**NO_GROUP, "group.mode": mode}, rf"group\.mode={mode}. Add option\('kafka.group.id', '<name>'\), or .*=off")
        for mode in ("member", "commit")
    ),
    ({**BY_ITSELF, "group.mode": "member"}, r"cannot use assign with group\.mode=member.*subscribe.*commit or off"),
    ({"endingOffsets": "latest"}, ENDLESS.format("endingOffsets")),
    ({"endingOffsetsByTimestamp": "{}"}, ENDLESS.format("endingOffsetsByTimestamp")),
]


@pytest.mark.parametrize(("given", "said"), REFUSED)
def test_options_that_a_stream_cannot_have_are_refused_with_the_reason(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        stream(**given)


# -- where a read starts and ends --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", ConfiguredOffsets(EARLIEST)),
        ("Latest", ConfiguredOffsets(LATEST)),
        ('{"orders": {"0": 23, "1": -2}}', ConfiguredOffsets(LATEST, offsets={A: 23, B: EARLIEST})),
    ],
)
def test_a_stream_starts_at_either_end_or_by_partition(text: str, expected: ConfiguredOffsets) -> None:
    assert stream(startingOffsets=text).starting == expected


def test_the_first_of_three_starts_counts_alone() -> None:
    given = {
        "startingTimestamp": "5",
        "startingOffsetsByTimestamp": '{"orders": {"0": 6}}',
        "startingOffsets": "earliest",
    }
    options = stream(**given)
    assert options.starting == ConfiguredOffsets(LATEST, timestamp=5)
    assert len(options.notes) == 2
    assert stream(**{**given, "startingTimestamp": None}).starting == ConfiguredOffsets(LATEST, timestamps={A: 6})


def test_the_strategy_latest_allows_a_timestamp_without_match() -> None:
    assert stream(startingTimestamp="5", startingOffsetsByTimestampStrategy="Latest").starting.no_match_is_latest
    assert not stream(startingTimestamp="5").starting.no_match_is_latest


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"endingOffsets": "latest"}, ConfiguredOffsets(LATEST, no_match_is_latest=True)),
        ({"endingOffsets": '{"orders": {"0": -1}}'}, ConfiguredOffsets(LATEST, {A: LATEST}, no_match_is_latest=True)),
        ({"endingTimestamp": "0"}, ConfiguredOffsets(LATEST, timestamp=0, no_match_is_latest=True)),
        (
            {"endingOffsetsByTimestamp": '{"orders": {"0": 8}}', "endingOffsets": "latest"},
            ConfiguredOffsets(LATEST, timestamps={A: 8}, no_match_is_latest=True),
        ),
    ],
)
def test_a_batch_read_ends_at_its_ending_option(given: dict[str, str], expected: ConfiguredOffsets) -> None:
    assert batch(**given).ending == expected


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"startingOffsets": "latest"}, "cannot start at the latest"),
        (
            {"startingOffsets": '{"orders": {"0": -1}}'},
            "invalid offset -1 for orders-0: a batch read cannot start at the latest",
        ),
        ({"endingOffsets": "earliest"}, "cannot end at the earliest"),
        (
            {"endingOffsets": '{"orders": {"0": -2}}'},
            "invalid offset -2 for orders-0: a batch read cannot end at the earliest",
        ),
    ],
)
def test_a_batch_read_that_would_be_empty_is_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        batch(**given)


@pytest.mark.parametrize(
    ("read", "name", "offered", "refused"),
    [
        (stream, "startingOffsets", ("-2", "-1"), ()),
        (batch, "startingOffsets", ("-2",), ("-1",)),
        (batch, "endingOffsets", ("-1",), ("-2",)),
    ],
)
@pytest.mark.parametrize("value", ["middle", '{"orders": {"0": -7}}'])
def test_only_numbers_that_are_taken_are_offered(
    read: Any, name: str, offered: tuple[str, ...], refused: tuple[str, ...], value: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(**{name: value})
    said = str(caught.value).replace(value, "")
    assert offered[0] in said
    assert all(number in said for number in offered) or value == "middle", "an example needs one only"
    assert not any(number in said for number in refused)


def test_a_stream_ignores_an_ending_timestamp_as_sparks_source_does() -> None:
    options = stream(endingTimestamp="5")
    assert options.ending is None
    assert options.notes == ("ignored option endingTimestamp: a stream has no end",)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"orders": {"0": 1}}, "must list all partitions that are read. Add clicks"),
        (
            {"orders": {"0": 1}, "clicks": {"0": 1}, "other": {"0": 1}},
            "lists partitions that are not read. Remove other",
        ),
    ],
)
def test_a_start_by_partition_lists_exactly_the_topics_subscribed(value: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        stream(subscribe="orders,clicks", startingOffsets=json.dumps(value))


def test_a_start_by_partition_lists_exactly_the_partitions_assigned() -> None:
    with pytest.raises(ConfigError, match=r"(?s)Add orders-1.*Remove orders-2"):
        batch(subscribe=None, assign='{"orders": [0, 1]}', startingOffsets='{"orders": {"0": 1, "2": 1}}')
    configured = batch(subscribe=None, subscribePattern=".*", startingOffsets='{"orders": {"0": 1}}').starting
    assert configured.offsets == {A: 1}, "a pattern leaves that to the cluster"


@pytest.mark.parametrize("given", [{}, {"kafka.isolation.level": "read_uncommitted"}])
def test_a_copy_in_transactions_reads_committed_records_unless_the_user_wants_others(given: dict[str, str]) -> None:
    options = parse_source({**STREAM, "offsets.store": "transaction", **given}, streaming=True)
    assert options.fetch.isolation is (Isolation.READ_UNCOMMITTED if given else Isolation.READ_COMMITTED)
