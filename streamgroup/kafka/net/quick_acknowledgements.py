"""Saves each task of a Python worker 40 ms of waiting for the JVM, by TCP_QUICKACK.

The JVM sends the last bytes of a task's input in a separate write. Nagle's algorithm holds such bytes back until
the worker's kernel has acknowledged the earlier ones, and Linux delays that by 40 ms. A worker that sets the option
does not wait. The kernel resets the option when the worker answers, so each task sets it again.
"""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

_DESCRIPTORS = Path("/proc/self/fd")
_QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)
"""None if the system has no such option, such as macOS."""


def acknowledge_at_once() -> None:
    """Set TCP_QUICKACK on all TCP sockets of this process.

    PySpark does not pass the JVM's socket to a data source. On a socket of a broker the option does no harm. Sockets
    of other kinds are not changed, such as those of spark.python.unix.domain.socket.enabled.
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
