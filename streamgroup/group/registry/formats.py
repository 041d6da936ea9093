"""The nodes that Kafka 0.7 and the consumers of 0.8 keep in ZooKeeper: where they are, what they hold.

    /brokers/ids/<broker>                      E  0.7: <creator>:<host>:<port>; 0.8: JSON
    /brokers/topics/<topic>/<broker>           E  0.7: how many partitions the topic has on this broker
    /brokers/topics/<topic>                       0.8: JSON, the partitions and their replicas
    /consumers/<group>/ids/<consumer>          E  what the consumer reads, in how many streams
    /consumers/<group>/owners/<topic>/<name>   E  <consumer>-<number of its stream>
    /consumers/<group>/offsets/<topic>/<name>     a bare decimal
    /consumers/<group>/streamgroup/<topic>/<name> ours: what a commit tells beside its offset (R32)
    /consumers/<group>/streamgroup-members/<consumer>  E  ours: whose member a consumer is (R28)

E: ephemeral. A partition's `<name>` is `<broker>-<partition>` in 0.7, its number in 0.8. Our members stand beside our
metadata, not below it: there every name may be a topic's, `members` too.

Readers raise DecodeError, which names the node, for what does not mean what it should: other programs write here, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from streamgroup.errors import ConfigError, DecodeError
from streamgroup.group.registry.patterns import matches
from streamgroup.model import Broker, Dialect, TopicPartition, broker_partition, partition_number

BROKERS = "/brokers/ids"
TOPICS = "/brokers/topics"

STREAMS_MOST = 10_000
"""A consumer that claims to read with more streams is not believed: the names of all of them would be made."""
_NODE_MOST = 1024 * 1024
"""`jute.maxbuffer`: no node of ZooKeeper is larger."""
_INT_DIGITS_MOST = 19
_NUMBER = "(?:0|[1-9][0-9]{0,9})"
"""In the name of a node, in its one spelling: `00` beside `0` would be one broker twice."""
_BROKER_MOST = 2048
"""Two names of hosts are shorter; more is not held against an expression that tries many ways."""

STATIC, WHITE_LIST, BLACK_LIST = "static", "white_list", "black_list"
"""The kinds of subscriptions, in the words of 0.8's nodes."""
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
"""A pattern of 0.8 never means these (`exclude.internal.topics`)."""

_WILDCARDS = {
    WHITE_LIST: re.compile(r"\*([0-9]{1,19})\*(.*)"),
    BLACK_LIST: re.compile(r"!([0-9]{1,19})!(.*)"),
}
_BROKER_07 = re.compile(r"(?P<creator>.+-[0-9]+|[^:]*):(?P<host>.+):(?P<port>[0-9]{1,5})")


def is_node_name(text: str) -> bool:
    """Whether a node can be called so: one step of a path."""
    return text not in {"", ".", ".."} and "/" not in text and text.isprintable()


@dataclass(frozen=True, slots=True)
class GroupPaths:
    """Where the nodes of one group are. Raises ConfigError for a group that no node can be called after."""

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
        """Above all nodes of the group."""
        return f"/consumers/{self.group}"

    @property
    def ids(self) -> str:
        """Above the consumers."""
        return f"{self.root}/ids"

    @property
    def members(self) -> str:
        """Above what our members tell of themselves."""
        return f"{self.root}/streamgroup-members"

    def consumer(self, consumer_id: str) -> str:
        """A consumer's registration: while it exists, its session lives (R31)."""
        return f"{self.ids}/{consumer_id}"

    def member(self, consumer_id: str) -> str:
        """What one of our members tells of itself."""
        return f"{self.members}/{consumer_id}"

    def owners(self, topic: str | None = None) -> str:
        """Above the owner nodes, of one topic or of all."""
        return self._below("owners", topic)

    def offsets(self, topic: str | None = None) -> str:
        """Above the offset nodes, of one topic or of all."""
        return self._below("offsets", topic)

    def metadata(self, topic: str | None = None) -> str:
        """Above the metadata of our commits, of one topic or of all."""
        return self._below("streamgroup", topic)

    def owner(self, tp: TopicPartition) -> str:
        """The owner node of a partition."""
        return f"{self.owners(tp.topic)}/{partition_name(self.dialect, tp.partition)}"

    def offset(self, tp: TopicPartition) -> str:
        """The offset node of a partition."""
        return f"{self.offsets(tp.topic)}/{partition_name(self.dialect, tp.partition)}"

    def metadata_of(self, tp: TopicPartition) -> str:
        """The metadata of our commit of a partition."""
        return f"{self.metadata(tp.topic)}/{partition_name(self.dialect, tp.partition)}"

    def _below(self, kind: str, topic: str | None) -> str:
        return f"{self.root}/{kind}" if topic is None else f"{self.root}/{kind}/{topic}"


