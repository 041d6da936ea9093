"""Asks a server that has closed a connection in the TLS handshake whether it speaks Kafka's protocol without TLS.

A plaintext broker takes the beginning of TLS for a frame that is too large, and closes the connection. A broker with
TLS that starts or stops closes it, too. An answer without TLS tells them apart: a TLS listener never gives one.
"""

from __future__ import annotations

import errno
import select
import socket
import struct
from typing import Any

from streamgroup.net.transport import PROBE_TIMEOUT_S
from streamgroup.wire.frames import encode_request
from streamgroup.wire.messages.cluster import ApiVersionsRequest

_CORRELATION_ID = 0x50726F62
_REQUEST = encode_request(ApiVersionsRequest(), 0, _CORRELATION_ID, None)
"""The request has neither a client id nor credentials: anybody on the way can read it."""
_ANSWER = struct.Struct(">ii")
_SIZES = range(6, 1 << 20)
"""Bytes that the answer may have behind its length: at least a correlation id and an error code."""
_NOT_YET = frozenset({errno.EAGAIN, errno.EINPROGRESS, errno.EINTR, errno.ENOTCONN, errno.EWOULDBLOCK})


class PlaintextProbe:
    """One connection without TLS to `address`. `now` is in seconds on the caller's clock.

    An attacker who breaks off TLS and answers the probe only makes the client fail: the client sends nothing else
    without TLS.
    """

    def __init__(self, family: socket.AddressFamily, address: Any, now: float) -> None:
        self._until = now + PROBE_TIMEOUT_S
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._is_sent = False
        self._received = b""
        self._has_failed = self._socket.connect_ex(address) not in (0, *_NOT_YET)

    @property
    def fileno(self) -> int:
        """The descriptor of the socket."""
        return self._socket.fileno()

    @property
    def interest(self) -> int:
        """The events to poll the descriptor for."""
        return select.POLLIN if self._is_sent else select.POLLOUT

    def advance(self, now: float) -> bool | None:
        """Go on without waiting. Return whether a Kafka broker has answered; None if the answer may still come."""
        if self._has_failed or now >= self._until:
            return False
        try:
            return self._exchange()
        except OSError as error:
            return None if error.errno in _NOT_YET else False

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _exchange(self) -> bool | None:
        if not self._is_sent:
            self._is_sent = self._socket.send(_REQUEST) == len(_REQUEST)
        received = self._socket.recv(_ANSWER.size - len(self._received))
        self._received += received
        if len(self._received) < _ANSWER.size:
            return None if received else False
        size, correlation_id = _ANSWER.unpack(self._received)
        return size in _SIZES and correlation_id == _CORRELATION_ID
