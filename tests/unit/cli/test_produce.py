"""`streamgroup produce` and its writer on a scripted cluster, and on an emulated Kafka 0.7 found in ZooKeeper."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.cli import _record_writer
from streamgroup.cli import produce as module
from streamgroup.cli._cluster import ClusterAddress
from streamgroup.cli._kcat_options import sink_options
from streamgroup.cli._record_writer import RecordWriter
from streamgroup.cli.main import main
from streamgroup.cli.produce import PAUSE, Constants, TextReader, split
from streamgroup.errors import ConfigError, EncodeError, ErrorCode
from streamgroup.kafka.cluster import changes
from streamgroup.kafka.cluster.registered import ClusterFromZooKeeper
from streamgroup.logformat import KAFKA07_LOG, KAFKA_LOG
from streamgroup.options.types import ClientOptions, SinkOptions
from tests.fakes.broker07 import OldBroker, start_broker07
from tests.fakes.registry07 import FakeNodes, registered
from tests.fakes.scripted_cluster import ScriptedCluster
from tests.unit.executor.write.test_sink_writer07 import payloads
from tests.unit.kafka.records import reference
from tests.waiting import wait_until

__all__ = ["start_broker07"]


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    found = ScriptedCluster(1, {"orders": 3, "other": 1})
    yield found
    found.stop()


def run(cluster: ScriptedCluster, *arguments: str, stdin: bytes = b"", topic: str | None = "orders") -> Result:
    servers = ",".join(f"{host}:{port}" for host, port in cluster.addresses)
    named = () if topic is None else ("-t", topic)
    return CliRunner().invoke(main, ["produce", "-b", servers, "--timeout", "4000", *named, *arguments], input=stdin)


def records(cluster: ScriptedCluster, partition: int) -> list[reference.Row]:
    found = [reference.split(each.data) for each in cluster.log("orders", partition)]
    return [row for batches in found for header, batch in batches for row in reference.batch_rows(header, batch)]


# -- lines -------------------------------------------------------------------------------------------------------------


def test_standard_input_is_read(cluster: ScriptedCluster) -> None:
    result = run(cluster, "-H", "a=b=c", "-p", "2", "-K", "\\t", stdin=b"k\tv\nl\tw")
    assert result.exit_code == 0, result.output
    assert "2 records to orders in" in result.stderr
    found = [(each.key, each.value, each.headers) for each in records(cluster, 2)]
    assert found == [(b"k", b"v", [("a", b"b=c")]), (b"l", b"w", [("a", b"b=c")])]


def test_files_are_read_one_after_the_other(cluster: ScriptedCluster, tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"1\n2\n")
    (tmp_path / "two").write_bytes(b"3\n5")
    arguments = (str(tmp_path / "one"), "-", str(tmp_path / "two"))
    assert run(cluster, "-p", "0", *arguments, stdin=b"x\n").exit_code == 0
    assert cluster.values("orders", 0) == [b"1", b"2", b"x", b"3", b"5"]


def test_many_records_with_a_small_buffer_are_written_once_each(cluster: ScriptedCluster) -> None:
    lines = [b"%d" % n for n in range(5_000)]
    result = run(cluster, "-X", "buffer.memory=2000", "-X", "batch.size=500", stdin=b"\n".join(lines))
    assert result.exit_code == 0, result.output
    found = [value for partition in range(3) for value in cluster.values("orders", partition)]
    assert sorted(found) == sorted(lines)


def test_a_key_may_be_the_same_for_all_and_empty_ones_null_where_the_user_says_so(cluster: ScriptedCluster) -> None:
    assert run(cluster, "-k", "both", stdin=b"a\nb\n").exit_code == 0
    (found,) = (log for log in (records(cluster, partition) for partition in range(3)) if log)
    assert [(each.key, each.value) for each in found] == [(b"both", b"a"), (b"both", b"b")]
    assert run(cluster, "-p", "0", "-K", ":", stdin=b":a\nb:\n").exit_code == 0
    assert run(cluster, "-p", "0", "-K", ":", "-Z", stdin=b":a\nb:\n").exit_code == 0
    pairs = [(each.key, each.value) for each in records(cluster, 0)]
    assert pairs[-4:] == [(b"", b"a"), (b"b", b""), (None, b"a"), (b"b", None)]


def test_another_delimiter_leaves_line_ends_in_the_records(cluster: ScriptedCluster) -> None:
    assert run(cluster, "-p", "0", "-D", "\\0;", stdin=b"a\n\0;b\r\0;c").exit_code == 0
    assert cluster.values("orders", 0) == [b"a\n", b"b\r", b"c"]


@pytest.mark.parametrize("codec", module.COMPRESSIONS)
def test_each_codec_is_written(cluster: ScriptedCluster, codec: str) -> None:
    assert run(cluster, "-p", "0", "-z", codec, stdin=b"a\n" * 100).exit_code == 0
    ((header, _),) = reference.split(cluster.log("orders", 0)[0].data)
    assert header.attributes & 7 == module.COMPRESSIONS.index(codec)


# -- JSON --------------------------------------------------------------------------------------------------------------

PRINTED = (
    b'{"topic":"orders","partition":1,"offset":7,"tstype":"create","ts":1700000000123,'
    b'"headers":["h","1","n",null],"key":"k\xc3\xa9","payload":null}\n'
    b'{"topic":"other","partition":0,"offset":9,"key":null,"payload":"v"}\n'
)


def test_what_consume_has_printed_goes_back_to_its_topics_and_partitions(cluster: ScriptedCluster) -> None:
    result = run(cluster, "-J", stdin=PRINTED, topic=None)
    assert result.exit_code == 0, result.output
    assert "2 records to their topics in" in result.stderr
    (record,) = records(cluster, 1)
    assert (record.key, record.value, record.timestamp) == ("ké".encode(), None, 1_700_000_000_123_000)
    assert record.headers == [("h", b"1"), ("n", None)]
    assert cluster.values("other", 0) == [b"v"]


def test_a_topic_of_the_command_line_takes_all_objects(cluster: ScriptedCluster) -> None:
    assert run(cluster, "-J", "-p", "2", "-H", "more=2", stdin=PRINTED).exit_code == 0
    found = [(each.value, each.headers) for each in records(cluster, 2)]
    assert found == [(None, [("h", b"1"), ("n", None), ("more", b"2")]), (b"v", [("more", b"2")])]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "cannot write line 3: not a JSON object"),
        (b"7", "cannot write line 3: not a JSON object"),
        (b"[" * 100_000, "cannot write line 3: not a JSON object"),
        (b'{"topic":"orders","payload":7}', "cannot write line 3: the field 'payload' must be a string or null"),
        (b'{"topic":"orders","ts":"x"}', "the field 'ts' must be a number of milliseconds or null"),
        (
            b'{"topic":"orders","headers":["a"]}',
            "the field 'headers' must be a list that alternates names and values: [name, value, name, value, ...]",
        ),
        (b'{"payload":"a"}', "the object has no topic. Add the field 'topic', or name a topic with -t"),
        (b'{"topic":"orders","partition":"x"}', "cannot write line 3: expected a partition number"),
        (
            b'{"topic":"orders","partition":9}',
            "cannot write line 3: topic orders has 3 partitions, from 0 to 2, and none 9. Correct the field",
        ),
        (b'{"topic":"orders","partition":-1}', "cannot write line 3: expected a partition number"),
        (b'{"topic":"orders","ts":-5}', "cannot write line 3: the field 'ts' is -5: expected milliseconds since 1970"),
        (b'{"topic":"orders","ts":9223372036854776}', "cannot write line 3: the field 'ts' is 9223372036854776"),
        (b'{"topic":"orders","ts":99999999999999999999}', "cannot write line 3: the field 'ts' is 9999999999999999"),
        (b'{"topic":"a b"}', "cannot write line 3: invalid topic name 'a b'"),
        (b'{"topic":"\\ud800"}', "cannot write line 3: invalid topic name"),
        (b'{"topic":"orders","key":"\\ud800"}', "cannot write line 3: the field 'key' has half of a surrogate pair"),
        (b'{"topic":"orders","headers":["\\udcff","v"]}', "the field 'headers' has half of a surrogate pair"),
    ],
)
def test_the_objects_before_an_invalid_one_are_written(cluster: ScriptedCluster, line: bytes, said: str) -> None:
    result = run(cluster, "-J", stdin=PRINTED + line, topic=None)
    assert result.exit_code == 1
    assert said in result.stderr
    assert "2 records to their topics" in result.stderr
    assert cluster.values("other", 0) == [b"v"]


@pytest.mark.parametrize(
    "behind",
    [
        b"{",
        b'{"topic":"orders","partition":8}',  # partitions are looked up topic by topic
        b'{"topic":"orders","partition":8}\n{"topic":"orders","payload":7}',
    ],
)
def test_of_several_invalid_objects_the_first_one_is_named(cluster: ScriptedCluster, behind: bytes) -> None:
    result = run(cluster, "-J", stdin=PRINTED + b'{"topic":"other","partition":9}\n%s\n' % behind, topic=None)
    assert result.exit_code == 1
    assert "cannot write line 3: topic other has 1 partition, from 0 to 0, and none 9" in result.stderr
    assert "2 records to their topics" in result.stderr
    assert cluster.values("other", 0) == [b"v"]


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def test_a_record_that_is_refused_is_an_error_with_its_partition(cluster: ScriptedCluster) -> None:
    cluster.answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "orders", 1)
    result = run(cluster, "-p", "1", stdin=b"a\n")
    assert result.exit_code == 1
    assert "orders-1" in result.stderr
    assert "TOPIC_AUTHORIZATION_FAILED" in result.stderr
    assert "0 records to orders" in result.stderr


@pytest.mark.slow
def test_silent_brokers_are_given_up(cluster: ScriptedCluster) -> None:
    cluster.mute(times=1_000, appended=False)
    result = run(cluster, "-p", "0", "--timeout", "400", stdin=b"a\n")
    assert result.exit_code == 1
    assert "orders-0" in result.stderr


def test_the_lines_before_an_invalid_line_are_delivered(cluster: ScriptedCluster) -> None:
    result = run(cluster, "-p", "0", "-K", ":", stdin=b"a:1\nb\nc:2\n")
    assert result.exit_code == 1
    assert "cannot write line 2: no ':' after the key. The lines before it were sent" in result.stderr
    assert cluster.values("orders", 0) == [b"1"]


def test_an_absent_file_is_named(cluster: ScriptedCluster, tmp_path: Path) -> None:
    result = run(cluster, str(tmp_path / "absent"))
    assert result.exit_code == 1
    assert "absent: No such file" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "topic"),
    [
        (("-H", "ab"), "orders"),
        (("-H", "\udcff=b"), "orders"),
        (("-K", ""), "orders"),
        (("-D", ""), "orders"),
        (("-p", "-1"), "orders"),
        (("-z", "rar"), "orders"),
        (("-X", "acks"), "orders"),
        (("-X", "compression.type=gzip"), "orders"),
        (("-k", "a", "-K", ":"), "orders"),
        (("-J", "-K", ":"), "orders"),
        ((), None),
        (("-J", "-p", "1"), None),
        (("-J", "--create", "1"), None),
    ],
)
def test_bad_arguments_are_refused(cluster: ScriptedCluster, arguments: tuple[str, ...], topic: str | None) -> None:
    assert run(cluster, *arguments, topic=topic).exit_code == 1, "as in kcat"


def test_a_cluster_is_required() -> None:
    result = CliRunner().invoke(main, ["produce", "-t", "orders"])
    assert (result.exit_code, "name the cluster with" in result.stderr) == (1, True)


def test_a_property_that_does_not_exist_is_an_error(cluster: ScriptedCluster) -> None:
    result = run(cluster, "-X", "acks=7", "-X", "lingerms=1")
    assert result.exit_code == 1
    assert "invalid value '7' for option acks" in result.stderr
    assert "Did you mean 'linger.ms'?" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "topic", "said"),
    [
        ((), "absent", "cannot write to topic 'absent': it does not exist. Create it with --create PARTITIONS"),
        (("-q",), "absent", "it does not exist"),
        (("-p", "3"), "orders", "cannot write to orders-3: the topic has 3 partitions, from 0 to 2. Correct -p"),
    ],
)
def test_an_unknown_topic_or_partition_is_an_error_at_once(
    cluster: ScriptedCluster, arguments: tuple[str, ...], topic: str, said: str
) -> None:
    result = run(cluster, *arguments, topic=topic, stdin=b"a")
    assert (result.exit_code, cluster.requests) == (1, [])
    assert said in result.stderr


def test_a_topic_is_made_where_that_is_asked_for(cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[dict[str, int], int]] = []

    def create(_: Any, topics: dict[str, int], __: float, *, replication_factor: int) -> None:
        made.append((topics, replication_factor))
        cluster.create("new", topics["new"])

    monkeypatch.setattr(changes, "create_topics", create)
    assert run(cluster, "--create", "6", topic="new", stdin=b"a").exit_code == 0
    assert run(cluster, "--create", "6", stdin=b"a").exit_code == 0
    assert made == [({"new": 6}, -1)]


def test_no_notice_names_an_option_that_the_user_has_not_given_and_quiet_prints_errors_only(
    cluster: ScriptedCluster,
) -> None:
    assert "ignored" not in run(cluster, stdin=b"a\n").stderr
    assert "% ignored option group.id" in run(cluster, "-X", "group.id=g", stdin=b"a\n").stderr
    assert run(cluster, "-q", stdin=b"a\n").stderr == ""


# -- input that comes slowly -------------------------------------------------------------------------------------------


def test_lines_are_written_while_their_program_goes_on(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    results: list[Result] = []
    running = threading.Thread(target=lambda: results.append(run(cluster, "-p", "0", str(pipe))))
    running.start()
    with pipe.open("wb", buffering=0) as lines:
        for count in (1, 2):
            lines.write(b"%d\nhal" % count)
            wait_until(lambda count=count: len(cluster.values("orders", 0)) == count, "the line is written")  # type: ignore[misc]
            lines.write(b"f")
        assert running.is_alive()
    running.join(10)
    assert cluster.values("orders", 0) == [b"1", b"half2", b"half"]
    assert results[0].exit_code == 0


# -- Kafka 0.7, and brokers that are found in ZooKeeper ----------------------------------------------------------------


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

    monkeypatch.setattr(_record_writer, "open_cluster", opened)
    return nodes


def run07(*arguments: str, stdin: bytes = b"") -> Result:
    given = ["produce", "--zookeeper", "zk1:2181", "-t", "events", "--timeout", "4000", "-X", "verifyWaitMs=500"]
    return CliRunner().invoke(main, [*given, *arguments], input=stdin)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
def test_kafka_07_is_written_through_zookeeper(start: Callable[..., OldBroker], registry: Registry, codec: str) -> None:
    broker = start(3)
    registry.data = registered([broker])
    result = run07("-p", "3-1", "-z", codec, "-X", "verify=true", stdin=b"a\nb\n")
    assert result.exit_code == 0, result.output
    assert result.stderr.endswith(" s\n")
    assert payloads(broker, 1) == [b"a", b"b"]
    assert "2 records to events" in result.stderr


def test_without_verify_the_user_learns_that_nothing_is_acknowledged(
    start: Callable[..., OldBroker], registry: Registry
) -> None:
    broker = start()
    registry.data = registered([broker])
    result = run07(stdin=b"a\nb\n")
    assert "Kafka 0.7 acknowledges nothing: -X verify=true reads records back" in result.stderr
    assert sorted(payloads(broker, 0) + payloads(broker, 1)) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("arguments", "stdin", "said"),
    [
        (("--create", "2"), b"a", "a broker of Kafka 0.7 creates a topic with its first record. Leave out --create"),
        (("-p", "7"), b"a", "invalid partition '7': expected <broker>-<partition>"),
        (("-p", "5-0"), b"a", "cannot write to events 5-0"),
        (("-z", "zstd"), b"a", "'zstd': Kafka 0.7 has none, gzip, snappy"),
        (("-p", "0-1", "-Z"), b"\n", "cannot write to events 0-1: messages of Kafka 0.7 have no null values"),
    ],
)
def test_what_kafka_07_cannot_do_is_an_error(
    start: Callable[..., OldBroker], registry: Registry, arguments: tuple[str, ...], stdin: bytes, said: str
) -> None:
    registry.data = registered([start()])
    result = run07(*arguments, stdin=stdin)
    assert result.exit_code == 1
    assert said in result.stderr


def input_records(*chunks: bytes, delimiter: bytes = b"\n") -> list[bytes]:
    return [record for found in split(chunks, delimiter) for record in found]


@given(
    st.lists(st.binary().filter(lambda b: b"\n" not in b and not b.endswith(b"\r"))),
    st.sampled_from([b"\n", b"\r\n"]),
    st.lists(st.integers(0, 200)),
)
def test_lines_lose_their_ends_and_nothing_else_wherever_they_are_cut(
    texts: list[bytes], end: bytes, cuts: list[int]
) -> None:
    data = b"".join(text + end for text in texts)

    def pieces() -> Iterator[bytes]:
        begin = 0
        for cut in sorted(cuts):
            yield data[begin:cut]
            begin = max(begin, min(cut, len(data)))
        yield data[begin:]

    assert input_records(*(piece for piece in pieces() if piece)) == texts


def test_a_last_line_needs_no_end_and_a_delimiter_may_be_cut_in_two() -> None:
    assert input_records(b"a\nb\r") == [b"a", b"b\r"]
    assert input_records(b"a;", b";b;;", b"c", delimiter=b";;") == [b"a", b"b", b"c"]
    assert list(split([b"a\nb", PAUSE, b"c\n"], b"\n")) == [[b"a"], [], [b"bc"]], "a pause cuts nothing"


@pytest.mark.parametrize(
    ("line", "delimiter", "key", "value"),
    [
        (b"a:b", None, None, b"a:b"),
        (b"a:b:c", b":", b"a", b"b:c"),
        (b":b", b":", b"", b"b"),
        (b"a::b", b"::", b"a", b"b"),
    ],
)
def test_a_line_becomes_a_record(line: bytes, delimiter: bytes | None, key: bytes | None, value: bytes) -> None:
    (row,) = TextReader(Constants(), delimiter).read([line], 1).to_pylist()
    assert (row.get("key"), row["value"]) == (key, value)


# -- record batches ----------------------------------------------------------------------------------------------------

IN_ZOOKEEPER = ClusterAddress(zookeeper="zk1:2181")


def sink(where: ClusterAddress, topic: str, **properties: str) -> SinkOptions:
    return sink_options(where, topic, properties, "none", 4_000, include_timestamp=False)


def of(cluster: ScriptedCluster) -> SinkOptions:
    return sink(ClusterAddress(",".join(f"{host}:{port}" for host, port in cluster.addresses)), "orders")


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
    with RecordWriter(sink(IN_ZOOKEEPER, "events", partitioner="round_robin")) as writer:
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
    with RecordWriter(sink(IN_ZOOKEEPER, "events")) as writer:
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
    with RecordWriter(sink(IN_ZOOKEEPER, "orders")) as writer:
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
        RecordWriter(sink(IN_ZOOKEEPER, "events", **{"kafka.compression.type": "lz4"}))
    assert registry.closed == 1
