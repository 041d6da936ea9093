"""The decoders of JSON, TOML and other text: documents, commits, nodes of ZooKeeper, options, files of jobs."""

from __future__ import annotations

import functools
import json
import re
import socket
import tempfile
import unittest.mock
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from streamgroup import logline
from streamgroup.cli.produce import Constants, InvalidRecord, JsonReader
from streamgroup.coordinator.control import channel
from streamgroup.coordinator.planning.document import DocumentCache, from_value, to_value
from streamgroup.errors import ConfigError, DecodeError
from streamgroup.group.commits import CommitMetadata
from streamgroup.group.registry import nodes as formats
from streamgroup.group.registry.nodes import GroupPaths, metadata_data, read_committed
from streamgroup.group.registry.patterns import matches
from streamgroup.group.registry.view import view_of
from streamgroup.group.sticky import decode_user_data
from streamgroup.group.user_data import RunIdentity, decode_identity, encode_identity
from streamgroup.java_regex import LENGTH_MOST
from streamgroup.jobs import config as ingest
from streamgroup.jobs import sinkguard
from streamgroup.jobs.backfill import command as backfill
from streamgroup.jobs.backfill.command import BackfillPlan
from streamgroup.jobs.mirror import config as mirror
from streamgroup.jobs.mirror import plan as plan_log
from streamgroup.jobs.mirror.plan import MirrorPlan, Placement, TopicPlan
from streamgroup.kafka.wire import registrations
from streamgroup.logformat import KAFKA07_LOG, KAFKA_LOG
from streamgroup.model import CommittedOffset, Dialect, OffsetRange, TopicPartition
from streamgroup.options import kinds
from streamgroup.options.parse import parse_sink, parse_source
from streamgroup.spark.queries import document
from streamgroup.znodes import ZNode
from tests.fuzz.decoder import Decoder, Sample
from tests.fuzz.mutations import mutated_text, mutated_values

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "tests" / "vectors"
_REGEX = 300 * LENGTH_MOST
"""Bytes that compiling a regular expression may take: up to 290 for each character, of nested sets."""
TOPICS = ("orders", "payments", "events", "__consumer_offsets", "a" * 249)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _samples(*texts: str | bytes, kind: str = "") -> list[Sample]:
    return [Sample(kind, text.encode() if isinstance(text, str) else text) for text in texts]


def _nothing_refused(
    name: str, samples: Iterable[Sample], decode: Callable[[str, bytes], object], enough: int = 500
) -> Decoder:
    """Return a decoder to which no content is an error."""
    return Decoder(name, lambda: list(samples), decode, (), mutated_text, enough=enough)


# -- groups and offsets ------------------------------------------------------------------------------------------------

_METADATA = CommitMetadata("lineage", "run", 7, 8, 1, "fEcvPsMIQ3WFdUoAZSyuFQ", 12).text()
_IDENTITY = encode_identity(RunIdentity("lineage", "run", True, True))


def _commit_metadata(_: str, data: bytes) -> None:
    found = CommitMetadata.parse(_text(data))
    assert found is None or CommitMetadata.parse(found.text()) == found


def _identity(_: str, data: bytes) -> None:
    found = decode_identity(data)
    assert found is None or decode_identity(encode_identity(found)) == found


