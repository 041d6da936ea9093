"""`streamgroup produce`: write lines, or JSON objects, to topics of any Kafka, with kcat's options."""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import click
import pyarrow as pa

from streamgroup.cli._click import CONNECTION, KcatCommand, flag, notice_options, option, parsed, timeout_option
from streamgroup.cli._cluster import ClusterAddress, cluster_options_without_z
from streamgroup.cli._kcat_options import parse_produce_properties, sink_options
from streamgroup.cli._output import Notices, StopSignals
from streamgroup.errors import ConfigError, UnknownPartition
from streamgroup.frozen import frozen
from streamgroup.logformat import KAFKA07_LOG, KAFKA_LOG, LogFormat
from streamgroup.options.kinds import TOPIC
from streamgroup.text import counted

if TYPE_CHECKING:
    from streamgroup.cli._record_writer import RecordWriter
    from streamgroup.options.types import SinkOptions

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


class StopReading(Exception):
    """A signal ends the command. Complete records that were read until then are written."""


def _headers(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> list[tuple[str, bytes]]:
    headers = []
    for value in values:
        key, equals, text = value.partition("=")
        if not equals:
            raise click.BadParameter(f"invalid header {value!r}: expected KEY=VALUE")
        if not _is_utf8(key):
            raise click.BadParameter(f"invalid header {value!r}: expected a key in UTF-8")
        headers.append((key, os.fsencode(text)))
    return headers


_WHERE = "Where to write"
_INPUT = "What to write"


@click.command(
    cls=KcatCommand,
    short_help="Write lines or JSON objects to a topic, with kcat's options.",
    examples={
        "streamgroup produce -b localhost:9092 -t orders orders.txt": "a record for each line of a file",
        "echo 'k1:v1' | streamgroup produce -b localhost:9092 -t orders -K : --create 6": "a key, into a new topic",
        "streamgroup produce -b localhost:9092 -J records.json": "records that `streamgroup consume -J` has printed",
    },
)
@option(
    _WHERE, "-t", "--topic", metavar="TOPIC", help="Required without -J.  [default with -J: the topic of each object]"
)
@option(
    _WHERE,
    "-p",
    "--partition",
    metavar="PARTITION",
    help="Partition; `1-2` in Kafka 0.7.  [default: chosen by the key]",
)
@option(
    _WHERE,
    "--create",
    type=click.IntRange(1),
    metavar="PARTITIONS",
    help="Create the topic with this many partitions if it does not exist.",
)
@option(
    _INPUT,
    "-K",
    "--key-delimiter",
    metavar="TEXT",
    help=r"Text between the key and the value of a record; takes \n, \t, \r, \0 and \xNN.  [default: no keys]",
)
@option(_INPUT, "-k", "--key", metavar="KEY", help="Key of every record.")
@option(_INPUT, "-D", "--delimiter", default="\\n", metavar="TEXT", help="Text between two records.  [default: \\n]")
@flag(_INPUT, "-J", "--json", "as_json", help="Read JSON objects, as `streamgroup consume -J` prints them.")
@flag(_INPUT, "-Z", "--empty-is-null", help="Write empty keys and values as null.")
@option(
    _INPUT,
    "-H",
    "--header",
    "headers",
    multiple=True,
    callback=_headers,
    metavar="KEY=VALUE",
    help="Header of every record; repeatable.",
)
@option(
    _INPUT,
    "-z",
    "--compression",
    type=click.Choice(COMPRESSIONS),
    default="none",
    show_default=True,
    help="Compression codec.",
)
@notice_options
@cluster_options_without_z
@option(
    CONNECTION,
    "-X",
    "--property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="Property of a Kafka producer, such as acks=1, or partitioner, verify, verifyWaitMs; repeatable.",
)
@timeout_option(30_000, "How long the delivery of a record may take.")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, allow_dash=True), metavar="[FILE]...")
def produce(
    *,
    where: ClusterAddress,
    topic: str | None,
    partition: str | None,
    create: int | None,
    key_delimiter: str | None,
    key: str | None,
    delimiter: str,
    as_json: bool,
    empty_is_null: bool,
    headers: list[tuple[str, bytes]],
    compression: str,
    properties: tuple[str, ...],
    notices: Notices,
    timeout: int,
    files: tuple[Path, ...],
) -> None:
    """Write each line of FILEs, or of standard input, as one record of a topic.

    The cluster may run any Kafka from 0.7 on. The options are kcat's. Brokers of Kafka 0.7 acknowledge nothing: with
    -X verify=true the command reads the records back.
    """
    from streamgroup.cli._record_format import unescape  # noqa: PLC0415
    from streamgroup.cli._record_writer import RecordWriter  # noqa: PLC0415

    _check_usage(topic, partition, key_delimiter, key, as_json=as_json, create=create)
    end = parsed("-D", lambda: _text(unescape(os.fsencode(delimiter))))
    separator = None if key_delimiter is None else parsed("-K", lambda: _text(unescape(os.fsencode(key_delimiter))))
    given = parsed("-X", lambda: parse_produce_properties(properties))
    options = sink_options(where, topic, given, compression, timeout, include_timestamp=as_json)
    with notices.logging(), StopSignals() as signals, contextlib.ExitStack() as closing:
        with signals.waiting():
            writer = closing.enter_context(RecordWriter(options))
            number = None if partition is None else _number(partition, writer.log_format)
            _require_topic(writer, number, create, timeout)
        for note in options.notes:
            notices.say(note)
        constants = Constants(tuple(headers), number, empty_is_null)
        reader: RecordReader
        if as_json:
            reader = JsonReader(constants, topic, writer.log_format.partition_number)
        else:
            reader = TextReader(constants, separator, None if key is None else os.fsencode(key))
        streams = _opened(files)
        _send(writer, split(_signalled(streams, signals), end), reader, notices, topic)


