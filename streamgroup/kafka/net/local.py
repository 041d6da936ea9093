"""Connections between processes of one user over Unix sockets, with a timeout on every wait.

`multiprocessing.connection` has no timeouts: it waits forever for a stopped process that does not accept, and for the
rest of a message. Both ends check that the process at the other end belongs to the same user, if the system reports
that (Linux).
"""

from __future__ import annotations

import errno
import logging
import math
import os
import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from streamgroup.errors import ConfigError

log = logging.getLogger("streamgroup")

LONGEST_ADDRESS = 103
"""Bytes that a socket path may have on every system: 103 on macOS and BSD, 107 on Linux."""
_DESCRIPTORS = Path("/proc/self/fd")
_CREDENTIALS = struct.Struct("iII")
"""`struct ucred` of Linux: process id, effective user id, group id."""
_SIZE = struct.Struct("!i")
_RECEIVED_AT_ONCE = 1 << 16
_SHORTEST_S = 0.001
"""The shortest timeout of a connection: SO_SNDTIMEO 0 means none."""


class MessageSocket:
    """Sends and receives messages over a connected Unix socket.

    A message has the format of `multiprocessing.connection`: a size, then the bytes. A whole message is sent or
    received within `timeout` seconds. After that `send_bytes` and `recv_bytes` raise TimeoutError, even if the other
    process sends a byte now and then.
    """

    def __init__(self, connected: socket.socket, timeout: float) -> None:
        self._socket = connected
        self._timeout = timeout

    def __enter__(self) -> MessageSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send_bytes(self, message: bytes) -> None:
        """Send a message. Raises OSError."""
        self._socket.settimeout(self._timeout)  # `sendall` applies it to the whole message
        self._socket.sendall(_SIZE.pack(len(message)) + message)

    def poll(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for the first bytes of a message. Return whether there are any."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(max(0.0, timeout) * 1000))

    def recv_bytes(self, most: int) -> bytes:
        """Return the next message. Raises EOFError at the end of the stream, OSError for more than `most` bytes."""
        until = time.monotonic() + self._timeout
        (size,) = _SIZE.unpack(self._take(_SIZE.size, until))
        if not 0 <= size <= most:
            raise OSError(f"invalid message of {size} bytes: expected at most {most}")
        return self._take(size, until)

    def _take(self, size: int, until: float) -> bytes:
        received = bytearray()
        while len(received) < size:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            more = self._socket.recv(min(size - len(received), _RECEIVED_AT_ONCE))
            if not more:
                raise EOFError
            received += more
        return bytes(received)


@contextmanager
def address_of(path: Path) -> Iterator[str]:
    """Yield an address of the socket at `path` that is short enough for the kernel. It is valid during the block.

    A path that is too long is addressed through a descriptor of its directory. Raises ConfigError if the file name
    itself is too long or the system has no /proc, and OSError if the directory does not exist.
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
                f"{LONGEST_ADDRESS} are allowed without /proc. Set TMPDIR to a shorter directory, the same for the "
                "driver and for the shell that runs streamgroup drain"
            )
        yield str(short)
    finally:
        os.close(directory)


class Listener:
    """A listening socket at `path` to which only processes of this user may connect.

    `accept` waits at most `timeout` seconds. Each message on its connections may take `message_timeout` seconds.
    `close` leaves the file in place. Raises OSError, and ConfigError as `address_of`.
    """

    def __init__(self, path: Path, backlog: int, timeout: float, message_timeout: float) -> None:
        self._path = path
        self._message_timeout = message_timeout
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

    def accept(self) -> MessageSocket | None:
        """Return the next connection, or None after the timeout. Raises OSError if the listener is closed.

        Closes a connection from a process of another user, logs a warning, and returns None.
        """
        try:
            accepted = self._socket.accept()[0]
        except TimeoutError:
            return None
        stranger = _stranger_at(accepted)
        if stranger is None:
            return MessageSocket(accepted, self._message_timeout)
        accepted.close()
        log.warning("refused a connection to the control socket %s from %s", self._path, stranger)
        return None

    def close(self) -> None:
        """Stop accepting. A thread that waits in `accept` returns."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def connect(path: Path, timeout: float) -> MessageSocket:
    """Connect to the socket at `path`. `timeout` (seconds) applies to connecting and to each message.

    Raises FileNotFoundError or ConnectionRefusedError if no process listens, PermissionError if a process of another
    user listens, BlockingIOError if the process has not accepted within the timeout, and ConfigError as `address_of`.
    """
    seconds = max(_SHORTEST_S, timeout)
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with address_of(path) as address:
            _connect(opened, address, time.monotonic() + seconds)
        stranger = _stranger_at(opened)
        if stranger is not None:
            raise PermissionError(f"cannot connect to {path}: {stranger} listens there")
    except BaseException:
        opened.close()
        raise
    return MessageSocket(opened, seconds)


def _connect(opened: socket.socket, address: str, until: float) -> None:
    """Connect until that time. Raises OSError as `connect`.

    A signal, or SIGSTOP, that interrupts the wait for a place in the backlog ends it: Python then takes the socket for
    connected, which it is not.
    """
    while True:
        part, whole = math.modf(max(_SHORTEST_S, until - time.monotonic()))
        # Not `settimeout`: with it, connecting to a full backlog fails at once.
        timeval = struct.pack("ll", int(whole), int(part * 1_000_000))
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)
        opened.connect(address)
        try:
            opened.getpeername()
        except OSError as error:
            if error.errno != errno.ENOTCONN:
                raise
        else:
            return


def _stranger_at(connected: socket.socket) -> str | None:
    """Return the process at the other end, such as `process 7 of user 1000`, if it belongs to another user.

    For a client this is the user who called `listen`, for a server the user who called `connect`.
    """
    if not hasattr(socket, "SO_PEERCRED"):  # macOS: the directory, which only this user may enter, protects the socket
        return None
    found = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _group = _CREDENTIALS.unpack(found)
    return None if user == os.geteuid() else f"process {pid} of user {user}"