def _document(_: str, data: bytes) -> None:
    """Read a document as Spark hands it back: the value of a JSON text."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return  # Spark reads the text, and ends the query
    found = DocumentCache().read(value)
    if found.lineage:
        assert from_value(json.loads(json.dumps(to_value(found)))) == found


def _groups() -> Iterable[Decoder]:
    yield _nothing_refused("group/commit-metadata", _samples(_METADATA), _commit_metadata, 2_000)
    yield _nothing_refused("group/identity", _samples(_IDENTITY, b"\0\0\0\7" + _IDENTITY), _identity, 2_000)
    yield _nothing_refused("group/sticky-user-data", _samples(b"\0\0\0\7more"), lambda _, data: decode_user_data(data))
    documents = [path.read_bytes() for path in sorted((VECTORS / "documents").glob("*.json"))]
    yield Decoder(
        "planning/document", lambda: _samples(*documents), _document, (ConfigError,), mutated_text, enough=4_000
    )
    yield _nothing_refused("spark/offset", _samples(*documents), lambda _, data: document(_text(data)), 1_000)


# -- ZooKeeper ---------------------------------------------------------------------------------------------------------

_PATHS = {dialect.name: GroupPaths("etl", dialect) for dialect in Dialect}
_COMMITTED = CommittedOffset(194, _METADATA, 3)
_BROKERS = (
    b"creator-1700000000000:10.0.0.1:9092",
    b'{"jmx_port":-1,"timestamp":"1700000000000","host":"10.0.0.1","version":1,"port":9092}',
    b'{"listener_security_protocol_map":{"INSIDE":"PLAINTEXT"},"endpoints":["SSL://h:9094","INSIDE://[::1]:9093"],'
    b'"host":null,"port":-1,"version":4}',
)
_CONSUMERS = {
    "KAFKA07": (b'{ "orders": 1, "payments": 2 }', b"*2*orders|pay.*", b"!1!events"),
    "KAFKA": (
        b'{"version":1,"subscription":{"orders":2},"pattern":"static","timestamp":"1700000000000"}',
        b'{"version":1,"subscription":{"orders|pay(ments)?":2},"pattern":"white_list","timestamp":"1"}',
        b'{"version":1,"subscription":{"ev.*":1},"pattern":"black_list","timestamp":"1"}',
    ),
}
_PATTERNS = ("orders|payments", "(?:a|b)c{2}", "[a-z]{3}[0-9]*", "(?:ev|ord)(?=e).*", '"orders, payments"', "a*b*c*")


def _node(data: bytes) -> ZNode:
    return ZNode(data, 7, 1, 2, 3)


def _consumer(kind: str, data: bytes) -> object:
    interest = formats.read_consumer("/consumers/etl/ids/c1", data, Dialect[kind])
    return interest.topics(TOPICS, Dialect[kind])


def _committed(_: str, data: bytes) -> object:
    offset, _, metadata = data.partition(b"\n")
    return read_committed("/consumers/etl/offsets/orders/0", _node(offset), _node(metadata))


def _name(kind: str, data: bytes) -> object:
    found = registrations.partition_in(KAFKA07_LOG if kind == "KAFKA07" else KAFKA_LOG, _text(data))
    assert 0 <= found < 2**31
    return found


def _view(kind: str, data: bytes) -> object:
    """Look at a group of which each node in turn holds the bytes."""
    paths = _PATHS[kind]
    leaves = {
        "/brokers/ids/1": _BROKERS[0 if kind == "KAFKA07" else 1],
        "/brokers/topics/orders": b"" if kind == "KAFKA07" else b'{"version":1,"partitions":{"0":[1],"1":[1]}}',
        "/brokers/topics/orders/1": b"2",
        paths.consumer("c1"): _CONSUMERS[kind][0],
        paths.member("c1"): _IDENTITY,
        f"{paths.owners('orders')}/{'1-0' if kind == 'KAFKA07' else '0'}": b"c1-0",
    }
    parents = {
        "/brokers/ids": ("1",),
        "/brokers/topics": ("orders",),
        paths.ids: ("c1",),
        paths.members: ("c1",),
    }
    nodes = {path: ZNode(b"", 0, 1, 1, 1, children=children) for path, children in parents.items()}
    nodes |= {
        path: ZNode(sound, 0, 1, 1, 1, 5, ("1",) if path.endswith("/orders") else ()) for path, sound in leaves.items()
    }
    for path in leaves:
        view = view_of(paths, nodes | {path: ZNode(data, 0, 1, 1, 1, 5, nodes[path].children)})
        assert sum(map(len, view.partitions.values())) == view.total
        view.shares()
    return None


def _zookeeper() -> Iterable[Decoder]:
    def decoder(name: str, samples: list[Sample], decode: Callable[[str, bytes], object], **more: Any) -> Decoder:
        return Decoder(f"zookeeper/{name}", lambda: samples, decode, (DecodeError,), mutated_text, **more)

    yield decoder("broker", _samples(*_BROKERS), lambda _, data: registrations.read_broker("1", data))
    # A node of some bytes may register all partitions that a broker of 0.7 can have.
    yield decoder(
        "count", _samples("3", "10000"), lambda _, data: registrations.read_count("t", "1", data), cap=1 << 20
    )
    partitions = '{"version":1,"partitions":{"0":[1,2],"1":[2,1],"10":[]}}'
    yield decoder("partitions", _samples(partitions), lambda _, data: registrations.read_partitions("t", data))
    names = [*_samples("0", "17", kind="KAFKA"), *_samples("1-0", "214747-9999", kind="KAFKA07")]
    yield decoder("partition-name", names, _name)
    consumers = [Sample(kind, data) for kind, texts in _CONSUMERS.items() for data in texts]
    yield decoder("consumer", consumers, _consumer, cap=_REGEX)
    pattern: Callable[[str, bytes], object] = lambda _, data: [matches(_text(data), topic) for topic in TOPICS]  # noqa: E731
    yield decoder("pattern", _samples(*_PATTERNS), pattern, cap=_REGEX)
    yield decoder(
        "owner", _samples("etl_host-1700000000000-1a2b3c4d-0"), lambda _, data: formats.read_owner("/o", data)
    )
    yield decoder("offset", _samples("194", "0"), lambda _, data: formats.read_offset("/o", data))
    committed = [b"194\n" + metadata_data(committed, 7) for committed in (_COMMITTED, CommittedOffset(194, "text"))]
    yield decoder("committed", _samples(*committed), _committed)
    views = [Sample(kind, data) for kind in _PATHS for data in (*_BROKERS, *_CONSUMERS[kind], b"2", b"c1-0")]
    # As above, and members share out the partitions.
    yield Decoder("zookeeper/view", lambda: views, _view, (), mutated_text, cap=2 << 20)


# -- options -----------------------------------------------------------------------------------------------------------

_KINDS: Mapping[str, tuple[kinds.ValueKind, tuple[str, ...]]] = {
    "duration": (kinds.DURATION, ("60s", "500ms", "2 min", "1h", "1000")),
    "time": (kinds.TIME_STRING, ("15m", "-250us", "9223372036854775807d")),
    "integer": (kinds.POSITIVE, ("1", "65536")),
    "long": (kinds.POSITIVE_LONG, ("67108864",)),
    "boolean": (kinds.BOOLEAN, ("true",)),
    "timestamp": (kinds.TIMESTAMP, ("1700000000000",)),
    "servers": (kinds.SERVERS, ("broker-1:9092,[::1]:9093,PLAINTEXT://h:1",)),
    "zookeeper": (kinds.ZOOKEEPER, ("zk1:2181,zk2/kafka/chroot",)),
    "strategies": (kinds.STRATEGIES, ("range,cooperative-sticky",)),
    "topics": (kinds.TOPICS, ("orders, payments",)),
    "pattern": (kinds.PATTERN, ("orders-[a-z]+", "(?:a|b){2,3}", r"[\p{L}&&[^b]]++(?i)\Qa.\E")),
    "assign": (kinds.ASSIGNED, ('{"orders":[0,1],"events":["1-2"]}',)),
    "timestamps": (kinds.TIMESTAMPS, ('{"orders":{"0":1700000000000}}',)),
    "starts": (kinds.STREAM_STARTS, ('{"orders":{"0":23,"1":-2,"1-2":-1}}', "latest")),
    "batch starts": (kinds.BATCH_STARTS, ('{"orders":{"0":23,"1":-2}}', "earliest")),
    "ends": (kinds.BATCH_ENDS, ('{"orders":{"0":23,"1":-1}}', "latest")),
    "level": (kinds.ZSTD_LEVEL, ("3", "-7")),
    "partitioner class": (kinds.PARTITIONER_CLASS, ("kafka.producer.DefaultPartitioner",)),
}
_SOURCES = (
    'kafka.bootstrap.servers=h:9092\nkafka.group.id=etl\nsubscribe=orders\nstartingOffsets={"orders":{"0":5}}',
    "zookeeper.connect=h/kafka\nkafka.group.id=etl\nsubscribePattern=o.*\nmaxOffsetsPerTrigger=9\ngroup.mode=commit",
    'kafka.bootstrap.servers=h:9092\nassign={"orders":[0]}\nminOffsetsPerTrigger=1\nmaxTriggerDelay=5m\ngroup.mode=off',
)
_SINKS = (
    "kafka.bootstrap.servers=h:9092\ntopic=orders\nkafka.acks=all\nkafka.compression.type=zstd\nkafka.linger.ms=5",
    "zookeeper.connect=h/kafka\ntopic=orders\nkafka.batch.size=5\npartitioner=hashcode",
)


def _options(data: bytes) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in _text(data).split("\n"))  # type: ignore[misc]


def _source(kind: str, data: bytes) -> object:
    return parse_source(_options(data), streaming=kind == "stream")


def _option_decoders() -> Iterable[Decoder]:
    values = [Sample(name, text.encode()) for name, (_, texts) in _KINDS.items() for text in texts]
    parse: Callable[[str, bytes], object] = lambda kind, data: _KINDS[kind][0].parse(_text(data))  # noqa: E731
    yield Decoder("options/values", lambda: values, parse, (ValueError,), mutated_text, cap=_REGEX, enough=2_000)
    streams = [Sample("stream", text.encode()) for text in _SOURCES]
    yield Decoder("options/source", lambda: streams, _source, (ConfigError,), mutated_values, cap=_REGEX)
    sink: Callable[[str, bytes], object] = lambda _, data: parse_sink(_options(data))  # noqa: E731
    yield Decoder("options/sink", lambda: _samples(*_SINKS), sink, (ConfigError,), mutated_values, cap=_REGEX)


# -- files -------------------------------------------------------------------------------------------------------------


class _Files:
    """The one file of a case, as the sink's guard and the mirror's plan read files."""

    def __init__(self, data: bytes) -> None:
        self._text = _text(data)

    def qualified(self, path: str) -> str:
        return path

    def names(self, directory: str) -> list[str]:
        return ["0.json"]

    def read(self, path: str) -> str | None:
        return self._text

    def create(self, path: str, text: str) -> bool:
        return False

    def replace(self, path: str, text: str) -> None:
        raise AssertionError("a reader does not write")


@functools.cache
def _file() -> Path:
    """Return the file that a job's configuration is read from; the process keeps it."""
    directory = tempfile.TemporaryDirectory(prefix="streamgroup-fuzz-", dir=_MEMORY if _MEMORY.is_dir() else None)
    _KEPT.append(directory)
    return Path(directory.name) / "job.toml"