def _check_usage(
    topic: str | None,
    partition: str | None,
    key_delimiter: str | None,
    key: str | None,
    *,
    as_json: bool,
    create: int | None,
) -> None:
    """Raise UsageError for options that contradict each other, and BadParameter for an invalid partition."""
    if as_json and (key_delimiter is not None or key is not None):
        raise click.UsageError("-K and -k cannot be used with -J: each object has its key")
    if key_delimiter is not None and key is not None:
        raise click.UsageError("-K and -k exclude each other: a record has one key")
    if topic is None and (not as_json or partition is not None or create is not None):
        raise click.UsageError("name the topic with -t. Only with -J, and without -p and --create, it may be left out")
    if partition is not None and not any(_is_partition(partition, each) for each in (KAFKA_LOG, KAFKA07_LOG)):
        raise click.BadParameter(f"invalid partition {partition!r}: expected a number, or 1-2", param_hint="-p")


def _send(
    writer: RecordWriter,
    records: Iterator[list[bytes]],
    reader: RecordReader,
    notices: Notices,
    topic: str | None,
) -> None:
    """Write all records, and print how many were delivered, even if an error ends it."""
    began, read = time.monotonic(), 0
    try:
        with _bar(topic or "records", quiet=notices.verbosity == 0) as advance:
            with contextlib.suppress(StopReading):
                for batch in records:
                    if not batch:
                        writer.flush()  # no input for a while
                        continue
                    _write(writer, batch, reader, read + 1)
                    read += len(batch)
                    advance(len(batch))
            writer.flush()
    finally:
        for note in sorted(writer.written.notes):
            notices.say(note)
        if notices.verbosity:
            to = "their topics" if topic is None else topic
            seconds = time.monotonic() - began
            click.echo(
                f"{counted(writer.written.records, 'record')} to {to} in {seconds:.1f} s{_worth(writer)}", err=True
            )


