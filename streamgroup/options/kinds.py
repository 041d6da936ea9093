"""The kinds of option values. Each has a parser, which raises ValueError with the cause and the expected form.

The caller adds the option's name, and its value unless that is secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from streamgroup.frozen import frozen
from streamgroup.logformat import partition_number
from streamgroup.model import EARLIEST, LATEST, TopicPartition
from streamgroup.options.secrets import Secret
from streamgroup.options.tls import PEM, PLAINTEXT, SASL_PLAINTEXT, SASL_SSL, SSL, openssl_name
from streamgroup.options.types import WEIGHT_OF_CORES, GroupMode, GroupProtocol, Isolation, OffsetsStorage

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


@frozen
class ValueKind:
    """A kind of option value: its name in the docs, and its parser, which raises ValueError for an invalid value.

    Options are text; the keys of a job file are TOML values.
    """

    name: str
    parse: Callable[[Any], Any]


def integer(lowest: int, highest: int = INT_MAX) -> ValueKind:
    """Return the kind of the integers from `lowest` to `highest`."""

    def parse(text: str) -> int:
        return _integer(text, lowest, highest)

    return ValueKind("long" if highest > INT_MAX else "int", parse)


def _integer(text: str, lowest: int, highest: int) -> int:
    stripped = text.strip()
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", stripped) or not lowest <= int(stripped) <= highest:
        raise ValueError(f"expected an integer from {lowest} to {highest}")
    return int(stripped)


def _positive_or_off(text: str) -> int:
    if (number := _integer(text, -1, LONG_MAX)) == 0:
        raise ValueError(f"expected -1 or an integer from 1 to {LONG_MAX}")
    return number


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError("expected true or false")
    return word == "true"


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("expected a text that is not empty")
    return text.strip()


def _duration(text: str) -> int:
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError("expected a duration, for example 60s, 500ms or 2m, or a number of milliseconds")
    milliseconds = int(match[1]) * _UNITS[match[2]]
    if not 1 <= milliseconds <= INT_MAX:
        raise ValueError(f"expected a duration from 1 ms to {INT_MAX} ms")
    return milliseconds


_TIME_STRING = re.compile(r"(-?[0-9]{1,19})([a-z]+)?")
_MICROSECONDS_PER_MS = 1_000


def time_string(text: str, unit_without: str = "ms") -> int:
    """Return the milliseconds of one of Spark's time strings, as its `JavaUtils.timeStringAs` does.

    `unit_without` is the unit of a number alone. Microseconds are rounded towards zero. A time that a long cannot hold
    in milliseconds is the longest that it can. Raises ValueError.
    """
    match = _TIME_STRING.fullmatch(text.strip().lower())
    unit = match and (match[2] or unit_without)
    if match is None or unit not in (*_UNITS, "us") or not -LONG_MAX - 1 <= int(match[1]) <= LONG_MAX:
        raise ValueError(
            "expected a time without blanks, for example 15m, 500ms or 250us; the unit is us, ms, s, m, "
            "min, h or d, and ms without one"
        )
    number = int(match[1])
    if unit == "us":
        milliseconds = abs(number) // _MICROSECONDS_PER_MS
        return -milliseconds if number < 0 else milliseconds
    return max(-LONG_MAX - 1, min(LONG_MAX, number * _UNITS[unit]))


def choice(values: Mapping[str, V], unavailable: Mapping[str, str] | None = None) -> ValueKind:
    """Return the kind of the words in `values`, in any case. `unavailable` has the errors for unsupported words."""

    def parse(text: str) -> V:
        word = text.strip().lower()
        if word in values:
            return values[word]
        if unavailable is not None and word in unavailable:
            raise ValueError(unavailable[word])
        raise ValueError(f"expected {' or '.join(values)}")

    return ValueKind(" or ".join(f"`{value}`" for value in values), parse)


# -- Kafka's lists -----------------------------------------------------------------------------------------------------


def _entries(text: str) -> list[str]:
    return [entry for part in text.split(",") if (entry := part.strip())]


def _addresses(text: str, what: str, example: str, default_port: int | None = None) -> tuple[tuple[str, int], ...]:
    """Return host and port of each entry. `what` and `example` are for the error, which names the example's port."""
    addresses: list[tuple[str, int]] = []
    for entry in _entries(text):
        match = _SERVER.fullmatch(entry) or (default_port and _SERVER.fullmatch(f"{entry}:{default_port}"))
        if not match or not 0 < int(match["port"]) < 2**16:
            raise ValueError(
                f"invalid {what} address {entry!r}: expected host:port, for example {example}. Separate addresses by "
                f"commas, and write an IPv6 address in brackets, for example [::1]:{example.partition(':')[2]}"
            )
        addresses.append((match["ipv6"] or match["name"], int(match["port"])))
    if not addresses:
        raise ValueError("expected at least one host:port")
    return tuple(dict.fromkeys(addresses))


