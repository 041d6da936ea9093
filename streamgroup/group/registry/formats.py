"""The nodes that the consumer groups of Kafka 0.7 and 0.8 keep in ZooKeeper: their paths and their contents.

    /consumers/<group>/ids/<consumer>          E  the topics that the consumer reads, with the number of streams
    /consumers/<group>/owners/<topic>/<name>   E  <consumer>-<number of its stream>
    /consumers/<group>/offsets/<topic>/<name>     a bare decimal
    /consumers/<group>/streamgroup/<topic>/<name> ours: the metadata of a commit (R32)
    /consumers/<group>/streamgroup-members/<consumer>  E  ours: the identity of a member (R28)

E: ephemeral. A partition's `<name>` is `<broker>-<partition>` in 0.7, its number in 0.8. Our members stand beside our
metadata, not below it, where every name may be a topic's, even `members`.

Other programs write these nodes, too. For contents that make no sense readers raise DecodeError, which names the node.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamgroup.errors import ConfigError, DecodeError
from streamgroup.model import Dialect, TopicPartition
from streamgroup.wire.registrations import garbage, is_node_name, read_number, read_object, read_text

STREAMS_MOST = 10_000
"""A consumer that claims more streams is refused, since a name would be made for each stream."""

STATIC, WHITE_LIST, BLACK_LIST = "static", "white_list", "black_list"
"""The kinds of subscriptions, in the words of 0.8's nodes."""
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
"""A pattern of 0.8 never matches these topics (`exclude.internal.topics`)."""

_WILDCARDS = {
    WHITE_LIST: re.compile(r"\*([0-9]{1,19})\*(.*)"),
    BLACK_LIST: re.compile(r"!([0-9]{1,19})!(.*)"),
}


@dataclass(frozen=True, slots=True)
class GroupPaths:
    """The paths of one group's nodes. Raises ConfigError for a group id that is not a valid name of a node."""

    group: str
    dialect: Dialect

    def __post_init__(self) -> None:
        if not is_node_name(self.group):
            raise ConfigError(
                f"group {self.group!r}: ZooKeeper can call no node so: choose a kafka.group.id without '/' and control "
                "characters, other than '.' and '..'"
            )

    @property
    def root(self) -> str:
        """The parent of all nodes of the group."""
        return f"/consumers/{self.group}"

    @property
    def ids(self) -> str:
        """The parent of the consumers."""
        return f"{self.root}/ids"

    @property
    def members(self) -> str:
        """The parent of our members' identities."""
        return f"{self.root}/streamgroup-members"

    def consumer(self, consumer_id: str) -> str:
        """Return the node of a consumer's registration. While it exists, its session lives (R31)."""
        return f"{self.ids}/{consumer_id}"

    def member(self, consumer_id: str) -> str:
        """Return the node of the identity of one of our members."""
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
        """Return the node of our commit's metadata of a partition."""
        return f"{self.metadata(tp.topic)}/{self._name(tp)}"

    def _name(self, tp: TopicPartition) -> str:
        return self.dialect.log_format.partition_name(tp.partition)

    def _below(self, kind: str, topic: str | None) -> str:
        return f"{self.root}/{kind}" if topic is None else f"{self.root}/{kind}/{topic}"


# -- consumers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Interest:
    """A consumer's subscription: streams by topic, or by one pattern where `kind` is that of a list."""

    kind: str
    streams: Mapping[str, int]

    def topics(self, existing: Iterable[str], dialect: Dialect) -> dict[str, int]:
        """Return the number of its streams by topic. A pattern matches topics of `existing`, as in the real client.

        Raises DecodeError for a pattern that is none, or cannot be used (`patterns.py`).
        """
        if self.kind == STATIC or not self.streams:
            return dict(self.streams)
        from streamgroup.group.registry.patterns import matches  # noqa: PLC0415  (groups in ZooKeeper alone have patterns)

        (raw, streams), *_ = self.streams.items()
        internal = INTERNAL_TOPICS if dialect is Dialect.KAFKA else frozenset()
        return {t: streams for t in existing if t not in internal and matches(raw, t) is (self.kind == WHITE_LIST)}


def read_consumer(path: str, data: bytes, dialect: Dialect) -> Interest:
    """Read a consumer's registration. Raises DecodeError."""
    text = read_text(data, path)
    if dialect is Dialect.KAFKA:
        value = read_object(data, path)
        kind = value.get("pattern")
        # A tuple compares by equality: of a set, a list or an object would be looked for by its hash, which it lacks.
        return Interest(kind if kind in (WHITE_LIST, BLACK_LIST) else STATIC, _streams(value.get("subscription"), path))
    for kind, wildcard in _WILDCARDS.items():
        found = wildcard.fullmatch(text)
        if found is not None:
            return Interest(kind, _streams({found[2]: int(found[1])}, path))
    return Interest(STATIC, _streams(read_object(data, path), path))


def _streams(value: object, path: str) -> dict[str, int]:
    if not isinstance(value, dict):
        raise DecodeError(f"{path} does not tell what the consumer reads")
    for count in value.values():
        if type(count) is not int or not 1 <= count <= STREAMS_MOST:
            raise DecodeError(f"{path} tells of {str(count)[:40]} streams; 1 to {STREAMS_MOST} can be")
    return value


def registration(dialect: Dialect, topics: Iterable[str], timestamp_ms: int) -> bytes:
    """Return our registration: one stream of each topic, as the real client writes it."""
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


@dataclass(frozen=True, slots=True)
class Incarnation:
    """The consumer id of one session, in the form of the real client, and its time (ms since 1970)."""

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


# -- offsets ----------------------------------------------------------------------------------------------------------


def offset_data(offset: int) -> bytes:
    """Return the content of an offset node."""
    return str(offset).encode()


def read_offset(path: str, data: bytes) -> int:
    """Read the offset in a node. Raises DecodeError: without the offset, reading would start anew."""
    return read_number(read_text(data, path), path)
