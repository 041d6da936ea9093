"""A broker that does what a test says: real sockets, real frames, answers from a script."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from streamgroup.errors import DecodeError
from streamgroup.kafka.wire.schema import Request, decode, encode
from tests.waiting import TIMEOUT_S


@dataclass(frozen=True)
class Raw:
    """Send these bytes instead of a response; then go on."""

    data: bytes


@dataclass(frozen=True)
class Cut:
    """Send the response but its last bytes, then close (or reset) the connection."""

    response: Any
    missing: int
    reset: bool = False


@dataclass(frozen=True)
class Held:
    """Send the response when the event is set."""

    response: Any
    released: threading.Event


@dataclass(frozen=True)
class OtherId:
    """Send the response under another correlation id."""

    response: Any
    correlation_id: int


@dataclass(frozen=True)
class InVersion:
    """Send the response in this version, whatever was asked."""

    response: Any
    version: int


CLOSE = object()
"""Close the connection instead of answering."""
SILENCE = object()
"""Never answer."""

LARGEST_FRAME = 100 * 1024 * 1024
"""Bytes of a request beyond which a broker closes the connection (socket.request.max.bytes)."""
HOLD_TIMEOUT_S = 120.0
"""A response that nobody releases is sent after this."""

Handler = Callable[[Any, int], Any]


@dataclass
class FakeBroker:
    """Listens on a port of its own. `handlers[request class]` is a callable `(request, version) -> what to do`.

    With the context `tls` the listener requires TLS.
    """

    handlers: dict[type[Request[Any]], Handler]
    tls: ssl.SSLContext | None = None
    requests: list[tuple[str, int, Any]] = field(default_factory=list)
    connections: int = 0
    refused: list[OSError] = field(default_factory=list)
    """The errors of failed TLS handshakes."""
    resets: int = 0
    ends: int = 0

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._sockets: list[socket.socket] = []
        self._changed = threading.Condition()
        self._by_key = {cls.API_KEY: cls for cls in self.handlers}
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def asked(self, name: str) -> list[Any]:
        return [request for asked, _, request in self.requests if asked == name]

    def wait_for(self, condition: Callable[[FakeBroker], bool], seconds: float = TIMEOUT_S) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self), seconds), "the broker never saw it"

    def stop(self) -> None:
        """Stop listening and hang up."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # or the thread that accepts would go on
        self._accepting.join()  # or it could accept for the next broker, which may get the number of this socket
        self._listener.close()
        self.hang_up()

    def hang_up(self) -> None:
        """Close all connections."""
        for connected in self._sockets:
            with contextlib.suppress(OSError):
                # Not SSLSocket's own, which would break the thread that reads.
                socket.socket.shutdown(connected, socket.SHUT_RDWR)

    def _note(self, **counts: int) -> None:
        with self._changed:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)
            self._changed.notify_all()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connected, _ = self._listener.accept()
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._note(connections=1)
                threading.Thread(target=self._serve, args=(connected,), daemon=True).start()

    def _serve(self, accepted: socket.socket) -> None:
        try:
            connected = accepted if self.tls is None else _secured(accepted, self.tls)
        except OSError as error:
            accepted.close()
            with self._changed:
                self.refused.append(error)
                self._changed.notify_all()
            return
        self._sockets.append(connected)
        with connected:
            try:
                for frame in _frames(connected):
                    if not self._answer(connected, frame):
                        return
                self._note(ends=1)
            except ConnectionResetError:
                self._note(resets=1)
            except ssl.SSLEOFError:  # an end without close_notify, by a reset or not
                self._note(**({"ends": 1} if _is_connected(connected) else {"resets": 1}))
            except OSError:
                pass

    def _answer(self, connected: socket.socket, frame: bytes) -> bool:
        key, version, correlation_id, client_length = struct.unpack_from(">hhih", frame)
        cls = self._by_key.get(key)
        if cls is None:
            return False  # as brokers do
        start = 10 + max(0, client_length) + (1 if cls.is_flexible(version) else 0)
        # An unknown version's body cannot be read, nor need it be; nor that of a probe without a group's name.
        request = None
        if version in cls.SCHEMA:
            with contextlib.suppress(DecodeError):
                request = decode(cls, frame[start:], version)
        with self._changed:
            self.requests.append((cls.NAME, version, request))
            self._changed.notify_all()
        return _act(self.handlers[cls](request, version), cls, version, correlation_id, connected)


def _secured(accepted: socket.socket, context: ssl.SSLContext) -> ssl.SSLSocket:
    return context.wrap_socket(accepted, server_side=True, suppress_ragged_eofs=False)


def _is_connected(opened: socket.socket) -> bool:
    """Return whether a connection has not been reset."""
    try:
        opened.getpeername()
    except OSError:
        return False
    return True


def _act(what: Any, cls: type[Request[Any]], version: int, correlation_id: int, connected: socket.socket) -> bool:
    if what is CLOSE:
        return False
    if what is SILENCE:
        return True
    match what:
        case Raw(data):
            connected.sendall(data)
        case Held(response, released):
            released.wait(HOLD_TIMEOUT_S)
            return _act(response, cls, version, correlation_id, connected)
        case Cut(response, missing, reset):
            connected.sendall(framed(cls, response, version, correlation_id)[:-missing])
            if reset:
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        case OtherId(response, other):
            connected.sendall(framed(cls, response, version, other))
        case InVersion(response, other):
            connected.sendall(framed(cls, response, other, correlation_id))
        case response:
            connected.sendall(framed(cls, response, version, correlation_id))
    return True


def framed(cls: type[Request[Any]], response: Any, version: int, correlation_id: int) -> bytes:
    is_flexible = cls.is_flexible(version) and cls.NAME != "ApiVersions"
    body = struct.pack(">i", correlation_id) + (b"\0" if is_flexible else b"") + bytes(encode(response, version))
    return struct.pack(">i", len(body)) + body


def _frames(connected: socket.socket) -> Iterator[bytes]:
    with connected.makefile("rb") as stream:
        while head := stream.read(4):
            size = int.from_bytes(head, "big")
            if size > LARGEST_FRAME:
                return
            yield stream.read(size)