_ZOOKEEPER_PORT = 2181
_CHROOT = re.compile(r"(?:/[^/\s]+)+")


def _zookeeper(text: str) -> tuple[tuple[tuple[str, int], ...], str]:
    """Return the servers and the chroot of `zk1:2181,zk2/kafka`."""
    listed, slash, rest = text.strip().partition("/")
    chroot = (slash + rest).rstrip("/")
    if chroot and (not _CHROOT.fullmatch(chroot) or {".", ".."} & set(chroot.split("/"))):
        raise ValueError(
            f"invalid chroot {chroot!r}: expected one path after the last server, for example zk1:2181/kafka"
        )
    return _addresses(listed, "ZooKeeper", "zk1:2181", _ZOOKEEPER_PORT), chroot


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
    for entry in _entries(text):
        word = entry.lower()
        if word in _STRATEGIES:
            names.append(_STRATEGIES[word])
        elif word.rpartition(".")[2] in _NO_STRATEGIES:
            raise ValueError(
                f"the strategy {entry!r} is not supported yet. Use cooperative-sticky, which moves as few partitions"
            )
        else:
            raise ValueError(f"unknown strategy {entry!r}: expected one or more of {_SOME_STRATEGY}")
    if not names:
        raise ValueError(f"expected one or more of {_SOME_STRATEGY}")
    return tuple(dict.fromkeys(names))


# -- Spark's topics and offsets ----------------------------------------------------------------------------------------


def _topic(name: str) -> str:
    if not _TOPIC.fullmatch(name) or name in (".", ".."):
        raise ValueError(f"invalid topic name {name!r}: expected up to 249 letters, digits, '.', '_' and '-'")
    return name


def _topics(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(map(_topic, _entries(text))))
    if not names:
        raise ValueError("expected at least one topic. Separate topics by commas")
    return names


def _pattern(text: str) -> str:
    from streamgroup.java_regex import compile_java  # noqa: PLC0415  (most queries have no pattern)

    pattern = _text(text)
    try:
        compile_java(pattern)
    except ValueError as error:
        raise ValueError(
            f"invalid regular expression: {error}. Write it in Java's syntax, or name the topics with 'subscribe'"
        ) from None
    return pattern


