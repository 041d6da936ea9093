"""`streamgroup produce`: lines of a file, or of standard input, as records of a topic."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import click

from streamgroup.cli._cluster import cluster_of
from streamgroup.cluster import admin
from streamgroup.errors import ConfigError, StreamGroupError, TransportError

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
BROKERS_DEFAULT = -1
"""As replication factor: `default.replication.factor` (KIP-464, brokers since 2.4)."""
FLUSH_S = 0.5
_REPORTED = 5
"""So many different failures are told of; the rest is counted."""


class NotDelivered(StreamGroupError):
    """Some records were not taken by the brokers."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a line becomes; `key` is None without a separator."""

    key: bytes | None
    value: bytes


@dataclass(slots=True)
class Delivery:
    """What has become of the records handed over so far."""

    delivered: int = 0
    failed: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def report(self, error: Any, message: Any) -> None:
        """librdkafka's word on one record."""
        if error is None:
            self.delivered += 1
            return
        self.failed += 1
        where = message.topic() if message.partition() is None else f"{message.topic()}-{message.partition()}"
        self.reasons[f"{where}: {error.str()}"] += 1

    def failures(self) -> str:
        """Why records failed, the most frequent reason first."""
        told = [f"{reason} ({count} records)" for reason, count in self.reasons.most_common(_REPORTED)]
        return "; ".join(told) + ("; …" if len(self.reasons) > _REPORTED else "")


def record_of(line: bytes, number: int, separator: bytes | None) -> Record:
    """The record of a line without its end. Raises ConfigError where the separator of the key is missing."""
    if separator is None:
        return Record(None, line)
    key, found, value = line.partition(separator)
    if not found:
        shown = separator.decode(errors="replace")
        raise ConfigError(f"line {number} has no {shown!r} after its key: lines before it were sent")
    return Record(key, value)


def lines(stream: Iterable[bytes]) -> Iterator[bytes]:
    """The lines without their ends, `\\n` or `\\r\\n`; a last line needs none."""
    for line in stream:
        yield line.removesuffix(b"\n").removesuffix(b"\r") if line.endswith(b"\n") else line


def send(
    producer: Any,
    records: Iterable[Record],
    advance: Callable[[int], None],
    *,
    timeout_s: float,
    **destination: Any,
) -> Delivery:
    """Hand the records to `producer` and wait until the brokers have taken them.

    `destination` holds the other arguments of its `produce`; `advance` is told how many lines were handed over. Raises
    TransportError where the brokers have taken none of what is queued for `timeout_s`.
    """
    delivery = Delivery()
    for number, record in enumerate(records, 1):
        while True:
            try:
                producer.produce(value=record.value, key=record.key, on_delivery=delivery.report, **destination)
                break
            except BufferError:
                _wait_for_room(producer, delivery, timeout_s)
        producer.poll(0)
        if number % 1000 == 0:
            advance(1000)
    while (left := len(producer)) > 0:
        _wait_for_room(producer, delivery, timeout_s, left)
    return delivery


def _wait_for_room(producer: Any, delivery: Delivery, timeout_s: float, left: int | None = None) -> None:
    """Wait until at least one queued record has been answered."""
    answered = delivery.delivered + delivery.failed
    deadline = time.monotonic() + timeout_s
    while True:
        if left is None:
            producer.poll(FLUSH_S)
        else:
            producer.flush(FLUSH_S)
        if delivery.delivered + delivery.failed > answered:
            return
        if time.monotonic() >= deadline:
            raise TransportError(
                f"the brokers have answered for no record within {timeout_s:.0f} s ({len(producer)} are waiting, "
                f"{delivery.delivered} were delivered); is --bootstrap-server right?"
            )


