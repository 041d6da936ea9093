"""What the text of an option may mean: one parser per kind of value, each raising ValueError with what it expects.

The caller adds the option's name and the value (unless it is secret); the parsers say only what was expected.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from streamgroup.logformat import partition_number
from streamgroup.model import EARLIEST, LATEST, TopicPartition
from streamgroup.options.secrets import Secret
from streamgroup.options.types import Isolation, Mode, OffsetsStorage

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
_EXCERPT = 120
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_SERVER = re.compile(
    r"(?:[0-9A-Za-z%._-]*://)?(?:\[(?P<ipv6>[0-9A-Fa-f:.%\w]+)\]|(?P<name>[^\s\[\]:/]+)):(?P<port>[0-9]{1,5})"
)
_DURATION = re.compile(r"([0-9]{1,12})\s*(ms|s|m|min|h|d)?")
_OF_BROKER = re.compile(r"([0-9]{1,6})-([0-9]{1,6})")
_UNITS = {None: 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

V = TypeVar("V")
_Cell = TypeVar("_Cell")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value: what the docs call it, and how its text is read."""

    name: str
    parse: Callable[[str], Any]


def integer(lowest: int, highest: int = INT_MAX) -> Kind:
    """A whole number of `lowest` to `highest`."""

    def parse(text: str) -> int:
        return _whole_number(text, lowest, highest)

    return Kind("long" if highest > INT_MAX else "int", parse)


def _whole_number(text: str, lowest: int, highest: int) -> int:
    stripped = text.strip()
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", stripped) or not lowest <= int(stripped) <= highest:
        raise ValueError(f"a whole number of {lowest} to {highest} is expected")
    return int(stripped)


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError("true or false is expected")
    return word == "true"


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("it must not be empty")
    return text.strip()


def _duration(text: str) -> int:
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError("a duration is expected, such as 60s, 500ms, 2m, or a number of milliseconds")
    milliseconds = int(match[1]) * _UNITS[match[2]]
    if not 1 <= milliseconds <= INT_MAX:
        raise ValueError(f"a duration of 1 ms to {INT_MAX} ms is expected")
    return milliseconds


def choice(values: Mapping[str, V], unavailable: Mapping[str, str] | None = None) -> Kind:
    """One of a few words, in any case; for a word of `unavailable` the error says why it cannot be had."""

    def parse(text: str) -> V:
        word = text.strip().lower()
        if word in values:
            return values[word]
        if unavailable is not None and word in unavailable:
            raise ValueError(unavailable[word])
        raise ValueError(f"{' or '.join(values)} is expected")

    return Kind(" or ".join(f"`{value}`" for value in values), parse)


# -- Kafka's lists ---------------------------------------------------------------------------------------------------


def _servers(text: str) -> tuple[tuple[str, int], ...]:
    servers: list[tuple[str, int]] = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        match = _SERVER.fullmatch(entry)
        if match is None or not 0 < int(match["port"]) < 2**16:
            raise ValueError(
                f"{entry!r} is no broker's address: host:port is expected, such as broker-1:9092, several separated by "
                "commas; the port is required, an IPv6 address stands in brackets, such as [::1]:9092"
            )
        servers.append((match["ipv6"] or match["name"], int(match["port"])))
    if not servers:
        raise ValueError("at least one host:port is expected")
    return tuple(dict.fromkeys(servers))


_ZOOKEEPER_PORT = 2181
_CHROOT = re.compile(r"(?:/[^/\s]+)+")


def _zookeeper(text: str) -> tuple[tuple[tuple[str, int], ...], str]:
    """Servers and chroot of `zk1:2181,zk2/kafka`."""
    listed, slash, rest = text.strip().partition("/")
    chroot = (slash + rest).rstrip("/")
    if chroot and (not _CHROOT.fullmatch(chroot) or {".", ".."} & set(chroot.split("/"))):
        raise ValueError(
            f"{chroot!r} is no path of a node: it stands once, after the last server, such as zk1:2181/kafka"
        )
    servers: list[tuple[str, int]] = []
    for entry in filter(None, (part.strip() for part in listed.split(","))):
        match = _SERVER.fullmatch(entry) or _SERVER.fullmatch(f"{entry}:{_ZOOKEEPER_PORT}")
        if match is None or not 0 < int(match["port"]) < 2**16:
            raise ValueError(
                f"{entry!r} is no server's address: host:port is expected, such as zk1:2181, several separated by "
                "commas; an IPv6 address stands in brackets, such as [::1]:2181"
            )
        servers.append((match["ipv6"] or match["name"], int(match["port"])))
    if not servers:
        raise ValueError("at least one host:port is expected")
    return tuple(dict.fromkeys(servers)), chroot


