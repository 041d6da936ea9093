"""Sends and receives the bytes of one connected socket without waiting: plaintext.

`tls/transport.py` does so with TLS.
"""

from __future__ import annotations

import os
import select
import socket
import stat
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from streamgroup.errors import StreamGroupError

_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER on with 0 s: closing discards unsent bytes and sends RST."""
_LONGEST_USER_TIMEOUT_MS = 2**31 - 1


PROBE_TIMEOUT_S = 1.0
"""Seconds that a server without TLS has to prove that (`kafka/net/tls/transport.py`). A server that takes longer is not
recognized, and the client retries as after any lost connection."""


def set_user_timeout(connected: socket.socket, milliseconds: int) -> None:
    """Set the socket option TCP_USER_TIMEOUT if the system has it."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, min(milliseconds, _LONGEST_USER_TIMEOUT_MS))


class Transport(ABC):
    """The bytes of one connected, non-blocking socket: plaintext or TLS.

    `send` and `receive_into` raise OSError if the connection is lost.
    """

    _socket: socket.socket

    @property
    def fileno(self) -> int:
        return self._socket.fileno()

    def set_user_timeout(self, milliseconds: int) -> None:
        """Let the kernel end the connection if the other end acknowledges no bytes for `milliseconds`."""
        set_user_timeout(self._socket, milliseconds)

    def close(self, *, reset: bool) -> None:
        """Close the connection with FIN, or (`reset`) with RST, so that no bytes in transit take effect later."""
        if reset:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._socket.close()

    @abstractmethod
    def shake_hands(self, now: float) -> bool:
        """Continue the handshake of the transport. Return whether it is done. `now` is in seconds.

        If it is not done, call this again on the next socket event, and after PROBE_TIMEOUT_S without one.

        Raises TransportError if the connection is lost, and another StreamGroupError if retrying will not help.
        """

    @abstractmethod
    def interest(self, has_unsent: bool) -> int:
        """Return the events to poll the socket for. `has_unsent` is true if there are bytes to send."""

    @property
    @abstractmethod
    def pending(self) -> bool:
        """Whether `receive_into` can return bytes although the socket may not be readable."""

    @abstractmethod
    def send(self, pieces: Sequence[memoryview]) -> int:
        """Send the first bytes of `pieces`, and return their number; 0 if the socket accepts none now."""

    @abstractmethod
    def receive_into(self, space: memoryview) -> int | None:
        """Receive into `space`, and return the number of bytes: 0 at the end of the stream, None if there are none yet.

        If it is less than the size of `space`, either no more bytes have arrived, or other connections get their turn
        first.
        """

    @abstractmethod
    def refusal(self, error: OSError) -> StreamGroupError | None:
        """Return the error for `error`, which came before the first response, if retrying will not help; else None."""


class PlainTransport(Transport):
    """A TCP connection without encryption."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def shake_hands(self, now: float) -> bool:
        return True

    def interest(self, has_unsent: bool) -> int:
        return select.POLLIN | select.POLLOUT if has_unsent else select.POLLIN

    @property
    def pending(self) -> bool:
        return False

    def send(self, pieces: Sequence[memoryview]) -> int:
        try:
            return self._socket.sendmsg(pieces)
        except BlockingIOError:
            return 0

    def receive_into(self, space: memoryview) -> int | None:
        try:
            return self._socket.recv_into(space)
        except BlockingIOError:
            return None

    def refusal(self, error: OSError) -> StreamGroupError | None:
        return None


_DESCRIPTORS = Path("/proc/self/fd")
_QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)
"""None if the system has no such option, such as macOS."""


def acknowledge_at_once() -> None:
    """Set TCP_QUICKACK on all TCP sockets of this process, so that the kernel sends acknowledgements without delay.

    PySpark does not pass the JVM's socket to a data source, so the option is set on all. It does no harm on a socket to
    a broker. Other kinds of sockets are not changed, such as those of spark.python.unix.domain.socket.enabled.
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
