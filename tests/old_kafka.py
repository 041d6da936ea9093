"""Old Kafkas by their own tools: their console producers and consumers, and what they say of a group."""

from __future__ import annotations

import struct
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from streamgroup.testing import KafkaServer, java_tool
from streamgroup.testing.releases import release_of
from streamgroup.testing.zookeeper_mode import zookeeper_client
from tests.console_tools import console_consumer, console_option

TOOL_TIMEOUT_S = 60
SEPARATOR = "\t"
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3}
"""The codecs of 0.8.2 to 1.1, and each one's number in a message's attributes."""

UTF8 = ("-Xmx256m", "-Dfile.encoding=UTF-8")

Record = tuple[str | None, str]


def number(server: KafkaServer) -> tuple[int, ...]:
    return release_of(server.version).number


def run_tool(server: KafkaServer, main_class: str, *arguments: str, stdin: str = "", check: bool = True) -> str:
    """The output of one of the version's own tools."""
    argv = java_tool(server.version, main_class, *arguments, jvm_flags=UTF8)
    with tempfile.TemporaryFile() as file:
        file.write(stdin.encode())
        file.seek(0)
        try:
            ran = subprocess.run(argv, stdin=file, capture_output=True, timeout=TOOL_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired as expired:
            out, err = (each or b"" for each in (expired.stdout, expired.stderr))
            lines = out.splitlines()
            pytest.fail(
                f"{main_class} ran for {TOOL_TIMEOUT_S} s and printed {len(lines)} lines, {lines[-1:]}; {err!r}"
            )
    said = ran.stderr.decode(errors="replace")
    assert not check or ran.returncode == 0, f"{main_class}: {said[-3000:]}"
    return ran.stdout.decode()


def java_produce(
    server: KafkaServer, topic: str, records: Iterable[Record], codec: str = "none", *, scala: bool = False
) -> list[Record]:
    """Write `records` with the version's own console producer: first those without keys, then those with.

    With the producer in Java, or the older one in `scala`, which 0.8.2 takes unless it is told otherwise.
    """
    of = list(records)
    unasked_is_scala = number(server) < (0, 9)
    choice = () if scala is unasked_is_scala else ("--old-producer",) if scala else ("--new-producer",)
    for keyed in (False, True):
        lines = [
            value if key is None else f"{key}{SEPARATOR}{value}" for key, value in of if (key is not None) is keyed
        ]
        if lines:
            properties = ("--property", "parse.key=true", "--property", f"key.separator={SEPARATOR}") if keyed else ()
            said = run_tool(
                server,
                "kafka.tools.ConsoleProducer",
                *("--broker-list", server.bootstrap_servers, "--topic", topic, "--compression-codec", codec),
                # Without answers (0.9's default) what is unread when the producer closes its connection is lost.
                *("--request-required-acks", "-1"),
                *choice,
                *properties,
                stdin="".join(line + "\n" for line in lines),
            )
            assert "ERROR" not in said, said
    return of


def java_consume(server: KafkaServer, topic: str, count: int, *printed: str) -> list[str]:
    """`count` records from the beginning, by the version's own consumer: before 0.10 the old one.

    Each is its value. Before it, with tabs between them, stand the fields of `printed`: timestamp, partition, headers,
    key, always in this order.
    """
    old = number(server) < (0, 10)
    where = ("--zookeeper", server.zookeeper_connect) if old else ("--bootstrap-server", server.bootstrap_servers)
    property_ = console_option(server.version, "--property")
    said = run_tool(
        server,
        console_consumer(server.version),
        *(*where, "--topic", topic, "--from-beginning", "--max-messages", str(count)),
        *(("--new-consumer",) if (0, 10) <= number(server) < (0, 10, 1) else ()),
        *(argument for field in printed for argument in (property_, f"print.{field}=true")),
    )
    return said.split("\n")[:-1]


@dataclass(frozen=True)
class Stored:
    """How a broker keeps the first message of a partition."""

    magic: int
    codec: int


def stored(server: KafkaServer, topic: str, partition: int = 0) -> Stored:
    """As it stands in the log of broker 0."""
    log = server.data_dir / "broker-0" / "data" / f"{topic}-{partition}" / f"{0:020}.log"
    first = log.read_bytes()[:32]
    # offset (8), size (4), CRC or leader epoch (4), magic (1); then attributes (1), or those of a batch (4 + 2).
    magic = first[16]
    attributes = struct.unpack_from(">h", first, 21)[0] if magic >= 2 else first[17]
    return Stored(magic, attributes & 0x07)


def committed_by_tool(
    server: KafkaServer, group: str, topics: Iterable[str], *, by_zookeeper: bool = False
) -> dict[tuple[str, int], int]:
    """The group's offsets as the version's own tool tells them; without partitions of which it has none.

    From 0.9 on the tool is told where to look for the group. That of 0.8.2 looks at the brokers first, then there.
    """
    if number(server) < (0, 9):
        return _by_offset_checker(server, group, topics)
    said = run_tool(
        server,
        "kafka.admin.ConsumerGroupCommand"
        if number(server) < (3, 9)
        else "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *(
            ("--zookeeper", server.zookeeper_connect)
            if by_zookeeper
            else ("--bootstrap-server", server.bootstrap_servers)
        ),
        *(("--new-consumer",) if number(server) < (1,) and not by_zookeeper else ()),
        *("--describe", "--group", group),
        check=False,
    )
    rows = [[cell.strip(",") for cell in line.split()] for line in said.splitlines()]
    # 0.9 begins a row with the group, 0.10 and 1.1 with the topic, 2.8 and later with the group again.
    first = 0 if (0, 10) <= number(server) < (2,) else 1
    found = [row[first:] for row in rows if len(row) > first + 3 and row[first] in set(topics)]
    return {(topic, int(partition)): int(offset) for topic, partition, offset, *_ in found if offset.isdigit()}


