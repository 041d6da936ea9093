"""Where a write finds its brokers: scripted registries, and brokers that are never asked."""

from __future__ import annotations

import pytest

from streamgroup.coordinator.write_plan import config07, plan_write
from streamgroup.errors import ConfigError, TransportError
from streamgroup.kafka.cluster.registered import ClusterFromZooKeeper
from streamgroup.kafka.producer.kafka07 import Kafka07Target
from streamgroup.options.types import ClientOptions, ProducerOptions, SinkOptions
from tests.fakes.registry07 import FakeNodes, client07

OLD = {
    "/brokers/ids/0": b"h-1:127.0.0.1:9092",
    "/brokers/ids/2": b"h-2:127.0.0.1:9093",
    "/brokers/topics/t/0": b"1",
    "/brokers/topics/t/2": b"2",
    "/brokers/topics/other/0": b"1",
}
NEW = {f"/brokers/ids/{n}": b'{"host":"127.0.0.1","port":909%d,"version":1}' % n for n in (2, 1)}


def options(topic: str | None = "t", verify: bool = False, **producer: object) -> SinkOptions:
    chosen = ProducerOptions(**{"max_block_ms": 300, **producer})  # type: ignore[arg-type]
    return SinkOptions(client07(), chosen, topic, verify=verify)


def plan(nodes: dict[str, bytes], given: SinkOptions) -> tuple[SinkOptions, Kafka07Target | None]:
    return plan_write(given, lambda client: ClusterFromZooKeeper(client, FakeNodes(nodes)))


def test_bootstrap_servers_are_taken_at_their_word() -> None:
    given = SinkOptions(ClientOptions((("127.0.0.1", 9092),)), ProducerOptions(), "t")
    assert plan_write(given) == (given, None)


def test_a_cluster_of_07_is_planned_with_its_brokers_and_the_topic() -> None:
    for_tasks, target = plan(OLD, options(verify=True, compression="gzip"))
    assert target is not None
    assert sorted(target.snapshot.brokers) == [0, 2]
    assert {t: [p.partition for p in i.partitions] for t, i in target.snapshot.topics.items()} == {
        "t": [0, 20000, 20001]
    }
    assert (target.config.codec, target.config.verify, target.config.max_message_size) == ("gzip", True, 1_000_000)
    assert for_tasks.client.zookeeper is None, "tasks do not read ZooKeeper"


def test_without_the_option_topic_all_topics_are_planned() -> None:
    _, target = plan(OLD, options(topic=None))
    assert target is not None
    assert sorted(target.snapshot.topics) == ["other", "t"]


def test_a_topic_that_does_not_exist_is_planned_as_a_new_one() -> None:
    _, target = plan(OLD, options(topic="new"))
    assert target is not None
    assert not target.snapshot.topics.get("new")


def test_a_message_set_of_kafka_07_fits_into_a_fetch_of_its_consumers() -> None:
    """Compressed, it is one message. The consumers of 0.7 fetch 300 KiB by default, and stop at a larger message."""
    assert config07(options()).batch_size == 256 * 1024
    assert config07(options(batch_size=1000)).batch_size == 1000


def test_later_brokers_in_zookeeper_become_the_bootstrap_servers() -> None:
    for_tasks, target = plan(NEW, options())
    assert target is None
    assert for_tasks.client.bootstrap_servers == (("127.0.0.1", 9091), ("127.0.0.1", 9092))
    assert for_tasks.client.zookeeper is None


@pytest.mark.parametrize(
    ("nodes", "given", "said"),
    [
        (NEW, options(verify=True), "cannot write with verify=true: it is for Kafka 0.7"),
        (OLD, options(compression="lz4"), "'lz4': Kafka 0.7 has none, gzip, snappy"),
        ({"/other": b""}, options(), "no brokers in .*zookeeper.connect"),
        (OLD, options(verify=True, delivery_timeout_ms=100), "delivery.timeout.ms=100 is below"),
    ],
)
def test_a_write_that_the_cluster_rules_out_is_refused_before_a_task_runs(
    nodes: dict[str, bytes], given: SinkOptions, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        plan(nodes, given)


def test_verify_is_refused_for_bootstrap_servers() -> None:
    given = SinkOptions(ClientOptions((("127.0.0.1", 9092),)), ProducerOptions(), "t", verify=True)
    with pytest.raises(ConfigError, match="cannot write with verify=true"):
        plan_write(given)


def test_brokers_that_stay_away_are_waited_for_until_max_block_ms() -> None:
    with pytest.raises(TransportError, match="no brokers in"):
        plan({"/brokers/ids": b""}, options())