_STRATEGIES = {
    "streamgroup-range": "streamgroup-range",
    "range": "range",
    "roundrobin": "roundrobin",
    "cooperative-sticky": "cooperative-sticky",
    "org.apache.kafka.clients.consumer.rangeassignor": "range",
    "org.apache.kafka.clients.consumer.roundrobinassignor": "roundrobin",
    "org.apache.kafka.clients.consumer.cooperativestickyassignor": "cooperative-sticky",
}
_NO_STRATEGIES = {"sticky", "stickyassignor"}
_SOME_STRATEGY = ", ".join(dict.fromkeys(_STRATEGIES.values()))


def _strategies(text: str) -> tuple[str, ...]:
    names: list[str] = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        word = entry.lower()
        if word in _STRATEGIES:
            names.append(_STRATEGIES[word])
        elif word.rpartition(".")[2] in _NO_STRATEGIES:
            raise ValueError(f"{entry!r} is not available yet: cooperative-sticky moves as little")
        else:
            raise ValueError(f"{entry!r} is no strategy that streamgroup knows: {_SOME_STRATEGY}")
    if not names:
        raise ValueError(f"at least one strategy is expected: {_SOME_STRATEGY}")
    return tuple(dict.fromkeys(names))


# -- Spark's topics and offsets ----------------------------------------------------------------------------------------


def _topic(name: str) -> str:
    if not _TOPIC.fullmatch(name) or name in (".", ".."):
        raise ValueError(f"{name!r} is no topic's name: letters, digits, '.', '_' and '-', at most 249")
    return name


def _topics(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(_topic(part.strip()) for part in text.split(",") if part.strip()))
    if not names:
        raise ValueError("at least one topic is expected, several separated by commas")
    return names


def _pattern(text: str) -> str:
    if not text.strip():
        raise ValueError("it must not be empty")
    try:
        with warnings.catch_warnings():
            # Where Java has sets within sets ([a-z&&[^b]]) and Python takes them literally, it warns.
            warnings.simplefilter("error", FutureWarning)
            re.compile(text.strip())
    except (re.error, FutureWarning, RecursionError, OverflowError) as error:
        raise ValueError(
            f"it is no regular expression of Python, which Java's are here read as: {error}; name the topics with "
            "'subscribe' where it cannot be written so"
        ) from None
    return text.strip()