def _by_offset_checker(server: KafkaServer, group: str, topics: Iterable[str]) -> dict[tuple[str, int], int]:
    """`Group Topic Pid Offset logSize Lag Owner`."""
    said = run_tool(
        server,
        "kafka.tools.ConsumerOffsetChecker",
        *("--zookeeper", server.zookeeper_connect, "--group", group, "--topic", ",".join(topics)),
        check=False,
    )
    rows = [line.split() for line in said.splitlines()]
    return {(row[1], int(row[2])): int(row[3]) for row in rows if len(row) > 3 and row[0] == group and row[3].isdigit()}


def offsets_in_zookeeper(server: KafkaServer, group: str) -> dict[tuple[str, int], int]:
    """The offsets from which an old consumer of the group would begin; empty before the first commit."""
    path = f"/consumers/{group}/offsets"
    with zookeeper_client(server.zookeeper_connect) as client:
        topics = client.get_children(path) if client.exists(path) else []
        return {
            (topic, int(partition)): int(client.get(f"{path}/{topic}/{partition}")[0])
            for topic in topics
            for partition in client.get_children(f"{path}/{topic}")
        }


def librdkafka(server: KafkaServer) -> dict[str, Any]:
    """The settings of librdkafka for this broker: before 0.10 it cannot find out by itself."""
    settings = {"bootstrap.servers": server.bootstrap_servers, "log_level": 3}
    if number(server) >= (0, 10):
        return settings
    return {**settings, "api.version.request": False, "broker.version.fallback": server.version}


def offsets_at_brokers(server: KafkaServer, group: str, topics: Iterable[str]) -> dict[tuple[str, int], int]:
    """The offsets from which a consumer of the group without ZooKeeper would begin."""
    consumer = Consumer({**librdkafka(server), "group.id": group})
    try:
        wanted = [
            TopicPartition(topic, partition)
            for topic in topics
            for partition in consumer.list_topics(topic, timeout=TOOL_TIMEOUT_S).topics[topic].partitions
        ]
        found = consumer.committed(wanted, timeout=TOOL_TIMEOUT_S)
    finally:
        consumer.close()
    return {(tp.topic, tp.partition): tp.offset for tp in found if tp.offset >= 0}