def _headers(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> list[tuple[str, bytes]]:
    for value in values:
        if "=" not in value:
            raise click.BadParameter(f"{value!r} is not of the form key=value")
    return [(key, text.encode()) for key, _, text in (value.partition("=") for value in values)]


@click.command()
@click.option("-b", "--bootstrap-server", required=True, metavar="HOST:PORT", help="Brokers to begin with.")
@click.option("-t", "--topic", required=True, help="The topic to write to.")
@click.option("-p", "--partition", type=click.IntRange(0), help="Only this one. [default: by the key]")
@click.option("--create", type=click.IntRange(1), metavar="PARTITIONS", help="Make the topic if it does not exist.")
@click.option("-K", "--key-separator", metavar="TEXT", help="Lines are key, TEXT, value; `\\t` is a tab.")
@click.option("-H", "--header", "headers", multiple=True, callback=_headers, metavar="KEY=VALUE", help="Repeatable.")
@click.option("-z", "--compression", type=click.Choice(COMPRESSIONS), default="none", show_default=True)
@click.option("--timeout", type=click.IntRange(1), default=30_000, show_default=True, help="ms without any answer.")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), default="-")
def produce(
    *,
    bootstrap_server: str,
    topic: str,
    partition: int | None,
    create: int | None,
    key_separator: str | None,
    headers: list[tuple[str, bytes]],
    compression: str,
    timeout: int,
    file: Path,
) -> None:
    """Write each line of FILE (standard input without it) to a topic as one record."""
    separator = None if key_separator is None else key_separator.replace("\\t", "\t").encode()
    if separator == b"":
        raise click.BadParameter("it must not be empty", param_hint="--key-separator")
    _require_topic(bootstrap_server, topic, create, timeout)
    producer = _producer(bootstrap_server, compression, timeout)
    destination: dict[str, Any] = {"topic": topic, "headers": headers or None}
    if partition is not None:
        destination["partition"] = partition
    began = time.monotonic()
    with _opened(file) as stream, _bar(topic) as advance:
        records = (record_of(line, number, separator) for number, line in enumerate(lines(stream), 1))
        try:
            delivery = send(producer, records, advance, timeout_s=timeout / 1000, **destination)
        except ConfigError:
            producer.flush(timeout / 1000)
            raise
    click.echo(f"{delivery.delivered} records to {topic} in {time.monotonic() - began:.1f} s", err=True)
    if delivery.failed:
        raise NotDelivered(f"{delivery.failed} records were not delivered: {delivery.failures()}")


def _require_topic(servers: str, topic: str, create: int | None, timeout_ms: int) -> None:
    """Make sure that the topic exists: librdkafka would wait for it until every record has timed out."""
    cluster = cluster_of(servers, "streamgroup-produce", timeout_ms)
    try:
        deadline = cluster.deadline(timeout_ms)
        if topic in cluster.snapshot([topic], deadline).topics:
            return
        if create is None:
            raise ConfigError(f"topic {topic!r} does not exist at {servers}: --create PARTITIONS makes it")
        admin.create_topics(cluster, {topic: create}, deadline, replication_factor=BROKERS_DEFAULT)
    finally:
        cluster.close()


def _producer(servers: str, compression: str, timeout_ms: int) -> Any:
    try:
        from confluent_kafka import Producer  # noqa: PLC0415  (an extra)
    except ImportError:
        raise ConfigError("produce needs confluent-kafka: pip install 'streamgroup[produce]'") from None
    return Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": compression,
            "client.id": "streamgroup-produce",
            "linger.ms": 20,
            "log_level": 3,  # librdkafka tells of each retry; what does not succeed is an error of ours
            "enable.idempotence": True,
            "message.timeout.ms": timeout_ms,
        }
    )


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    if str(file) == "-":
        yield sys.stdin.buffer
        return
    try:
        stream = file.open("rb")
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    with stream:
        yield stream


@contextlib.contextmanager
def _bar(topic: str) -> Iterator[Callable[[int], None]]:
    """A counter on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (SpinnerColumn(), TextColumn("{task.description}: {task.completed:.0f} records"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(topic, total=None)
        yield lambda count: bar.advance(task, count)