def _write(writer: RecordWriter, records: list[bytes], reader: RecordReader, first: int) -> None:
    """Write records. Raises InvalidRecord for the first one that cannot be written.

    The records before it are delivered by then.
    """

    try:
        batch = reader.read(records, first)
        before = writer.rows
        try:
            writer.write(batch)
        except UnknownPartition as error:
            what = f"topic {error.topic} has {error.partitions}, and none {error.partition}"
            reason = f"{what}. Correct the field 'partition', or add partitions to the topic"
            index = error.row - before
            raise InvalidRecord(first + index, index, reason) from None
    except InvalidRecord as error:
        if error.index:  # an earlier record may name an unknown partition, which the reader does not check
            _write(writer, records[: error.index], reader, first)
        writer.flush()
        raise


def _worth(writer: RecordWriter) -> str:
    """Return a note that Kafka 0.7 does not acknowledge records, unless they are read back."""
    if writer.log_format is not KAFKA07_LOG or writer.options.verify or not writer.written.records:
        return ""
    return ". Kafka 0.7 acknowledges nothing: -X verify=true reads records back"


def _require_topic(writer: RecordWriter, partition: int | None, create: int | None, timeout_ms: int) -> None:
    """Require that the topic exists and has `partition`, or create it.

    A producer would wait for the topic, or have the broker create it.
    """
    options: SinkOptions = writer.options
    if options.topic is None:
        return
    if writer.log_format is KAFKA07_LOG:
        if create is not None:
            raise ConfigError(
                f"cannot create topic {options.topic!r}: a broker of Kafka 0.7 creates a topic with its first record. "
                "Leave out --create"
            )
        return
    from streamgroup.kafka.cluster import changes  # noqa: PLC0415
    from streamgroup.kafka.cluster.kafka import KafkaCluster  # noqa: PLC0415

    with contextlib.closing(KafkaCluster(options.client)) as cluster:
        deadline = cluster.deadline(timeout_ms)
        found = cluster.snapshot([options.topic], deadline).topics.get(options.topic)
        if found is not None:
            count = len(found.partitions)
        elif create is None:
            raise ConfigError(
                f"cannot write to topic {options.topic!r}: it does not exist. Create it with --create PARTITIONS"
            )
        else:
            factor = changes.BROKERS_DEFAULT
            changes.create_topics(cluster, {options.topic: create}, deadline, replication_factor=factor)
            count = create
    if partition is not None and partition >= count:
        raise ConfigError(
            f"cannot write to {options.topic}-{partition}: the topic has {counted(count, 'partition')}, from 0 "
            f"to {count - 1}. Correct -p, or add partitions to the topic"
        )


def _number(name: str, log_format: LogFormat) -> int:
    try:
        return log_format.partition_number(name)
    except ValueError as error:
        raise ConfigError(f"invalid partition {name!r}: {error}") from None


def _is_partition(name: str, log_format: LogFormat) -> bool:
    try:
        log_format.partition_number(name)
    except ValueError:
        return False
    return True


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # Python represents such bytes of an argument by surrogates
        return False
    return True


def _text(text: bytes) -> bytes:
    if not text:
        raise ValueError("expected a text that is not empty")
    return text


# -- the input ---------------------------------------------------------------------------------------------------------


def _opened(files: Sequence[Path]) -> Iterator[BinaryIO]:
    """Yield the files one after the other, open; `-`, and no file, is standard input. Raises ConfigError."""
    for file in files or [Path("-")]:
        if str(file) == "-":
            yield sys.stdin.buffer
            continue
        try:
            stream = file.open("rb")
        except OSError as error:
            raise ConfigError(f"cannot read file {file}: {error.strerror}") from None
        with stream:
            yield stream


def _signalled(streams: Iterable[BinaryIO], signals: StopSignals) -> Iterator[bytes]:
    """Yield the bytes of `streams`. Raises StopReading after a signal."""

    for stream in streams:
        pieces = chunks(stream)
        while True:
            with signals.waiting(_stop_reading):
                chunk = next(pieces, None)
            if chunk is None:
                break
            yield chunk


def _stop_reading() -> None:
    raise StopReading


