from __future__ import annotations

from typing import Any

import pytest

from streamgroup.errors import ConfigError
from streamgroup.model import TopicPartition
from streamgroup.options.parse import parse_source
from streamgroup.options.secrets import Secret
from streamgroup.options.tls import ZOOKEEPERS
from streamgroup.options.types import GroupMode, GroupOptions, OffsetsStorage, ZooKeeperOptions

BROKERS_ONLY = {"zookeeper__connect": None, "kafka__bootstrap__servers": "b:1"}
DRAIN = {"zookeeper.connect": "zk1:2181/kafka", "kafka.group.id": "drain", "subscribe": "events"}


def drain(**changes: Any) -> Any:
    given = {**DRAIN, **{name.replace("__", "."): value for name, value in changes.items()}}
    return parse_source({name: value for name, value in given.items() if value is not None}, streaming=True)


def test_a_drain_of_an_old_cluster_needs_no_brokers() -> None:
    options = drain()
    assert options.client.bootstrap_servers == ()
    assert options.client.zookeeper == ZooKeeperOptions((("zk1", 2181),), "/kafka")
    assert options.group == GroupOptions(
        "drain",
        session_timeout_ms=6_000,
        heartbeat_interval_ms=2_000,
        strategies=("range",),
        offsets_storage=OffsetsStorage.ZOOKEEPER,
    )
    assert options.notes == ()


def test_a_batch_read_finds_its_brokers_in_zookeeper_too() -> None:
    options = parse_source({"zookeeper.connect": "zk1", "subscribe": "events"}, streaming=False)
    assert options.client.zookeeper == ZooKeeperOptions((("zk1", 2181),))
    assert options.client.bootstrap_servers == ()


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("zk1:2181", (("zk1", 2181),), ""),
        ("zk1", (("zk1", 2181),), ""),
        ("zk1:1, zk2 ,zk1:1/kafka", (("zk1", 1), ("zk2", 2181)), "/kafka"),
        ("zk1:2181,zk2:2182/a/b/", (("zk1", 2181), ("zk2", 2182)), "/a/b"),
        ("zk1/", (("zk1", 2181),), ""),
        ("[::1],[::2]:7/k", (("::1", 2181), ("::2", 7)), "/k"),
    ],
)
def test_servers_and_chroot_are_read_as_kafka_reads_them(
    text: str, servers: tuple[tuple[str, int], ...], chroot: str
) -> None:
    options = drain(zookeeper__connect=text).client.zookeeper
    assert (options.servers, options.chroot) == (servers, chroot)


@pytest.mark.parametrize(
    "text", ["", "/kafka", "zk1:0", "zk1:99999", "zk1:a", "zk1//kafka", "zk1/a/../b", "zk1/a b", "::1"]
)
def test_an_invalid_address_is_an_error_with_the_expected_form(text: str) -> None:
    with pytest.raises(ConfigError, match=r"for option zookeeper\.connect: .*expected"):
        drain(zookeeper__connect=text)


def test_the_first_connection_may_take_a_session_timeout_as_in_kafka() -> None:
    assert drain(zookeeper__session__timeout__ms="9000").client.zookeeper.connection_timeout_ms == 9_000
    options = drain(zookeeper__session__timeout__ms="9000", zookeeper__connection__timeout__ms="100")
    assert options.client.zookeeper.connection_timeout_ms == 100


def test_a_member_lives_by_the_session_timeout_of_zookeeper() -> None:
    options = drain(zookeeper__session__timeout__ms="900", kafka__session__timeout__ms="45000")
    assert (options.group.session_timeout_ms, options.group.heartbeat_interval_ms) == (900, 300)
    assert options.notes == (
        "ignored option kafka.session.timeout.ms: a group in ZooKeeper has the session timeout of "
        "'zookeeper.session.timeout.ms'",
    )


def test_a_group_in_zookeeper_has_no_static_members() -> None:
    options = drain(kafka__group__instance__id="a")
    assert options.group.instance_id is None
    assert "kafka.group.instance.id" in options.notes[0]


def test_range_is_the_only_strategy_of_a_group_in_zookeeper() -> None:
    assert drain(kafka__partition__assignment__strategy="roundrobin, range").group.strategies == ("range",)
    with pytest.raises(ConfigError, match="all members of a group in ZooKeeper compute Java's range"):
        drain(kafka__partition__assignment__strategy="roundrobin")


def test_a_query_that_does_not_join_keeps_the_timeouts_of_the_brokers() -> None:
    options = drain(group__mode="commit")
    assert options.group.mode is GroupMode.COMMIT
    assert options.group.session_timeout_ms == 45_000
    assert options.group.offsets_storage is OffsetsStorage.ZOOKEEPER


# -- where offsets go --------------------------------------------------------------------------------------------------


def test_a_migration_commits_to_both_places_by_default_as_javas_consumer_does() -> None:
    group = drain(kafka__offsets__storage="kafka").group
    assert (group.offsets_storage, group.dual_commit) == (OffsetsStorage.KAFKA, True)
    group = drain(kafka__offsets__storage="kafka", kafka__dual__commit__enabled="false").group
    assert (group.offsets_storage, group.dual_commit) == (OffsetsStorage.KAFKA, False)


def test_dual_commit_needs_two_places() -> None:
    options = drain(kafka__dual__commit__enabled="true")
    assert not options.group.dual_commit
    assert "kafka.dual.commit.enabled" in options.notes[0]


@pytest.mark.parametrize("given", [{}, BROKERS_ONLY])
def test_a_query_without_a_group_stores_no_offsets(given: dict[str, Any]) -> None:
    assert drain(**given, group__mode="off").group.offset_location.group == ""


