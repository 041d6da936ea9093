"""The ZooKeeper nodes of a group: paths, registrations, owners, offsets, and our metadata of commits (R32).

    /consumers/<group>/offsets/<topic>/<name>      194
    /consumers/<group>/streamgroup/<topic>/<name>  {"streamgroup":1,"offset":194,"version":7,"commit":{"lineage":...}}

Every consumer of Kafka 0.7 and 0.8 writes the first node of a commit; the second one is ours. Both are written in one
transaction. The metadata is valid only while the offset node has that version and that offset: if another consumer or
an operator writes the offset, R5 must not use the metadata.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from streamgroup.errors import ConfigError, DecodeError
from streamgroup.frozen import frozen
from streamgroup.kafka.wire.registrations import (
    garbage,
    is_node_name,
    partition_in,
    read_number,
    read_object,
    read_text,
)
from streamgroup.model import UNKNOWN_EPOCH, CommittedOffset, Dialect, TopicPartition
from streamgroup.znodes import Subtree, ZNode

STREAMS_MOST = 10_000
"""A registration with more streams is invalid, since a thread name is made for each stream."""

STATIC, WHITE_LIST, BLACK_LIST = "static", "white_list", "black_list"
"""The kinds of subscriptions, in the words of 0.8's nodes."""
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
"""Patterns of 0.8 never match these topics (`exclude.internal.topics`)."""

_WILDCARDS = {
    WHITE_LIST: re.compile(r"\*([0-9]{1,19})\*(.*)"),
    BLACK_LIST: re.compile(r"!([0-9]{1,19})!(.*)"),
}


@frozen
class GroupPaths:
    """The paths of one group's nodes. Raises ConfigError for a group id that is not a valid name of a node."""

    group: str
    dialect: Dialect

    def __post_init__(self) -> None:
        if not is_node_name(self.group):
            raise ConfigError(
                f"invalid group id {self.group!r} for ZooKeeper: choose a kafka.group.id without '/' and control "
                "characters, other than '.' and '..'"
            )

    @property
    def root(self) -> str:
        return f"/consumers/{self.group}"

    @property
    def ids(self) -> str:
        """The parent of the consumers' registrations."""
        return f"{self.root}/ids"

    @property
    def members(self) -> str:
        """The parent of our members' identities."""
        return f"{self.root}/streamgroup-members"

    def consumer(self, consumer_id: str) -> str:
        """Return the node of a consumer's registration. While it exists, the session is alive (R31)."""
        return f"{self.ids}/{consumer_id}"

    def member(self, consumer_id: str) -> str:
        return f"{self.members}/{consumer_id}"

    def owners(self, topic: str | None = None) -> str:
        """Return the parent of the owner nodes, of one topic or of all."""
        return self._below("owners", topic)

    def offsets(self, topic: str | None = None) -> str:
        """Return the parent of the offset nodes, of one topic or of all."""
        return self._below("offsets", topic)

    def metadata(self, topic: str | None = None) -> str:
        """Return the parent of our commits' metadata, of one topic or of all."""
        return self._below("streamgroup", topic)

    def owner(self, tp: TopicPartition) -> str:
        return f"{self.owners(tp.topic)}/{self._name(tp)}"

    def offset(self, tp: TopicPartition) -> str:
        return f"{self.offsets(tp.topic)}/{self._name(tp)}"

    def metadata_of(self, tp: TopicPartition) -> str:
        return f"{self.metadata(tp.topic)}/{self._name(tp)}"

    def _name(self, tp: TopicPartition) -> str:
        return self.dialect.log_format.partition_name(tp.partition)

    def _below(self, kind: str, topic: str | None) -> str:
        return f"{self.root}/{kind}" if topic is None else f"{self.root}/{kind}/{topic}"


# -- consumers --------------------------------------------------------------------------------------------------------


@frozen
class Interest:
    """A consumer's subscription: streams by topic, or streams of one pattern (WHITE_LIST, BLACK_LIST)."""

    kind: str
    streams: Mapping[str, int]

    def topics(self, existing: Iterable[str], dialect: Dialect) -> dict[str, int]:
        """Return the number of its streams by topic. A pattern matches topics of `existing`, as in Kafka's client.

        Raises DecodeError for a pattern that is invalid or too slow (`patterns.py`).
        """
        if self.kind == STATIC or not self.streams:
            return dict(self.streams)
        from streamgroup.group.registry.patterns import matches  # noqa: PLC0415  (groups in ZooKeeper alone have patterns)

        (raw, streams), *_ = self.streams.items()
        internal = INTERNAL_TOPICS if dialect is Dialect.KAFKA else frozenset()
        return {t: streams for t in existing if t not in internal and matches(raw, t) is (self.kind == WHITE_LIST)}


def read_consumer(path: str, data: bytes, dialect: Dialect) -> Interest:
    text = read_text(data, path)
    if dialect is Dialect.KAFKA:
        value = read_object(data, path)
        kind = value.get("pattern")
        # A tuple compares by equality. A set would hash `kind`, which may be a list or a dict.
        return Interest(kind if kind in (WHITE_LIST, BLACK_LIST) else STATIC, _streams(value.get("subscription"), path))
    for kind, wildcard in _WILDCARDS.items():
        found = wildcard.fullmatch(text)
        if found is not None:
            return Interest(kind, _streams({found[2]: int(found[1])}, path))
    return Interest(STATIC, _streams(read_object(data, path), path))


