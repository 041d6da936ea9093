"""Whether a server serves, asked in its own protocol.

Independent of `streamgroup.wire` and `streamgroup.net` on purpose: a fault there must not look like a server that does
not start.
"""

from __future__ import annotations

import socket
import struct

_TIMEOUT_S = 2.0
_METADATA_V0 = struct.pack(">hhih5si", 3, 0, 0, 5, b"probe", 0)
"""Metadata v0 (api key, version, correlation id, client id, no topic named): every Kafka since 0.8 answers it."""

_MAX_BROKERS = 1_000
_MAX_ANSWER = 64 * 1024


def brokers_known_to(host: str, port: int) -> frozenset[int]:
    """The ids of the brokers that are in service as the broker at `host:port` knows them; empty where it is silent."""
    try:
        with socket.create_connection((host, port), _TIMEOUT_S) as connection:
            connection.settimeout(_TIMEOUT_S)
            connection.sendall(struct.pack(">i", len(_METADATA_V0)) + _METADATA_V0)
            # The brokers stand first; the topics after them may be many and do not matter.
            return broker_ids(_read(connection))
    except (OSError, struct.error):
        return frozenset()


def broker_ids(answer: bytes) -> frozenset[int]:
    """The broker ids in a Metadata v0 answer without its length. Raises struct.error where it is too short."""
    _, count = struct.unpack_from(">ii", answer)
    if not 0 <= count <= _MAX_BROKERS:
        raise struct.error(f"not a number of brokers: {count}")
    ids, at = [], 8
    for _ in range(count):
        node_id, host_length = struct.unpack_from(">ih", answer, at)
        at += 6 + host_length
        struct.unpack_from(">i", answer, at)
        at += 4
        ids.append(node_id)
    return frozenset(ids)


def zookeeper_serves(host: str, port: int, data: str) -> bool:
    """Whether a ZooKeeper serves at `host:port`, and is the one whose data directory is `data`.

    It answers `conf` with its configuration once it serves, with a sentence before.
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


def _read(connection: socket.socket) -> bytes:
    """The first _MAX_ANSWER bytes of one answer, without its length."""
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    return _exactly(connection, min(size, _MAX_ANSWER))


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise OSError("the connection ended")
        data += more
    return data