def partition_name(dialect: Dialect, number: int) -> str:
    """A partition's node: `1-2` for number 10002 of 0.7, else the number."""
    return "{}-{}".format(*broker_partition(number)) if dialect is Dialect.KAFKA07 else str(number)


def partition_in(dialect: Dialect, name: str) -> int:
    """The number of the partition that a node is called after. Raises DecodeError."""
    found = re.fullmatch(f"({_NUMBER})-({_NUMBER})" if dialect is Dialect.KAFKA07 else _NUMBER, name)
    try:
        if found is not None:
            return partition_number(*map(int, found.groups())) if dialect is Dialect.KAFKA07 else _int32(name)
    except ValueError as error:
        raise DecodeError(f"a node is called {name!r}: {error}") from None
    raise DecodeError(f"a node is called {name[:80]!r}: no partition's name in Kafka {dialect.value}")


# -- brokers and topics -----------------------------------------------------------------------------------------------


def dialect_of(broker: bytes) -> Dialect:
    """Which Kafka a broker's registration is of: JSON since 0.8."""
    return Dialect.KAFKA if broker.lstrip().startswith(b"{") else Dialect.KAFKA07


def read_broker(name: str, data: bytes, protocol: str = "PLAINTEXT") -> Broker:
    """The broker `/brokers/ids/<name>`, either dialect. Raises DecodeError.

    `protocol` chooses among the listeners that brokers from 0.9 on tell (`endpoints`); older ones have one.
    """
    where = f"{BROKERS}/{name}"
    node_id = _numbered(name, where)
    if dialect_of(data) is Dialect.KAFKA07:
        found = _BROKER_07.fullmatch(_text(data, where)) if len(data) <= _BROKER_MOST else None
        if found is None:
            raise _garbage(where, data, "<creator>:<host>:<port>")
        return Broker(node_id, found["host"], _port(int(found["port"]), where, data))
    value = _object(data, where)
    host, port = _endpoint(value, protocol) or (value.get("host"), value.get("port"))
    if not isinstance(host, str) or not host or type(port) is not int:
        raise _garbage(where, data, f"a host and a port for {protocol}")
    return Broker(node_id, host, _port(port, where, data))


def _endpoint(value: Mapping[str, Any], protocol: str) -> tuple[str, int] | None:
    """Of `SASL_PLAINTEXT://h:9093`, where a listener may have a name of its own (KIP-103), what speaks `protocol`."""
    endpoints, names = value.get("endpoints"), value.get("listener_security_protocol_map")
    for endpoint in endpoints if isinstance(endpoints, list) else ():
        found = re.fullmatch(r"([^:/]+)://\[?([^\[\]/]*)\]?:([0-9]{1,5})", endpoint) if type(endpoint) is str else None
        if found is not None and found[2]:
            spoken = names.get(found[1], found[1]) if isinstance(names, dict) else found[1]
            if spoken == protocol:
                return found[2], int(found[3])
    return None


def _port(port: int, where: str, data: bytes) -> int:
    if not 0 < port < 65536:
        raise _garbage(where, data, "a port between 1 and 65535")
    return port


def read_count(topic: str, broker: str, data: bytes) -> tuple[int, ...]:
    """0.7: the numbers of the partitions that `topic` has on `broker`. Raises DecodeError."""
    where = f"{TOPICS}/{topic}/{broker}"
    count, node_id = _number(_text(data, where), where), _numbered(broker, where)
    try:
        first = partition_number(node_id, 0)
        if count:
            partition_number(node_id, count - 1)
    except ValueError as error:
        raise DecodeError(f"{where}: {error}") from None
    return tuple(range(first, first + count))


def read_partitions(topic: str, data: bytes) -> tuple[int, ...]:
    """0.8: the numbers of the partitions of `topic`, sorted. Raises DecodeError."""
    where = f"{TOPICS}/{topic}"
    partitions = _object(data, where).get("partitions")
    if not isinstance(partitions, dict):
        raise _garbage(where, data, '{"partitions":{...}}')
    return tuple(sorted(_numbered(name, where) for name in partitions))


