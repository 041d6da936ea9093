"""What brokers write into ZooKeeper when they register themselves and their topics; the bytes of such nodes as values.

    /brokers/ids/<broker>              E  0.7: <creator>:<host>:<port>; 0.8: JSON
    /brokers/topics/<topic>/<broker>   E  0.7: how many partitions the topic has on this broker
    /brokers/topics/<topic>               0.8: JSON, the partitions and their replicas

E: ephemeral. A partition's `<name>` in a path is `<broker>-<partition>` in 0.7, its number in 0.8.
Each function that reads a node raises DecodeError, which names the node, where the node holds anything else.
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
"""`jute.maxbuffer`: no node of ZooKeeper is larger."""
_INT_DIGITS_MOST = 19
_NUMBER = "(?:0|[1-9][0-9]{0,9})"
"""In the name of a node, in its one spelling: `00` beside `0` would be one broker twice."""
_BROKER_MOST = 2048
"""Two names of hosts are shorter; more is not held against an expression that tries many ways."""
_BROKER_07 = re.compile(r"(?P<creator>.+-[0-9]+|[^:]*):(?P<host>.+):(?P<port>[0-9]{1,5})")


def is_node_name(text: str) -> bool:
    """Whether a node can be called so: one step of a path."""
    return text not in {"", ".", ".."} and "/" not in text and text.isprintable()


def partition_in(log_format: LogFormat, name: str) -> int:
    """Return the number of the partition that a node is called after. Raises DecodeError."""
    try:
        return log_format.partition_number(name)
    except ValueError as error:
        raise DecodeError(f"invalid name of a partition's node {name[:80]!r}: {error}") from None


def dialect_of(broker: bytes) -> Dialect:
    """Which Kafka a broker's registration is of: JSON since 0.8."""
    return Dialect.KAFKA if broker.lstrip().startswith(b"{") else Dialect.KAFKA07


def read_broker(name: str, data: bytes, protocol: str = "PLAINTEXT") -> Broker:
    """The broker `/brokers/ids/<name>`, either dialect. Raises DecodeError.

    `protocol` chooses among the listeners that brokers from 0.9 on tell (`endpoints`); older ones have one.
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
        raise garbage(where, data, "a port between 1 and 65535")
    return port


def read_count(topic: str, broker: str, data: bytes) -> tuple[int, ...]:
    """0.7: the numbers of the partitions that `topic` has on `broker`. Raises DecodeError."""
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
    """0.8: the numbers of the partitions of `topic`, sorted. Raises DecodeError."""
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
    """Digits, as Java writes them, of an int64."""
    if not (text.isascii() and text.isdigit() and len(text) <= _INT_DIGITS_MOST) or int(text) >= 2**63:
        raise garbage(where, text.encode(errors="replace"), "a number")
    return int(text)


def read_number_name(name: str, where: str) -> int:
    """The number that a node is called by."""
    if re.fullmatch(_NUMBER, name) is None:
        raise DecodeError(f"{where}: {name[:80]!r} is not how a number is spelled in the name of a node")
    return int(name)


def garbage(where: str, data: bytes, wanted: str) -> DecodeError:
    """Return the error for a node that holds `data` where `wanted` is expected."""
    shown = repr(data[:80])[1:] + ("..." if len(data) > 80 else "")
    return DecodeError(f"{where} should hold {wanted}, and holds {shown}")
