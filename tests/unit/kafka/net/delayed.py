"""A connection whose acknowledgements the kernel delays, as those of a Python worker of Spark."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def delayed_connection() -> Iterator[socket.socket]:
    """Yield the worker's end of a connection that has answered several times."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as worker:
        jvm, _ = server.accept()
        with jvm:
            for _ in range(20):
                jvm.sendall(b"command")
                worker.recv(100)
                worker.sendall(b"answer")
                jvm.recv(100)
            assert not is_prompt(worker)
            yield worker


def is_prompt(end: socket.socket) -> bool:
    """Return whether the kernel acknowledges at once what arrives at `end`."""
    return bool(end.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))
