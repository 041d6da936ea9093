"""Reads from the sockets of servers and clients of tests."""

from __future__ import annotations

import socket


def receive_exactly(connection: socket.socket, count: int) -> bytes:
    """Receive `count` bytes. Raises ConnectionError if the stream ends before."""
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionError("it closed the connection")
        data += more
    return data