_MEMORY = Path("/dev/shm")
"""A file system in memory, where there is one: a disk would be what the time of a case measures."""
_KEPT: list[tempfile.TemporaryDirectory[str]] = []


def _job(load: Callable[..., object], member: str, data: bytes) -> object:
    _file().write_bytes(data)
    return load(_file(), member, {"HOME": "/home/etl"})


def _job_samples(files: Iterable[str]) -> list[Sample]:
    """Return job files without comments, most of which a mutation would else hit."""
    return [Sample("a", re.sub(rb"(?m)[ ]*#.*$\n?", b"\n", (ROOT / "conf" / file).read_bytes())) for file in files]


def _note(_: str, data: bytes) -> object:
    owner = sinkguard.SinkOwner("/checkpoint", "query")
    return sinkguard.objection(sinkguard.Evidence("/sink", owner, 3, 3, _text(data)))


class _Coordinator:
    """Answers each request of the control channel."""

    run = "r1"

    def sunk(self, document: Mapping[str, Any], batch: int | None, query: Mapping[str, Any]) -> dict[str, Any]:
        return {"batch": batch}

    def ranges(self) -> dict[str, Any]:
        return {}

    def drain(self, timeout: float, *, ends: bool = False) -> dict[str, Any]:
        return {"drained": True, "timeout": timeout}

    def end(self) -> dict[str, Any]:
        return {}

    def status(self) -> dict[str, Any]:
        return {"run": self.run}