def _object(text: str) -> Mapping[str, Any]:
    """Return a JSON object. Raises ValueError for repeated keys, which Python's reader accepts."""

    def unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            names = [name for name, _ in pairs]
            raise ValueError(f"repeated key {next(n for n in names if names.count(n) > 1)!r}")
        return members

    try:
        value = json.loads(text, object_pairs_hook=unrepeated)
    except json.JSONDecodeError as error:
        before, after = text[max(0, error.pos - _EXCERPT // 2) : error.pos], text[error.pos : error.pos + _EXCERPT // 2]
        raise ValueError(
            f"invalid JSON: {error.msg} at line {error.lineno}, column {error.colno}: {before}<here>{after}"
        ) from None
    except RecursionError:
        raise ValueError("invalid JSON: too many nested levels") from None
    if not isinstance(value, dict) or not value:
        raise ValueError('expected a JSON object with topics as keys, for example {"orders": …}')
    return value


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    partitions: list[TopicPartition] = []
    for topic, numbers in _object(text).items():
        if not isinstance(numbers, list) or not numbers:
            raise ValueError(
                f'invalid partitions of topic {topic!r}: expected a list, for example {{"{topic}": [0, 1]}}'
            )
        partitions.extend(TopicPartition(_topic(topic), _partition(number)) for number in numbers)
    return tuple(sorted(set(partitions)))


def _partition(number: object) -> int:
    """Return the number of a partition. In Kafka 0.7's own form, `"1-2"` is partition 2 of broker 1."""
    if isinstance(number, str) and (match := _OF_BROKER.fullmatch(number)):
        return partition_number(int(match[1]), int(match[2]))
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= INT_MAX:
        raise ValueError(
            f"invalid partition number {number!r}: expected an integer from 0, or broker-partition for Kafka 0.7"
        )
    return number


def _per_partition(text: str, lowest: int, meaning: str) -> dict[TopicPartition, int]:
    """Return the numbers of `{"topic": {"0": n}}`. Each n is at least `lowest`; `meaning` describes it in errors."""
    numbers: dict[TopicPartition, int] = {}
    for topic, partitions in _object(text).items():
        if not isinstance(partitions, dict) or not partitions:
            raise ValueError(
                f'invalid partitions of topic {topic!r}: expected an object, for example {{"{topic}": {{"0": 23}}}}'
            )
        for key, number in partitions.items():
            if not re.fullmatch(r"[0-9]{1,10}", key) and not _OF_BROKER.fullmatch(key):
                raise ValueError(f"invalid partition number {key!r} of topic {topic!r}: expected an integer from 0")
            tp = TopicPartition(_topic(topic), _partition(int(key) if key.isdecimal() else key))
            if isinstance(number, bool) or not isinstance(number, int) or not lowest <= number <= LONG_MAX:
                raise ValueError(f"invalid number {number!r} for {tp}: expected {meaning}")
            if tp in numbers:
                raise ValueError(f"repeated partition {tp}")
            numbers[tp] = number
    return numbers


_ENDS_OF_A_LOG = {"earliest": EARLIEST, "latest": LATEST}


def _offsets(words: Collection[str], refusal: str = "") -> ValueKind:
    """Return the kind of the words in `words` (`earliest`, `latest`) and of JSON with an offset for each partition.

    In JSON, -2 stands for `earliest` and -1 for `latest`. `refusal` is the error for a word outside `words`, or its
    number.
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
            raise ValueError(f"expected {' or '.join(words)} or JSON, for example {example}")
        offsets = _per_partition(text, min(_ENDS_OF_A_LOG.values()), f"an offset ({numbers})")
        for tp, offset in offsets.items():
            if offset in refused:
                raise ValueError(f"invalid offset {offset} for {tp}: {refusal}")
        return offsets

    return ValueKind(", ".join(f"`{word}`" for word in words) + " or JSON", parse)


# -- writes ------------------------------------------------------------------------------------------------------------

_PARTITIONERS = (
    "default",
    "sticky",
    "round_robin",
    "random",
    "murmur2_random",
    "consistent",
    "consistent_random",
    "hashcode",
    "hashcode_bytes",
)
_PARTITIONER_CLASSES = {
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": "sticky",
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": "round_robin",
    "kafka.producer.DefaultPartitioner": "hashcode",
    "kafka.producer.ByteArrayPartitioner": "hashcode_bytes",
}


def _partitioner_class(text: str) -> str:
    known = {name.lower(): word for name, word in _PARTITIONER_CLASSES.items()}
    if word := known.get(text.strip().lower()):
        return word
    raise ValueError(
        f"expected one of {', '.join(_PARTITIONER_CLASSES)}. Python cannot run another Java class. Set 'partitioner', "
        "or compute the column 'partition' in the query"
    )


def _level(lowest: int, highest: int, default: int) -> ValueKind:
    """Return the kind of a codec's levels. Its value is None for the codec's default, which may be out of range."""

    def parse(text: str) -> int | None:
        if text.strip() == str(default):
            return None
        return _integer(text, lowest, highest)

    return ValueKind("int", parse)


BOOLEAN = ValueKind("boolean", _boolean)
TEXT = ValueKind("text", _text)
RACK = ValueKind("text", str.strip)
"""An empty rack means no rack, as in Java's consumer."""
DURATION = ValueKind("duration", _duration)
TIME_STRING = ValueKind("time", time_string)
"""A time as Spark's own options take it."""
POSITIVE = integer(1)
POSITIVE_LONG = integer(1, LONG_MAX)


def _weight(text: str) -> int:
    if text.strip().lower() == "auto":
        return WEIGHT_OF_CORES
    try:
        return _integer(text, 1, 1_000_000)
    except ValueError as error:
        raise ValueError(f"{error}, or auto") from None


WEIGHT = ValueKind("int or auto", _weight)
POSITIVE_OR_OFF = ValueKind("long", _positive_or_off)
TIMESTAMP = ValueKind("ms since 1970", lambda text: _integer(text, 0, LONG_MAX))
SERVERS = ValueKind("host:port, …", lambda text: _addresses(text, "broker", "broker-1:9092"))
ZOOKEEPER = ValueKind("host:port, …/chroot", _zookeeper)
_WITH_PASSWORD = re.compile(r"://[^:/]*:[^@]*@|[?&](?:ssl_?)?(?:key_)?passw(?:or)?d=", re.IGNORECASE)


def _database(text: str) -> str:
    url = _text(text)
    if "://" not in url:
        raise ValueError(
            "expected the URL of a database, such as postgresql://host/database or sqlite:////path/file.db"
        )
    if _WITH_PASSWORD.search(url):
        raise ValueError(
            "expected a URL without a password, because Spark shows options in plans. Set the option of the password"
        )
    return url


DATABASE = ValueKind("URL", _database)
TRANSACTION = "transaction"
"""The value of `offsets.store` with which the sink's transactions of Kafka commit the offsets."""
OFFSETS_STORE = ValueKind("URL", lambda text: text if text == TRANSACTION else _database(text))
SECRET = ValueKind("secret", lambda text: Secret(_text(text)))
STRATEGIES = ValueKind("list", _strategies)
TOPICS = ValueKind("list", _topics)
COLUMNS = ValueKind("list", lambda text: tuple(dict.fromkeys(_entries(text))))
PATTERN = ValueKind("regular expression", _pattern)
ASSIGNED = ValueKind("JSON", _assigned)
TIMESTAMPS = ValueKind("JSON", lambda text: _per_partition(text, 0, "a timestamp in milliseconds since 1970"))

STREAM_STARTS = _offsets(("earliest", "latest"))
BATCH_STARTS = _offsets(("earliest",), "a batch read cannot start at the latest offset, because it would be empty")
BATCH_ENDS = _offsets(("latest",), "a batch read cannot end at the earliest offset, because it would be empty")

ISOLATION = choice({"read_uncommitted": Isolation.READ_UNCOMMITTED, "read_committed": Isolation.READ_COMMITTED})
NO_MATCH = choice({"error": False, "latest": True})
STORAGE = choice({storage.value: storage for storage in OffsetsStorage})
MODE = choice({mode.value: mode for mode in GroupMode})
PROTOCOL = choice({protocol.value: protocol for protocol in GroupProtocol})
ACKS = choice({"all": -1, "-1": -1, "1": 1, "0": 0})
COMPRESSION = choice({name: name for name in ("none", "gzip", "snappy", "lz4", "zstd")})
GZIP_LEVEL = _level(1, 9, -1)
# Java's lz4 takes 9 for the fast compressor, and every other level for the one that compresses more.
LZ4_LEVEL = _level(1, 17, 9)
ZSTD_LEVEL = _level(-131_072, 22, 3)
PARTITIONER = choice({name: name for name in _PARTITIONERS})
PARTITIONER_CLASS = ValueKind("Java class", _partitioner_class)
TOPIC = ValueKind("text", lambda text: _topic(_text(text)))

# -- security ----------------------------------------------------------------------------------------------------------

ZOOKEEPER_SASL = choice(
    {"digest-md5": "DIGEST-MD5"},
    {
        "gssapi": "the client of ZooKeeper has no Kerberos. Use DIGEST-MD5, the scheme digest (zookeeper.username "
        "alone), or a client certificate"
    },
)
SECURITY = choice({name.lower(): name for name in (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)})
_KAFKA_HANDLERS = "org.apache.kafka.common.security.oauthbearer."


def _login_handler(text: str) -> str:
    name = text.strip().removeprefix("kafkashaded.")
    if not name.startswith(_KAFKA_HANDLERS):
        raise ValueError(
            "it names a Java class, which Python cannot run. For tokens of a cloud set sasl.tokenProvider instead"
        )
    return name


def _jwt_retriever(text: str) -> str:
    name = text.strip().removeprefix("kafkashaded.").removeprefix(_KAFKA_HANDLERS)
    if name in {"DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever"}:
        return name
    if name == "JwtBearerJwtRetriever":
        raise ValueError("tokens for an assertion (RFC 7523) are not supported. Get them by sasl.tokenProvider")
    raise ValueError(
        "it names a Java class, which Python cannot run. For tokens of a cloud set sasl.tokenProvider instead"
    )


LOGIN_HANDLER = ValueKind("a class of Kafka's", _login_handler)
JWT_RETRIEVER = ValueKind("a class of Kafka's", _jwt_retriever)
_VERSIONS = {"tlsv1.2": "TLSv1.2", "tlsv1.3": "TLSv1.3"}
_INSECURE = dict.fromkeys(
    ("ssl", "sslv2", "sslv3", "tlsv1", "tlsv1.1"), "the version is insecure. Use TLSv1.2 or TLSv1.3"
)
TLS_VERSION = choice(_VERSIONS, _INSECURE)
TLS_PROTOCOL = choice({**_VERSIONS, "tls": "TLSv1.3"}, _INSECURE)
"""The name of Java's context: `TLS` has every version, and `ssl.enabled.protocols` chooses among them."""


def _tls_versions(text: str) -> tuple[str, ...]:
    versions = tuple(dict.fromkeys(TLS_VERSION.parse(entry) for entry in _entries(text)))
    if not versions:
        raise ValueError("expected one or both of TLSv1.2, TLSv1.3")
    return versions


def _cipher_suites(text: str) -> tuple[str, ...]:
    suites = tuple(dict.fromkeys(openssl_name(entry) for entry in _entries(text)))
    if not suites:
        raise ValueError("expected at least one cipher suite, for example TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")
    return suites


def _endpoint_identification(text: str) -> str:
    word = text.strip().lower()
    if word not in ("https", ""):
        raise ValueError("expected https, or an empty value to switch the verification of host names off")
    return word


TLS_VERSIONS = ValueKind("list", _tls_versions)
CIPHER_SUITES = ValueKind("list", _cipher_suites)
ENDPOINT_IDENTIFICATION = ValueKind("`https` or empty", _endpoint_identification)
STORE_TYPE = choice({"jks": "JKS", "pkcs12": "PKCS12", "pem": PEM})