@contextlib.contextmanager
def _bar(topic: str, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Show a counter if standard error is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (SpinnerColumn(), TextColumn("{task.description}: {task.completed:.0f} records"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(topic, total=None)
        yield lambda count: bar.advance(task, count)


CHUNK = 256 * 1024
"""Bytes to read at once. Their records are one batch."""
PAUSE_S = 0.02
"""Seconds without input after which the records so far are flushed: a user types, or a program waits."""
PAUSE = b""
"""Stands for such a pause between two chunks."""

Header = tuple[str, bytes]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_TIMESTAMP = pa.timestamp("us")
_MAX_MS = (2**63 - 1) // 1000
"""The largest timestamp that fits into microseconds of 64 bits."""


def chunks(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes of `stream` as they arrive, and `PAUSE` if no bytes arrive for a while. A file has no pauses."""
    try:
        number: int | None = stream.fileno()
    except (io.UnsupportedOperation, AttributeError):  # bytes in memory
        number = None
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    while True:
        if number is not None and not select.select([number], [], [], PAUSE_S)[0]:
            yield PAUSE
        chunk = read(CHUNK)
        if not chunk:
            return
        yield chunk


def split(parts: Iterable[bytes], delimiter: bytes) -> Iterator[list[bytes]]:
    r"""Yield the records between delimiters, in one list for each chunk. An empty list means a pause.

    The last record may lack its delimiter. Where this is `\n`, a `\r` before it belongs to it.
    """
    rest = b""
    for chunk in parts:
        *records, rest = (rest + chunk).split(delimiter)
        if delimiter == b"\n":
            records = [record.removesuffix(b"\r") for record in records]
        if records or chunk == PAUSE:
            yield records
    if rest:
        yield [rest]


class InvalidRecord(ConfigError):
    """A record of the input cannot be written. `number` is its line, `index` its index in its batch."""

    def __init__(self, number: int, index: int, reason: str) -> None:
        super().__init__(f"cannot write line {number}: {reason}. The lines before it were sent")
        self.index = index


class RecordReader(Protocol):
    """Reads records of one form."""

    def read(self, records: Sequence[bytes], first: int) -> pa.RecordBatch:
        """Return a batch with the columns of a write. `first` is the first record's number. Raises InvalidRecord."""


@frozen
class Constants:
    """The headers and the partition that every record gets."""

    headers: tuple[Header, ...] = ()
    partition: int | None = None
    empty_is_null: bool = False
    """`-Z`: whether an empty key or value stands for null."""

    def columns(self, count: int) -> dict[str, pa.Array]:
        """Return the columns `headers` and `partition` of `count` records, if they have any."""
        columns = {}
        if self.headers:
            headers = [{"key": key, "value": value} for key, value in self.headers]
            columns["headers"] = pa.array([headers] * count, HEADERS)
        if self.partition is not None:
            columns["partition"] = pa.array([self.partition] * count, pa.int32())
        return columns

    def or_null(self, texts: Sequence[bytes]) -> pa.Array:
        """Return keys or values as an array."""
        return pa.array([text or None for text in texts] if self.empty_is_null else texts, pa.binary())


class TextReader:
    """Reads values, or keys and values with a delimiter between them. `key` is the key of all records."""

    def __init__(self, constants: Constants, key_delimiter: bytes | None = None, key: bytes | None = None) -> None:
        self._constants = constants
        self._key_delimiter = key_delimiter
        self._key = key

    def read(self, records: Sequence[bytes], first: int) -> pa.RecordBatch:
        columns = self._constants.columns(len(records))
        if self._key_delimiter is not None:
            parts = [record.partition(self._key_delimiter) for record in records]
            for index, (_, found, _) in enumerate(parts):
                if not found:
                    shown = self._key_delimiter.decode(errors="replace")
                    raise InvalidRecord(first + index, index, f"no {shown!r} after the key")
            columns["key"] = self._constants.or_null([key for key, _, _ in parts])
            records = [value for _, _, value in parts]
        elif self._key is not None:
            columns["key"] = pa.array([self._key] * len(records), pa.binary())
        return pa.record_batch({"value": self._constants.or_null(records), **columns})


class JsonReader:
    """Reads the objects that `streamgroup consume -J` and `kcat -J` print.

    It takes `key`, `payload`, `headers` and `ts`. Without `topic`, the topic of the command line, it takes `topic` and
    `partition` too; `partition_number` turns a partition's name into its number. Other fields are ignored.
    """

    def __init__(self, constants: Constants, topic: str | None, partition_number: Callable[[str], int]) -> None:
        self._constants = constants
        self._topic = topic
        self._partition_number = partition_number

    def read(self, records: Sequence[bytes], first: int) -> pa.RecordBatch:
        rows = []
        for index, record in enumerate(records):
            try:
                rows.append(self._row(record))
            except ValueError as error:
                raise InvalidRecord(first + index, index, str(error)) from None
        columns = {
            "key": pa.array([row["key"] for row in rows], pa.binary()),
            "value": pa.array([row["payload"] for row in rows], pa.binary()),
            "timestamp": pa.array([row["ts"] for row in rows], _TIMESTAMP),
            "headers": pa.array([row["headers"] for row in rows], HEADERS),
        }
        if self._topic is None:
            columns["topic"] = pa.array([row["topic"] for row in rows], pa.string())
            columns["partition"] = pa.array([row["partition"] for row in rows], pa.int32())
        if self._constants.partition is not None:
            columns |= Constants(partition=self._constants.partition).columns(len(rows))
        return pa.record_batch(columns)

    def _row(self, record: bytes) -> dict[str, Any]:
        """Return the columns of one object. Raises ValueError."""
        try:
            fields = json.loads(record)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not a JSON object ({error})") from None
        if not isinstance(fields, dict):
            raise ValueError("not a JSON object")
        timestamp = _milliseconds(fields)
        row = {
            "key": _bytes(_of_type(fields, "key", str), "key", self._constants.empty_is_null),
            "payload": _bytes(_of_type(fields, "payload", str), "payload", self._constants.empty_is_null),
            "headers": self._headers(_of_type(fields, "headers", list)),
            "ts": None if timestamp is None else timestamp * 1000,
        }
        if self._topic is None:
            row |= self._place(fields)
        return row

    def _place(self, fields: dict[str, Any]) -> dict[str, Any]:
        topic = _of_type(fields, "topic", str)
        if not topic:
            raise ValueError("the object has no topic. Add the field 'topic', or name a topic with -t")
        named = fields.get("partition")
        partition = None if named is None else self._partition_number(str(named))
        return {"topic": TOPIC.parse(topic), "partition": partition}

    def _headers(self, given: list[Any] | None) -> list[dict[str, Any]] | None:
        """Return the headers of a list that alternates names and values, followed by the headers of all records."""
        texts = given or []
        names, values = texts[::2], texts[1::2]
        is_list = len(names) == len(values) and all(isinstance(name, str) for name in names)
        if not is_list or not all(value is None or isinstance(value, str) for value in values):
            raise ValueError(
                "the field 'headers' must be a list that alternates names and values: [name, value, name, value, ...]"
            )
        own = [
            {"key": _bytes(name, "headers"), "value": _bytes(value, "headers")}
            for name, value in zip(names, values, strict=True)
        ]
        return [*own, *({"key": key, "value": value} for key, value in self._constants.headers)] or None


def _of_type(fields: dict[str, Any], name: str, kind: type) -> Any:
    value = fields.get(name)
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        expected = {str: "a string", int: "a number of milliseconds", list: "a list"}[kind]
        raise ValueError(f"the field {name!r} must be {expected} or null")
    return value


def _milliseconds(fields: dict[str, Any]) -> int | None:
    milliseconds: int | None = _of_type(fields, "ts", int)
    if milliseconds is not None and not 0 <= milliseconds <= _MAX_MS:
        raise ValueError(f"the field 'ts' is {milliseconds}: expected milliseconds since 1970, up to {_MAX_MS}")
    return milliseconds


def _bytes(text: str | None, field: str, empty_is_null: bool = False) -> bytes | None:
    if text is None or (empty_is_null and not text):
        return None
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the field {field!r} has half of a surrogate pair, which UTF-8 does not have") from None
