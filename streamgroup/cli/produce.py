"""`streamgroup produce`: write the lines of a file or of standard input to a topic."""

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
"""The replication factor that stands for the brokers' `default.replication.factor` (KIP-464, since 2.4)."""
FLUSH_S = 0.5
_REPORTED = 5
"""How many different reasons an error lists."""


class NotDelivered(StreamGroupError):
    """The brokers did not accept some records."""


@dataclass(frozen=True, slots=True)
class Record:
    """The record of one line. `key` is None without a separator."""

    key: bytes | None
    value: bytes


@dataclass(slots=True)
class Delivery:
    """The outcome of the records that the producer has accepted so far."""

    delivered: int = 0
    failed: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def report(self, error: Any, message: Any) -> None:
        """Count one record. librdkafka calls this for each record."""
        if error is None:
            self.delivered += 1
            return
        self.failed += 1
        where = message.topic() if message.partition() is None else f"{message.topic()}-{message.partition()}"
        self.reasons[f"{where}: {error.str()}"] += 1

    def failures(self) -> str:
        """Return why records failed, the most frequent reason first."""
        reasons = [f"{reason} ({count} records)" for reason, count in self.reasons.most_common(_REPORTED)]
        return "; ".join(reasons) + ("; …" if len(self.reasons) > _REPORTED else "")


def record_of(line: bytes, number: int, separator: bytes | None) -> Record:
    """Return the record of a line without its line end. Raises ConfigError if the line lacks the key separator."""
    if separator is None:
        return Record(None, line)
    key, found, value = line.partition(separator)
    if not found:
        shown = separator.decode(errors="replace")
        raise ConfigError(f"cannot read line {number}: no {shown!r} after the key. The lines before it were sent")
    return Record(key, value)


def lines(stream: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines without their ends, `\\n` or `\\r\\n`. The last line may lack one."""
    for line in stream:
        yield line.removesuffix(b"\n").removesuffix(b"\r") if line.endswith(b"\n") else line


def send(
    producer: Any, records: Iterable[Record], advance: Callable[[int], None], *, timeout_s: float, **destination: Any
) -> Delivery:
    """Pass the records to `producer` and wait until the brokers have accepted them.

    `destination` holds the other arguments of its `produce`. `advance` gets the number of records after each thousand.
    Raises TransportError if the brokers answer for no queued record within `timeout_s`.
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
    """Wait until the brokers have answered for at least one queued record."""
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
                f"{delivery.delivered} were delivered). Check --bootstrap-server"
            )


def _headers(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> list[tuple[str, bytes]]:
    for value in values:
        if "=" not in value:
            raise click.BadParameter(f"invalid header {value!r}: expected key=value")
    return [(key, text.encode()) for key, _, text in (value.partition("=") for value in values)]


@click.command()
@click.option(
    "-b",
    "--bootstrap-server",
    required=True,
    metavar="HOST:PORT",
    help="Addresses of some brokers, separated by commas.",
)
@click.option("-t", "--topic", required=True, help="Topic to write to.")
@click.option("-p", "--partition", type=click.IntRange(0), help="Partition to write to.  [default: by the key]")
@click.option(
    "--create",
    type=click.IntRange(1),
    metavar="PARTITIONS",
    help="Create the topic with this many partitions if it does not exist.",
)
@click.option(
    "-K", "--key-separator", metavar="TEXT", help="Text between the key and the value of a line; `\\t` is a tab."
)
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    callback=_headers,
    metavar="KEY=VALUE",
    help="Header of every record; repeatable.",
)
@click.option(
    "-z",
    "--compression",
    type=click.Choice(COMPRESSIONS),
    default="none",
    show_default=True,
    help="Compression codec of the record batches.",
)
@click.option(
    "--timeout",
    type=click.IntRange(1),
    default=30_000,
    show_default=True,
    help="Milliseconds to wait for the answer to any record.",
)
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
    """Write lines to a topic, one record for each line.

    The lines come from FILE, or from standard input without FILE.
    """
    separator = None if key_separator is None else key_separator.replace("\\t", "\t").encode()
    if separator == b"":
        raise click.BadParameter("expected a text that is not empty", param_hint="--key-separator")
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
    """Require that the topic exists. librdkafka would wait for it until every record has timed out."""
    cluster = cluster_of(servers, "streamgroup-produce", timeout_ms)
    try:
        deadline = cluster.deadline(timeout_ms)
        if topic in cluster.snapshot([topic], deadline).topics:
            return
        if create is None:
            raise ConfigError(
                f"cannot write to topic {topic!r} at {servers}: it does not exist. Create it with --create PARTITIONS"
            )
        admin.create_topics(cluster, {topic: create}, deadline, replication_factor=BROKERS_DEFAULT)
    finally:
        cluster.close()


def _producer(servers: str, compression: str, timeout_ms: int) -> Any:
    try:
        from confluent_kafka import Producer  # noqa: PLC0415  (an extra)
    except ImportError:
        raise ConfigError(
            "cannot produce without confluent-kafka. Install it: pip install 'streamgroup[produce]'"
        ) from None
    return Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": compression,
            "client.id": "streamgroup-produce",
            "linger.ms": 20,
            "log_level": 3,  # librdkafka would log each retry; a failed record becomes an error of this command
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
        raise ConfigError(f"cannot read file {file}: {error.strerror}") from None
    with stream:
        yield stream


@contextlib.contextmanager
def _bar(topic: str) -> Iterator[Callable[[int], None]]:
    """Show a counter if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (SpinnerColumn(), TextColumn("{task.description}: {task.completed:.0f} records"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(topic, total=None)
        yield lambda count: bar.advance(task, count)