# -- consumers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Interest:
    """What a consumer wants to read: streams by topic, or by the one pattern where `kind` is a list's."""

    kind: str
    streams: Mapping[str, int]

    def topics(self, existing: Iterable[str], dialect: Dialect) -> dict[str, int]:
        """How many streams it has of each topic; a pattern means those of `existing`, as in the real client.

        Raises DecodeError for a pattern that is none, or cannot be used (`patterns.py`).
        """
        if self.kind == STATIC or not self.streams:
            return dict(self.streams)
        (raw, streams), *_ = self.streams.items()
        internal = INTERNAL_TOPICS if dialect is Dialect.KAFKA else frozenset()
        return {t: streams for t in existing if t not in internal and matches(raw, t) is (self.kind == WHITE_LIST)}


def read_consumer(path: str, data: bytes, dialect: Dialect) -> Interest:
    """What a consumer's registration says. Raises DecodeError."""
    text = _text(data, path)
    if dialect is Dialect.KAFKA:
        value = _object(data, path)
        kind = value.get("pattern")
        return Interest(kind if kind in {WHITE_LIST, BLACK_LIST} else STATIC, _streams(value.get("subscription"), path))
    for kind, wildcard in _WILDCARDS.items():
        found = wildcard.fullmatch(text)
        if found is not None:
            return Interest(kind, _streams({found[2]: int(found[1])}, path))
    return Interest(STATIC, _streams(_object(data, path), path))


def _streams(value: object, path: str) -> dict[str, int]:
    if not isinstance(value, dict):
        raise DecodeError(f"{path} does not tell what the consumer reads")
    for count in value.values():
        if type(count) is not int or not 1 <= count <= STREAMS_MOST:
            raise DecodeError(f"{path} tells of {str(count)[:40]} streams; 1 to {STREAMS_MOST} can be")
    return value


def registration(dialect: Dialect, topics: Iterable[str], timestamp_ms: int) -> bytes:
    """What we register: one stream of each topic, in the spelling of the real client."""
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
    """As whom a member registers in one session: an id as the real client makes them, and when (ms since 1970)."""

    consumer_id: str
    timestamp_ms: int

    @classmethod
    def of(cls, group: str, host: str, timestamp_ms: int, unique: int) -> Incarnation:
        """`<group>_<host>-<ms>-<8 hex>`; of the chance number `unique` the lower 32 bits count."""
        name = "".join(c if is_node_name(f"x{c}") else "-" for c in host)
        return cls(f"{group}_{name}-{timestamp_ms}-{unique & 0xFFFFFFFF:08x}", timestamp_ms)


def owner_data(thread: str) -> bytes:
    """What an owner node holds: `grp1_c1-0`."""
    return thread.encode()


def read_owner(path: str, data: bytes) -> str:
    """The thread `<consumer>-<number>` that owns a partition. Raises DecodeError."""
    thread = _text(data, path)
    if re.fullmatch(r".+-[0-9]{1,10}", thread) is None:
        raise _garbage(path, data, "<consumer>-<number>")
    return thread


def consumer_of(thread: str) -> str:
    """The consumer of a thread id."""
    return thread.rpartition("-")[0]


# -- offsets ----------------------------------------------------------------------------------------------------------


def offset_data(offset: int) -> bytes:
    """What an offset node holds."""
    return str(offset).encode()


def read_offset(path: str, data: bytes) -> int:
    """The offset that a node holds. Raises DecodeError: taken for absent it would let the reading start anew."""
    return _number(_text(data, path), path)


# -- the words of all of them -----------------------------------------------------------------------------------------


def _text(data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise _garbage(where, data, "UTF-8") from None


def _object(data: bytes, where: str) -> dict[str, Any]:
    try:
        value = json.loads(data) if len(data) <= _NODE_MOST else None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise _garbage(where, data, "a JSON object")
    return value


def _number(text: str, where: str) -> int:
    """Digits, as Java writes them, of an int64."""
    if not (text.isascii() and text.isdigit() and len(text) <= _INT_DIGITS_MOST) or int(text) >= 2**63:
        raise _garbage(where, text.encode(errors="replace"), "a number")
    return int(text)


def _numbered(name: str, where: str) -> int:
    """The number that a node is called by."""
    if re.fullmatch(_NUMBER, name) is None:
        raise DecodeError(f"{where}: {name[:80]!r} is not how a number is spelled in the name of a node")
    return int(name)


def _int32(text: str) -> int:
    number = int(text)
    if number >= 2**31:
        raise ValueError("partitions are numbered up to 2147483647")
    return number


def _garbage(where: str, data: bytes, wanted: str) -> DecodeError:
    shown = repr(data[:80])[1:] + ("..." if len(data) > 80 else "")
    return DecodeError(f"{where} should hold {wanted}, and holds {shown}")
