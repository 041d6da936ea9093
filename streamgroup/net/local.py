"""Conversations with another process of this machine, over a Unix socket, of which every wait has a deadline.

`multiprocessing.connection.Client` has none: it waits for ever for a process that is stopped and accepts nobody.
"""

from __future__ import annotations

import math
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from streamgroup.errors import ConfigError

LONGEST_ADDRESS = 103
"""Bytes that a socket's path may have on every system: 103 on macOS and BSD (107 on Linux)."""
_DESCRIPTORS = Path("/proc/self/fd")


@contextmanager
def address_of(path: Path) -> Iterator[str]:
    """Give an address for the socket at `path` that is short enough for the kernel, valid while the block runs.

    A path that is too long is named through a descriptor of its directory. Raises ConfigError where that is not
    possible: the name itself is too long, or the system has no /proc. Raises OSError if there is no such directory.
    """
    if len(os.fsencode(path)) <= LONGEST_ADDRESS:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        short = _DESCRIPTORS / str(directory) / path.name
        if len(os.fsencode(short)) > LONGEST_ADDRESS or not short.parent.exists():
            raise ConfigError(
                f"cannot open the control socket {path}: its path has {len(os.fsencode(path))} bytes, at most "
                f"{LONGEST_ADDRESS} are possible without /proc. Set TMPDIR to a shorter directory, the same for the "
                "driver and for the shell that runs streamgroup drain"
            )
        yield str(short)
    finally:
        os.close(directory)


class Listener:
    """A socket at `path`, which only this user may connect to. Raises OSError, ConfigError as `address_of`.

    `accept` waits `timeout` seconds at most. The file stays when it is closed.
    """

    def __init__(self, path: Path, backlog: int, timeout: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with address_of(path) as address:
                self._socket.bind(address)
            path.chmod(0o600)
            self._socket.listen(backlog)
            self._socket.settimeout(timeout)
        except BaseException:
            self._socket.close()
            raise

    def accept(self) -> Connection[Any, Any] | None:
        """The next connection; None where nobody has come. Raises OSError where it is closed."""
        try:
            return Connection(self._socket.accept()[0].detach())
        except TimeoutError:
            return None

    def close(self) -> None:
        """Accept nobody any more; wakes a thread that waits in `accept`."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def connect(path: Path, timeout: float) -> Connection[Any, Any]:
    """A connection to the socket at `path`. Connecting, each sending and each receiving take `timeout` s at most.

    Raises OSError: FileNotFoundError or ConnectionRefusedError where nobody listens, BlockingIOError, here and later,
    where the time is over. Raises ConfigError as `address_of`.
    """
    seconds = max(0.001, timeout)  # 0 would mean for ever
    whole = math.floor(seconds)
    limit = struct.pack("ll", whole, int((seconds - whole) * 1_000_000))  # struct timeval
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as opened:
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            opened.setsockopt(socket.SOL_SOCKET, option, limit)
        with address_of(path) as address:
            opened.connect(address)
        return Connection(opened.detach())
