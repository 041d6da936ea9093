"""Decodes the nodes in which brokers register themselves and their topics in ZooKeeper.

    /brokers/ids/<broker>              E  0.7: <creator>:<host>:<port>; 0.8: JSON
    /brokers/topics/<topic>/<broker>   E  0.7: the number of partitions that the topic has on this broker
    /brokers/topics/<topic>               0.8: JSON, the partitions and their replicas

E marks ephemeral nodes. In a path a partition is `<broker>-<partition>` in 0.7, its number in 0.8. Each function that
decodes a node raises a DecodeError that names the node if its content is invalid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from streamgroup.errors import DecodeError
from streamgroup.logformat import LogFormat, partition_number
from streamgroup.model import Broker, Dialect

BROKERS = "/brokers/ids"
TOPICS = "/brokers/topics"

_NODE_MOST = 1024 * 1024
"""ZooKeeper's `jute.maxbuffer`: the size limit of a node."""
_INT_DIGITS_MOST = 19
_NUMBER = "(?:0|[1-9][0-9]{0,9})"
"""A number in the name of a node, without leading zeros: `00` and `0` would register one broker twice."""
_BROKER_MOST = 2048
"""Bytes of a registration that are matched at most: the expression backtracks, and two host names are shorter."""
_BROKER_07 = re.compile(r"(?P<creator>.+-[0-9]+|[^:]*):(?P<host>.+):(?P<port>[0-9]{1,5})")


def is_node_name(text: str) -> bool:
    """Return whether `text` is a valid name of one node in a path."""
    return text not in {"", ".", ".."} and "/" not in text and text.isprintable()


def partition_in(log_format: LogFormat, name: str) -> int:
    """Return the partition number for the name of a node. Raises DecodeError."""
    try:
        return log_format.partition_number(name)
    except ValueError as error:
        raise DecodeError(f"invalid partition node {name[:80]!r}: {error}") from None


def dialect_of(broker: bytes) -> Dialect:
    """Return the dialect of a broker from the data of its node: JSON since 0.8."""
    return Dialect.KAFKA if broker.lstrip().startswith(b"{") else Dialect.KAFKA07


def read_broker(name: str, data: bytes, protocol: str = "PLAINTEXT") -> Broker:
    """Decode the broker registered at `/brokers/ids/<name>`, in either dialect. Raises DecodeError.

    `protocol` selects one of the listeners that brokers from 0.9 on register (`endpoints`); older brokers have one.
    """
    where = f"{BROKERS}/{name}"
    node_id = read_number_name(name, where)
    if dialect_of(data) is Dialect.KAFKA07:
        found = _BROKER_07.fullmatch(read_text(data, where)) if len(data) <= _BROKER_MOST else None
        if found is None:
            raise garbage(where, data, "<creator>:<host>:<port>")
        return Broker(node_id, found["host"], _port(int(found["port"]), where, data))
    value = read_object(data, where)
    host, port = _endpoint(value, protocol) or (value.get("host"), value.get("port"))
    if not isinstance(host, str) or not host or type(port) is not int:
        raise garbage(where, data, f"a host and a port for {protocol}")
    return Broker(node_id, host, _port(port, where, data))


def _endpoint(value: Mapping[str, Any], protocol: str) -> tuple[str, int] | None:
    """Return host and port of the listener with this security protocol, as in `SASL_PLAINTEXT://h:9093`.

    A listener may have another name, which a map resolves to its protocol (KIP-103).
    """
    endpoints, names = value.get("endpoints"), value.get("listener_security_protocol_map")
    for endpoint in endpoints if isinstance(endpoints, list) else ():
        found = re.fullmatch(r"([^:/]+)://\[?([^\[\]/]*)\]?:([0-9]{1,5})", endpoint) if type(endpoint) is str else None
        if found is not None and found[2]:
            found_protocol = names.get(found[1], found[1]) if isinstance(names, dict) else found[1]
            if found_protocol == protocol:
                return found[2], int(found[3])
    return None


def _port(port: int, where: str, data: bytes) -> int:
    if not 0 < port < 65536:
        raise garbage(where, data, "a port between 1 and 65535")
    return port


def read_count(topic: str, broker: str, data: bytes) -> tuple[int, ...]:
    """Decode a node of a Kafka 0.7 topic: return the numbers of the partitions that `topic` has on `broker`.

    Raises DecodeError.
    """
    where = f"{TOPICS}/{topic}/{broker}"
    count, node_id = read_number(read_text(data, where), where), read_number_name(broker, where)
    try:
        first = partition_number(node_id, 0)
        if count:
            partition_number(node_id, count - 1)
    except ValueError as error:
        raise DecodeError(f"{where}: {error}") from None
    return tuple(range(first, first + count))


def read_partitions(topic: str, data: bytes) -> tuple[int, ...]:
    """Decode the node of a topic of Kafka 0.8 or later: return its partition numbers, sorted. Raises DecodeError."""
    where = f"{TOPICS}/{topic}"
    partitions = read_object(data, where).get("partitions")
    if not isinstance(partitions, dict):
        raise garbage(where, data, '{"partitions":{...}}')
    return tuple(sorted(read_number_name(name, where) for name in partitions))


# -- text, JSON and numbers of any node -------------------------------------------------------------------------------


def read_text(data: bytes, where: str) -> str:
    """Return the text of a node, which must be UTF-8. Raises DecodeError."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise garbage(where, data, "UTF-8") from None


def read_object(data: bytes, where: str) -> dict[str, Any]:
    """Return the JSON object that a node holds. Raises DecodeError."""
    try:
        value = json.loads(data) if len(data) <= _NODE_MOST else None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise garbage(where, data, "a JSON object")
    return value


def read_number(text: str, where: str) -> int:
    """Parse an int64 in decimal digits, as Java writes it. Raises DecodeError."""
    if not (text.isascii() and text.isdigit() and len(text) <= _INT_DIGITS_MOST) or int(text) >= 2**63:
        raise garbage(where, text.encode(errors="replace"), "a number")
    return int(text)


def read_number_name(name: str, where: str) -> int:
    """Parse the number that is the name of a node. Raises DecodeError."""
    if re.fullmatch(_NUMBER, name) is None:
        raise DecodeError(f"invalid node {where}: {name[:80]!r} is not a number without leading zeros")
    return int(name)


def garbage(where: str, data: bytes, wanted: str) -> DecodeError:
    """Return the error for a node with invalid `data`; `wanted` describes valid data."""
    shown = repr(data[:80])[1:] + ("..." if len(data) > 80 else "")
    return DecodeError(f"invalid node {where}: expected {wanted}, found {shown}")
