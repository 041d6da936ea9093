"""Free ports on the loopback interface."""

from __future__ import annotations

import contextlib
import random
import socket

from streamgroup.errors import TransportError

LOOPBACK = "127.0.0.1"

_PORTS = range(12_000, 32_000)
"""Below the ephemeral port ranges of Linux, macOS and Windows: no outgoing connection takes the port of a stopped
server."""

_ATTEMPTS = 1_000


def free_ports(count: int) -> tuple[int, ...]:
    """Return `count` different ports without a listener. Raises TransportError if there are too few."""
    rng = random.SystemRandom()
    with contextlib.ExitStack() as held:
        ports: list[int] = []
        for _ in range(_ATTEMPTS):
            if len(ports) == count:
                return tuple(ports)
            port = rng.choice(_PORTS)
            listener = held.enter_context(socket.socket())
            try:
                listener.bind((LOOPBACK, port))
            except OSError:
                continue
            ports.append(port)
    raise TransportError(
        f"cannot find {count} free ports on {LOOPBACK} in {_ATTEMPTS} attempts. Stop servers that are left over"
    )


def receive_exactly(connection: socket.socket, count: int) -> bytes:
    """Receive `count` bytes. Raises ConnectionError if the stream ends before."""
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionError("it closed the connection")
        data += more
    return data
