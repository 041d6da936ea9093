"""Readiness probes of servers, in their own protocols.

This module does not use `streamgroup.kafka`: a bug there must not look like a server that does not start.
"""

from __future__ import annotations

import socket
import struct

from streamgroup.testing.ports import receive_exactly

_TIMEOUT_S = 2.0
_METADATA_V0 = struct.pack(">hhih5s", 3, 0, 0, 5, b"probe")
"""The header of Metadata v0 (api key, version, correlation id, client id), which every Kafka since 0.8 answers."""

_NO_TOPIC_NAMED = struct.pack(">i", 0)

_MAX_COUNT = 1_000
_MAX_ANSWER = 64 * 1024


def brokers_known_to(host: str, port: int) -> frozenset[int]:
    """Return the ids of the brokers that the broker at `host:port` knows; empty if it does not answer."""
    answer = _metadata(host, port, _NO_TOPIC_NAMED)
    try:
        # The brokers come first; the topics after them may be many and are not needed.
        return frozenset() if answer is None else broker_ids(answer)
    except struct.error:
        return frozenset()


def accepts(host: str, port: int) -> bool:
    """Return whether a process listens at `host:port`, the only probe that Kafka 0.7 allows."""
    try:
        socket.create_connection((host, port), _TIMEOUT_S).close()
    except OSError:
        return False
    return True


def answers_metadata(host: str, port: int) -> bool:
    """Return whether a broker at `host:port` answers Metadata.

    A broker of 0.8 lists no brokers, not even itself, before the first topic.
    """
    return _metadata(host, port, _NO_TOPIC_NAMED) is not None


def leaders_known_to(host: str, port: int, topic: str) -> dict[int, int]:
    """Return the leaders of a topic's partitions that the broker at `host:port` knows.

    Partitions without a leader are absent.
    """
    name = topic.encode()
    answer = _metadata(host, port, struct.pack(f">ih{len(name)}s", 1, len(name), name))
    try:
        return {} if answer is None else partition_leaders(answer)
    except struct.error:
        return {}


def broker_ids(answer: bytes) -> frozenset[int]:
    """Return the broker ids in a Metadata v0 response without its length. Raises struct.error if it is too short."""
    return frozenset(_brokers(answer)[0])


def partition_leaders(answer: bytes) -> dict[int, int]:
    """Return the partition leaders of the only topic in a Metadata v0 response. Raises struct.error as `broker_ids`."""
    _, at = _brokers(answer)
    topics, error, name_length = struct.unpack_from(">ihh", answer, at)
    if topics != 1 or error:
        return {}
    at += 8 + name_length
    (count,) = struct.unpack_from(">i", answer, at)
    at += 4
    leaders = {}
    for _ in range(_counted(count)):
        _, partition, leader = struct.unpack_from(">hii", answer, at)
        at += 10
        for _ in ("replicas", "in sync"):
            (replicas,) = struct.unpack_from(">i", answer, at)
            at += 4 + 4 * _counted(replicas)
        if leader >= 0:
            leaders[partition] = leader
    return leaders


def _brokers(answer: bytes) -> tuple[list[int], int]:
    """Return the broker ids and the position after the brokers."""
    _, count = struct.unpack_from(">ii", answer)
    ids, at = [], 8
    for _ in range(_counted(count)):
        node_id, host_length = struct.unpack_from(">ih", answer, at)
        at += 6 + host_length
        struct.unpack_from(">i", answer, at)
        at += 4
        ids.append(node_id)
    return ids, at


def _counted(count: int) -> int:
    if not 0 <= count <= _MAX_COUNT:
        raise struct.error(f"invalid number of brokers or partitions: {count}")
    return count


def zookeeper_serves(host: str, port: int, data: str) -> bool:
    """Return whether the ZooKeeper with the data directory `data` serves at `host:port`.

    It answers `conf` with its configuration once it serves, and with a sentence before that.
    """
    try:
        with socket.create_connection((host, port), _TIMEOUT_S) as connection:
            connection.settimeout(_TIMEOUT_S)
            connection.sendall(b"conf")
            answer = b""
            while len(answer) < _MAX_ANSWER and (more := connection.recv(4096)):
                answer += more
    except OSError:
        return False
    return f"dataDir={data}/".encode() in answer


def _metadata(host: str, port: int, topics: bytes) -> bytes | None:
    """Return the start of the response without its length; None without a response."""
    try:
        with socket.create_connection((host, port), _TIMEOUT_S) as connection:
            connection.settimeout(_TIMEOUT_S)
            connection.sendall(struct.pack(">i", len(_METADATA_V0) + len(topics)) + _METADATA_V0 + topics)
            return _read(connection)
    except (OSError, struct.error):
        return None


def _read(connection: socket.socket) -> bytes:
    """Read the first _MAX_ANSWER bytes of a response without its length."""
    (size,) = struct.unpack(">i", receive_exactly(connection, 4))
    return receive_exactly(connection, min(size, _MAX_ANSWER))
