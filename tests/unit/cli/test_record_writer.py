"""A writer takes record batches to the cluster of a command line, in the protocol of its brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
import pytest

from streamgroup.cli import _record_writer as module
from streamgroup.cli._cluster import ClusterAddress
from streamgroup.cli._kcat_options import sink_options
from streamgroup.cli._record_writer import RecordWriter
from streamgroup.errors import ConfigError, EncodeError
from streamgroup.kafka.cluster.registered import ClusterFromZooKeeper
from streamgroup.logformat import KAFKA07_LOG, KAFKA_LOG
from streamgroup.options.types import ClientOptions, SinkOptions
from tests.fakes.broker07 import OldBroker, start_broker07
from tests.fakes.registry07 import FakeNodes, registered
from tests.fakes.scripted_cluster import ScriptedCluster
from tests.unit.executor.write.test_sink_writer07 import payloads

__all__ = ["start_broker07"]

IN_ZOOKEEPER = ClusterAddress(zookeeper="zk1:2181")


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    found = ScriptedCluster(1, {"orders": 2})
    yield found
    found.stop()


class Registry(FakeNodes):
    """The nodes of brokers and topics in ZooKeeper. `change` replaces them, and their watch fires."""

    on_change: Callable[[], None]
    closed = 0

    def change(self, data: Mapping[str, bytes]) -> None:
        self.data = dict(data)
        self.on_change()

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """Clusters find their brokers here."""
    nodes = Registry({})

    def opened(options: ClientOptions, on_change: Callable[[], None]) -> ClusterFromZooKeeper:
        nodes.on_change = on_change
        return ClusterFromZooKeeper(options, nodes)

    monkeypatch.setattr(module, "open_cluster", opened)
    return nodes


def options(where: ClusterAddress, topic: str, **properties: str) -> SinkOptions:
    return sink_options(where, topic, properties, "none", 4_000, include_timestamp=False)


def of(cluster: ScriptedCluster) -> SinkOptions:
    return options(ClusterAddress(",".join(f"{host}:{port}" for host, port in cluster.addresses)), "orders")


def values(*found: bytes, partition: int | None = None) -> pa.RecordBatch:
    columns = {"value": pa.array(found, pa.binary())}
    if partition is not None:
        columns["partition"] = pa.array([partition] * len(found), pa.int32())
    return pa.record_batch(columns)


def test_batches_are_delivered_in_their_order_and_counted(cluster: ScriptedCluster) -> None:
    with RecordWriter(of(cluster)) as writer:
        assert writer.log_format is KAFKA_LOG
        writer.write(values(b"a", b"b", partition=1))
        writer.write(values(partition=1))
        writer.write(values(b"c", partition=1))
        writer.flush()
        assert (writer.rows, writer.written.records) == (3, 3)
    assert (cluster.values("orders", 0), cluster.values("orders", 1)) == ([], [b"a", b"b", b"c"])


def test_rows_that_are_refused_are_counted_as_rows_and_not_as_written(cluster: ScriptedCluster) -> None:
    with RecordWriter(of(cluster)) as writer:
        writer.write(values(b"a", partition=0))
        with pytest.raises(EncodeError, match="7"):
            writer.write(values(b"b", b"c", partition=7))
        writer.flush()
        assert (writer.rows, writer.written.records) == (3, 1)


def test_a_new_topic_of_kafka_07_spreads_once_its_brokers_have_registered_it(
    start: Callable[..., OldBroker], registry: Registry
) -> None:
    broker = start()
    registry.data = registered([broker], topics=())
    with RecordWriter(options(IN_ZOOKEEPER, "events", partitioner="round_robin")) as writer:
        assert writer.log_format is KAFKA07_LOG
        writer.write(values(b"a", b"b"))
        writer.flush()
        assert (payloads(broker, 0), payloads(broker, 1)) == ([b"a", b"b"], [])
        registry.change(registered([broker]))
        writer.write(values(b"c", b"d"))
        writer.flush()
    assert payloads(broker, 1)
    assert registry.closed == 1


def test_without_a_change_in_zookeeper_a_batch_needs_no_look_at_it(
    start: Callable[..., OldBroker], registry: Registry
) -> None:
    registry.data = registered([start()])
    with RecordWriter(options(IN_ZOOKEEPER, "events")) as writer:
        looks = len(registry.looks)
        for value in (b"a", b"b"):
            writer.write(values(value))
            writer.flush()
        assert len(registry.looks) == looks
        registry.change(registry.data)
        writer.write(values(b"c"))
        assert len(registry.looks) > looks


def test_later_brokers_that_are_registered_in_zookeeper_are_written_to_without_another_look_at_it(
    cluster: ScriptedCluster, registry: Registry
) -> None:
    _, port = cluster.addresses[0]
    registry.data = {"/brokers/ids/0": b'{"host":"127.0.0.1","port":%d,"version":1}' % port}
    with RecordWriter(options(IN_ZOOKEEPER, "orders")) as writer:
        assert writer.log_format is KAFKA_LOG
        assert writer.options.client.bootstrap_servers == (("127.0.0.1", port),)
        registry.change({})
        writer.write(values(b"a", partition=0))
        writer.flush()
    assert cluster.values("orders", 0) == [b"a"]
    assert registry.closed == 1


def test_a_write_that_the_brokers_rule_out_leaves_no_connection_to_zookeeper(
    start: Callable[..., OldBroker], registry: Registry
) -> None:
    registry.data = registered([start()])
    with pytest.raises(ConfigError, match=r"'lz4': Kafka 0\.7 has none, gzip, snappy"):
        RecordWriter(options(IN_ZOOKEEPER, "events", **{"kafka.compression.type": "lz4"}))
    assert registry.closed == 1