_TOKEN = "t0ken"
_REQUESTS = (
    {"request": "sunk", "document": {"streamgroup": 1}, "batch": 7, "query": {"id": "q"}},
    {"request": "ranges"},
    {"request": "drain", "timeout": 60.0, "ends": True},
    {"request": "drain", "timeout": 5},
    {"request": "end"},
    {"request": "status"},
)


def _control_samples() -> list[Sample]:
    found = [json.dumps({"token": _TOKEN, **request}).encode() for request in _REQUESTS]
    framed = [Sample("frame", len(data).to_bytes(4, "big") + data, (0, 4)) for data in found]
    return [*framed, *(Sample("message", data) for data in found)]


@functools.cache
def _server() -> channel.ControlServer:
    """Return a server that is not started: a case is one connection, answered in the thread of the test."""
    with unittest.mock.patch("secrets.token_hex", return_value=_TOKEN):
        return channel.ControlServer(_Coordinator(), 0)


def _request(kind: str, data: bytes) -> None:
    """Send bytes, or a message in its frame, to the server. Each whole message must be answered."""
    client, server = socket.socketpair()
    with client:
        client.sendall(data if kind == "frame" else len(data).to_bytes(4, "big") + data)
        client.shutdown(socket.SHUT_WR)
        _server()._answer(Connection(server.detach()))
        try:
            answer = client.recv(1 << 16)
        except ConnectionResetError:  # the server has left bytes behind the message unread
            answer = b""
    if kind == "message":
        assert answer, "no answer"
    if answer:
        channel.read_message(answer[4:])