def _streams(value: object, path: str) -> dict[str, int]:
    if not isinstance(value, dict):
        raise DecodeError(f"invalid registration in {path}: 'subscription' is not an object")
    for count in value.values():
        if type(count) is not int or not 1 <= count <= STREAMS_MOST:
            raise DecodeError(f"invalid number of streams {str(count)[:40]} in {path} (expected 1 to {STREAMS_MOST})")
    return value


def registration(dialect: Dialect, topics: Iterable[str], timestamp_ms: int) -> bytes:
    """Return our registration: one stream of each topic, in the format of Kafka's client."""
    names = sorted(set(topics))
    if dialect is Dialect.KAFKA07:
        entries = ",".join(f"{json.dumps(name, ensure_ascii=False)}: 1" for name in names)
        return f"{{ {entries} }}".encode()
    value = {
        "version": 1,
        "subscription": dict.fromkeys(names, 1),
        "pattern": STATIC,
        "timestamp": str(timestamp_ms),
    }
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


@frozen
class Incarnation:
    """The consumer id of one session, formatted as by Kafka's consumer, and its creation time (ms since 1970)."""

    consumer_id: str
    timestamp_ms: int

    @classmethod
    def of(cls, group: str, host: str, timestamp_ms: int, unique: int) -> Incarnation:
        """Return `<group>_<host>-<ms>-<8 hex>` with the lower 32 bits of the random number `unique`."""
        name = "".join(c if is_node_name(f"x{c}") else "-" for c in host)
        return cls(f"{group}_{name}-{timestamp_ms}-{unique & 0xFFFFFFFF:08x}", timestamp_ms)


def owner_data(thread: str) -> bytes:
    """Return the content of an owner node, such as `grp1_c1-0`."""
    return thread.encode()


def read_owner(path: str, data: bytes) -> str:
    """Read the thread `<consumer>-<number>` that owns a partition. Raises DecodeError."""
    thread = read_text(data, path)
    if re.fullmatch(r".+-[0-9]{1,10}", thread) is None:
        raise garbage(path, data, "<consumer>-<number>")
    return thread


def consumer_of(thread: str) -> str:
    return thread.rpartition("-")[0]


# -- commits ----------------------------------------------------------------------------------------------------------


def offset_data(offset: int) -> bytes:
    return str(offset).encode()


def read_offset(path: str, data: bytes) -> int:
    """Read the offset in a node. Raises DecodeError."""
    return read_number(read_text(data, path), path)


FORMAT = 1
"""The number of the format of our metadata."""


def metadata_data(committed: CommittedOffset, version: int) -> bytes:
    """Return the data of the metadata node for the offset node's next `version`."""
    value: dict[str, Any] = {"streamgroup": FORMAT, "offset": committed.offset, "version": version}
    if committed.leader_epoch != UNKNOWN_EPOCH:
        value["epoch"] = committed.leader_epoch
    value["commit"] = _embedded(committed.metadata)
    return _compact(value).encode()


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _embedded(text: str) -> object:
    """Return JSON as an object if that preserves the text exactly, else a string. Objects are easier to read."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) and _compact(value) == text else text


def read_committed(path: str, offset: ZNode, metadata: ZNode | None) -> CommittedOffset:
    """Return the commit in the nodes; without metadata if that belongs to an earlier commit. Raises DecodeError."""
    value = read_offset(path, offset.data)
    found = None if metadata is None else _read_metadata(metadata.data)
    if found is None or (found.get("offset"), found.get("version")) != (value, offset.version):
        return CommittedOffset(value)
    commit, epoch = found.get("commit"), found.get("epoch", UNKNOWN_EPOCH)
    text = commit if isinstance(commit, str) else _compact(commit)
    return CommittedOffset(value, text, epoch if type(epoch) is int else UNKNOWN_EPOCH)


def _read_metadata(data: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or type(value.get("streamgroup")) is not int or value["streamgroup"] != FORMAT:
        return None
    return value if isinstance(value.get("commit"), str | dict) else None


def committed_subtrees(paths: GroupPaths, partitions: Iterable[TopicPartition] | None) -> tuple[Subtree, ...]:
    """Return the subtrees that `committed_in` needs; `partitions` None: all of the group."""
    if partitions is None:
        return (Subtree(paths.offsets(), 2, watch=False), Subtree(paths.metadata(), 2, watch=False))
    return tuple(
        Subtree(path, 0, watch=False) for tp in partitions for path in (paths.offset(tp), paths.metadata_of(tp))
    )


def committed_in(
    paths: GroupPaths, nodes: Mapping[str, ZNode], wanted: Callable[[TopicPartition], bool] = lambda _: True
) -> dict[TopicPartition, CommittedOffset]:
    """Return the commits of the group in `nodes`. Nodes whose name is not a partition are ignored.

    Only partitions for which `wanted` returns True are read. Raises DecodeError, which names the node, for an invalid
    offset: if it counted as absent, records would be skipped.
    """
    found: dict[TopicPartition, CommittedOffset] = {}
    prefix = f"{paths.offsets()}/"
    for path, node in nodes.items():
        topic, _, name = path.removeprefix(prefix).rpartition("/") if path.startswith(prefix) else ("", "", "")
        if not topic:
            continue
        try:
            tp = TopicPartition(topic, partition_in(paths.dialect.log_format, name))
        except DecodeError:
            continue
        if wanted(tp):
            found[tp] = read_committed(path, node, nodes.get(paths.metadata_of(tp)))
    return found
