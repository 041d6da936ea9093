"""Spares each task of a Python worker 40 ms that it would wait for the JVM.

The JVM sends the last bytes of a task's input in a write of their own. Nagle's algorithm holds such bytes back until
the worker's kernel has acknowledged the earlier ones, and Linux delays that by 40 ms. A worker that asks for quick
acknowledgements does not wait. The kernel forgets the request when the worker answers, so each task asks again.
"""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

_DESCRIPTORS = Path("/proc/self/fd")
_QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)
"""None where the system has no such option, as macOS."""


def acknowledge_at_once() -> None:
    """Ask the kernel to acknowledge at once what arrives at the TCP sockets of this process, the JVM's among them.

    PySpark does not hand the JVM's socket to a data source. At a socket of a broker the call does no harm. Sockets of
    another kind stay as they are, such as those of spark.python.unix.domain.socket.enabled.
    """
    if _QUICKACK is None:
        return
    with suppress(OSError):  # no /proc
        for path in _DESCRIPTORS.iterdir():
            with suppress(OSError):  # closed meanwhile, or no TCP socket
                _acknowledge_at_once(int(path.name), _QUICKACK)


def _acknowledge_at_once(descriptor: int, option: int) -> None:
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return
    # With SOCK_NONBLOCK the constructor leaves the mode of the socket alone. Without it a default timeout, which a
    # library may have set, would make the JVM's socket non-blocking.
    found = socket.socket(type=socket.SOCK_STREAM | socket.SOCK_NONBLOCK, fileno=descriptor)
    try:
        found.setsockopt(socket.IPPROTO_TCP, option, 1)
    finally:
        found.detach()