def _produced(_: str, data: bytes) -> object:
    reader = JsonReader(Constants(), None, KAFKA_LOG.partition_number)
    return reader.read([data], 1)


def _file_decoders() -> Iterable[Decoder]:
    for name, load, files, enough in (
        ("ingest", ingest.load, ("ingest.toml", "drain-0.7.toml"), 2_000),
        ("mirror", mirror.load, ("mirror.toml", "mirror-0.7.toml"), 1_000),
        ("backfill", backfill.load, ("backfill.toml",), 500),
    ):
        samples = functools.partial(_job_samples, files)
        yield Decoder(
            f"jobs/{name}-file",
            samples,
            functools.partial(_job, load),
            (ConfigError,),
            mutated_values,
            cap=_REGEX,
            enough=enough,
        )
    yield Decoder(
        "driver/control-request",
        _control_samples,
        _request,
        (),
        mutated_text,
        cap=2 * channel.LARGEST_MESSAGE,
        enough=5_000,
    )
    answers = ('{"drained": true, "group": "etl"}', '{"error": "invalid token for this run"}')
    answered: Callable[[str, bytes], object] = lambda _, data: channel.read_message(data)  # noqa: E731
    yield Decoder("driver/control-answer", lambda: _samples(*answers), answered, (ValueError,), mutated_text)
    plan = MirrorPlan({"orders": TopicPlan("orders", "copy", Placement.KEEP, {0: 0, 1: 1})}).to_json()
    latest: Callable[[str, bytes], object] = lambda _, data: plan_log.latest(_Files(data), "/plan")  # noqa: E731
    yield Decoder("jobs/mirror-plan", lambda: _samples(plan), latest, (ConfigError,), mutated_text)
    ranges = (OffsetRange(TopicPartition("orders", 0), 3, 900), OffsetRange(TopicPartition("orders", 1), 0, 10))
    steps = BackfillPlan(ranges, 100, {"subscribe": "orders", "sink": "parquet in rows"}).to_json()
    read_steps: Callable[[str, bytes], object] = lambda _, data: BackfillPlan.from_json(_text(data))  # noqa: E731
    yield Decoder("jobs/backfill-plan", lambda: _samples(steps), read_steps, (ValueError,), mutated_text)
    note = sinkguard.SinkOwner("/checkpoint", "query").text()
    yield _nothing_refused("jobs/sink-note", _samples(note), _note)
    record = b'{"topic":"orders","partition":1,"key":"k","payload":"v","headers":["h","1","n",null],"ts":1700000000000}'
    yield Decoder("cli/produce-json", lambda: _samples(record), _produced, (InvalidRecord,), mutated_text, enough=1_000)
    line = logline.render(
        'batch "7" planned', "planned", group="etl", partition=3, is_new=True, why='a "quoted" \\ word'
    )
    yield _nothing_refused("logline", _samples(line), lambda _, data: logline.parse(_text(data)))


def decoders() -> Iterable[Decoder]:
    """Return the decoders of text."""
    yield from _groups()
    yield from _zookeeper()
    yield from _option_decoders()
    yield from _file_decoders()
