"""Free ports on the loopback."""

from __future__ import annotations

import contextlib
import random
import socket

from streamgroup.errors import TransportError

LOOPBACK = "127.0.0.1"

_PORTS = range(12_000, 32_000)
"""Below the range from which Linux, macOS and Windows take the local ports of outgoing connections: a server that is
down keeps its port free for its restart."""

_ATTEMPTS = 1_000


def free_ports(count: int) -> tuple[int, ...]:
    """`count` different ports that nobody listens on at this moment. Raises TransportError where none is found."""
    chance = random.SystemRandom()
    with contextlib.ExitStack() as held:
        ports: list[int] = []
        for _ in range(_ATTEMPTS):
            if len(ports) == count:
                return tuple(ports)
            port = chance.choice(_PORTS)
            listener = held.enter_context(socket.socket())
            try:
                listener.bind((LOOPBACK, port))
            except OSError:
                continue
            ports.append(port)
    raise TransportError(
        f"no {count} free ports on {LOOPBACK} after {_ATTEMPTS} attempts; are other servers left over?"
    )