def test_offsets_are_stored_in_zookeeper_only_if_it_is_set() -> None:
    assert drain(**BROKERS_ONLY).group.offsets_storage is None
    with pytest.raises(ConfigError, match=r"kafka\.offsets\.storage=zookeeper: zookeeper\.connect is not set"):
        drain(**BROKERS_ONLY, kafka__offsets__storage="zookeeper")
    both = drain(**BROKERS_ONLY, kafka__offsets__storage="kafka", kafka__dual__commit__enabled="true")
    assert not both.group.dual_commit


# -- credentials -------------------------------------------------------------------------------------------------------


def test_user_and_password_require_each_other() -> None:
    given = {"zookeeper__username": "bob", "zookeeper__password": "hunter2", "zookeeper__set__acl": "true"}
    options = drain(**given).client.zookeeper
    assert (options.username, options.password, options.creator_only) == ("bob", Secret("hunter2"), True)
    for half in ({"zookeeper__username": "bob"}, {"zookeeper__password": "hunter2"}):
        with pytest.raises(ConfigError, match="require each other") as caught:
            drain(**half)
        assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"zookeeper\.set\.acl=true requires an identity"):
        drain(zookeeper__set__acl="true")
    with pytest.raises(ConfigError, match=r"cannot use zookeeper.set.acl: zookeeper.connect is not set"):
        drain(**BROKERS_ONLY, zookeeper__set__acl="false")


# -- TLS and SASL ------------------------------------------------------------------------------------------------------

TLS = {"zookeeper__ssl__client__enable": "true"}
USER = {"zookeeper__username": "bob", "zookeeper__password": "env:BOBS"}


def test_tls_is_that_of_zookeeper_and_not_of_the_brokers() -> None:
    options = drain(**TLS, zookeeper__ssl__truststore__location="/ca.pem")
    tls = options.client.zookeeper.tls
    assert (tls.servers, tls.truststore_type, tls.endpoint_identification) == (ZOOKEEPERS, "PEM", "https")
    assert options.client.tls is None
    assert drain().client.zookeeper.tls is None
    assert drain(zookeeper__ssl__client__enable="false").client.zookeeper.tls is None
    with_key = drain(**TLS, zookeeper__ssl__keystore__location="/k.pem", zookeeper__set__acl="true")
    assert with_key.client.zookeeper.creator_only, "a client certificate is an identity for ACLs"


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"truststore__location": "/ca.PEM"}, "PEM"),
        ({"truststore__location": "/ca.p12"}, "PKCS12"),
        ({"truststore__location": "/ca.jks"}, "PKCS12"),
        ({"truststore__location": "/ca.crt", "truststore__type": "PEM"}, "PEM"),
        ({"truststore__certificates": "env:CA"}, "PEM"),
    ],
)
def test_the_type_of_a_store_is_that_of_its_name(given: dict[str, str], kind: str) -> None:
    named = {f"zookeeper__ssl__{name}": value for name, value in given.items()}
    assert drain(**TLS, **named).client.zookeeper.tls.truststore_type == kind


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"zookeeper__ssl__truststore__location": "/ca.pem"}, "Set zookeeper.ssl.client.enable=true"),
        ({**TLS, "zookeeper__ssl__keystore__location": "/k.p12"}, "zookeeper.ssl.keystore.location requires"),
        ({**TLS, "zookeeper__ssl__crl__enable": "true"}, "does not check here whether certificates are revoked"),
        ({**TLS, "zookeeper__ssl__protocol": "TLSv1.1"}, "the version is insecure"),
        ({"zookeeper__sasl__mechanism": "DIGEST-MD5"}, "zookeeper.sasl.mechanism requires a user"),
        ({**USER, "zookeeper__sasl__mechanism": "GSSAPI"}, "no Kerberos"),
        ({"zookeeper__set__acl": "true", **TLS}, "zookeeper.set.acl=true requires an identity"),
    ],
)
def test_settings_that_do_not_fit_are_an_error_with_the_next_step(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        drain(**given)
    assert said in str(caught.value)
    assert "kafka.ssl" not in str(caught.value)


def test_a_weak_connection_to_zookeeper_and_javas_class_for_tls_are_noted() -> None:
    (note,) = drain(**USER).notes
    assert "anyone on the network can read zookeeper.password" in note
    (note,) = drain(**TLS, zookeeper__ssl__endpoint__identification__algorithm="").notes
    assert note.startswith("host names of ZooKeeper servers are not verified")
    assert drain(**TLS, **USER).notes == ()
    (note,) = drain(**TLS, zookeeper__clientCnxnSocket="org.apache.zookeeper.ClientCnxnSocketNetty").notes
    assert "zookeeper.ssl.client.enable" in note


# -- partitions as Kafka 0.7 names them --------------------------------------------------------------------------------


def test_partitions_are_named_by_broker_and_number() -> None:
    options = drain(subscribe=None, assign='{"events": ["0-1", "12-3", 4]}')
    assert options.subscription.assign == tuple(TopicPartition("events", n) for n in (1, 4, 120_003))
    options = drain(startingOffsets='{"events": {"0-1": 60, "1-2": -2, "3": 5}}')
    assert options.starting.offsets == {
        TopicPartition("events", 1): 60,
        TopicPartition("events", 10_002): -2,
        TopicPartition("events", 3): 5,
    }
    with pytest.raises(ConfigError, match="repeated partition"):
        drain(startingOffsets='{"events": {"1-2": 5, "10002": 6}}')


@pytest.mark.parametrize("name", ["0-10000", "999999-1", "-1", "1-", "1-2-3", "a-b"])
def test_an_invalid_partition_is_an_error(name: str) -> None:
    with pytest.raises(ConfigError, match="partition"):
        drain(subscribe=None, assign=f'{{"events": ["{name}"]}}')