def _object(text: str) -> Mapping[str, Any]:
    """A JSON object without repeated keys."""

    def unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            names = [name for name, _ in pairs]
            raise ValueError(f"{next(n for n in names if names.count(n) > 1)!r} stands there twice")
        return members

    try:
        value = json.loads(text, object_pairs_hook=unrepeated)
    except json.JSONDecodeError as error:
        before, after = text[max(0, error.pos - _EXCERPT // 2) : error.pos], text[error.pos : error.pos + _EXCERPT // 2]
        raise ValueError(
            f"it is no JSON: {error.msg} at line {error.lineno}, column {error.colno}: {before}<here>{after}"
        ) from None
    except RecursionError:
        raise ValueError("it is no JSON that means offsets: it is nested too deeply") from None
    if not isinstance(value, dict) or not value:
        raise ValueError('a JSON object of topics is expected, such as {"orders": …}')
    return value


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    partitions: list[TopicPartition] = []
    for topic, numbers in _object(text).items():
        if not isinstance(numbers, list) or not numbers:
            raise ValueError(f'{topic!r} has no list of partitions: {{"{topic}": [0, 1]}} is expected')
        partitions.extend(TopicPartition(_topic(topic), _partition(number)) for number in numbers)
    return tuple(sorted(set(partitions)))


def _partition(number: object) -> int:
    """A partition's number. Those of Kafka 0.7 may be written as there: `"1-2"` is partition 2 of broker 1."""
    if isinstance(number, str) and (match := _OF_BROKER.fullmatch(number)):
        return partition_number(int(match[1]), int(match[2]))
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= INT_MAX:
        raise ValueError(f"{number!r} is no partition's number")
    return number


def _per_partition(text: str, lowest: int, meaning: str) -> dict[TopicPartition, int]:
    """`{"topic": {"0": n}}` with n of at least `lowest`."""
    numbers: dict[TopicPartition, int] = {}
    for topic, partitions in _object(text).items():
        if not isinstance(partitions, dict) or not partitions:
            raise ValueError(f'{topic!r} has no object of partitions: {{"{topic}": {{"0": 23}}}} is expected')
        for key, number in partitions.items():
            if not re.fullmatch(r"[0-9]{1,10}", key) and not _OF_BROKER.fullmatch(key):
                raise ValueError(f"{key!r} of {topic!r} is no partition's number")
            tp = TopicPartition(_topic(topic), _partition(int(key) if key.isdecimal() else key))
            if isinstance(number, bool) or not isinstance(number, int) or not lowest <= number <= LONG_MAX:
                raise ValueError(f"{number!r} for {tp} is no {meaning}")
            if tp in numbers:
                raise ValueError(f"{tp} stands there twice")
            numbers[tp] = number
    return numbers


_ENDS_OF_A_LOG = {"earliest": EARLIEST, "latest": LATEST}


def _offsets(words: Collection[str], refusal: str = "") -> Kind:
    """`earliest`, `latest` (those of `words`) or JSON by partition, where the numbers of these words stand for them.

    The error for the other word, or its number, is `refusal`.
    """
    refused = {number for word, number in _ENDS_OF_A_LOG.items() if word not in words}
    numbers = ", ".join(f"{_ENDS_OF_A_LOG[word]} is the {word}" for word in words)
    example = f'{{"orders": {{"0": 23, "1": {_ENDS_OF_A_LOG[next(iter(words))]}}}}}'

    def parse(text: str) -> int | dict[TopicPartition, int]:
        word = text.strip().lower()
        if word in words:
            return _ENDS_OF_A_LOG[word]
        if word in _ENDS_OF_A_LOG:
            raise ValueError(refusal)
        if not word.startswith("{"):
            raise ValueError(f"{' or '.join(words)} or JSON such as {example} is expected")
        offsets = _per_partition(text, min(_ENDS_OF_A_LOG.values()), f"offset ({numbers})")
        for tp, offset in offsets.items():
            if offset in refused:
                raise ValueError(f"{offset} for {tp}: {refusal}")
        return offsets

    return Kind(", ".join(f"`{word}`" for word in words) + " or JSON", parse)


BOOLEAN = Kind("boolean", _boolean)
TEXT = Kind("text", _text)
DURATION = Kind("duration", _duration)
POSITIVE = integer(1)
POSITIVE_LONG = integer(1, LONG_MAX)
TIMESTAMP = Kind("ms since 1970", lambda text: _whole_number(text, 0, LONG_MAX))
SERVERS = Kind("host:port, …", _servers)
ZOOKEEPER = Kind("host:port, …/chroot", _zookeeper)
SECRET = Kind("secret", lambda text: Secret(_text(text)))
STRATEGIES = Kind("list", _strategies)
TOPICS = Kind("list", _topics)
PATTERN = Kind("regular expression", _pattern)
ASSIGNED = Kind("JSON", _assigned)
TIMESTAMPS = Kind("JSON", lambda text: _per_partition(text, 0, "timestamp in ms since 1970"))

STREAM_STARTS = _offsets(("earliest", "latest"))
BATCH_STARTS = _offsets(("earliest",), "a batch read cannot start at the latest offset: it would be empty")
BATCH_ENDS = _offsets(("latest",), "a batch read cannot end at the earliest offset: it would be empty")

ISOLATION = choice({"read_uncommitted": Isolation.READ_UNCOMMITTED, "read_committed": Isolation.READ_COMMITTED})
NO_MATCH = choice({"error": False, "latest": True})
STORAGE = choice({storage.value: storage for storage in OffsetsStorage})
ACL = choice({"open": False, "creator": True})
MODE = choice({mode.value: mode for mode in Mode})
PROTOCOL = choice({"classic": "classic"}, {"consumer": "the protocol of KIP-848 is not available yet: use classic"})
_NOT_ENCRYPTED = "is not available yet: only PLAINTEXT listeners can be read"
SECURITY = choice(
    {"plaintext": "PLAINTEXT"},
    {name: f"{name.upper()} {_NOT_ENCRYPTED}" for name in ("ssl", "sasl_plaintext", "sasl_ssl")},
)
