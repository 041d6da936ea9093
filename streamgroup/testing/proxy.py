"""A TCP proxy on the loopback interface that causes network faults, also on open connections.

    with Proxy((host, port)) as proxy:
        proxy.set(Fault(delay_s=0.05))                              # both directions, all connections
        proxy.set(Fault(end=End.STALL, mid_frame=True), Direction.TO_CLIENT, Which.NEXT)
        proxy.heal()
        proxy.cut()

`KafkaServer(proxied=True)` puts one in front of each broker.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from enum import Enum, Flag, auto
from typing import Self, TypeVar

from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.testing.flow import CLEAN, End, Fault, Flow
from streamgroup.testing.ports import LOOPBACK

Address = tuple[str, int]
T = TypeVar("T")

_READ = 64 * 1024
_WRITES = 16
"""Pieces of one flow that are sent per turn at most, so that it does not starve other connections."""
_RESET = struct.pack("ii", 1, 0)
_COMMAND_TIMEOUT_S = 10.0
_LONGEST_WAIT_S = 5.0
_BACKLOG = 128
_NONE = memoryview(b"")


class Direction(Flag):
    """The direction that a fault affects."""

    TO_SERVER = auto()
    TO_CLIENT = auto()
    BOTH = TO_SERVER | TO_CLIENT


class Which(Enum):
    """The connections that a fault affects."""

    ALL = "those that are open and those to come"
    OPEN = "those that are open now"
    NEXT = "the next one that is made"


Faults = dict[Direction, Fault]


class Proxy:
    """Listens on `port` of 127.0.0.1 (by default a free one) and forwards bytes to and from `upstream`.

    One thread serves all connections. Every method is thread-safe and has taken effect when it returns. The proxy
    resets a connection for which `upstream` has no listener.
    """

    def __init__(self, upstream: Address | None = None, *, port: int = 0) -> None:
        self.upstream = upstream
        self.accepted = 0
        """Number of accepted connections so far."""
        self.ended = 0
        """Number of flows (directions of connections) that faults have ended so far."""
        self._passed = 0
        """Bytes that clients have got on connections that are over."""
        self._listener = socket.create_server((LOOPBACK, port), backlog=_BACKLOG)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._commands: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._stopping = self._over = False
        self._pairs: list[_Pair] = []
        self._faults: Faults = dict.fromkeys(Direction.BOTH, CLEAN)
        self._next: Faults = {}
        self._thread = threading.Thread(target=self._run, name=f"proxy-{self.port}", daemon=True)

    @property
    def address(self) -> Address:
        return LOOPBACK, self.port

    @property
    def open(self) -> int:
        """Number of open connections."""
        return self._command(lambda: len(self._pairs))

    @property
    def held(self) -> int:
        """Number of bytes that all connections hold back."""
        return self._command(lambda: sum(flow.held for pair in self._pairs for flow in pair.flows.values()))

    @property
    def delivered(self) -> int:
        """Number of bytes that clients have got from `upstream` so far."""
        return self._command(lambda: self._passed + _delivered(self._pairs))

    def start(self) -> Self:
        """Start accepting connections."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Reset all connections and stop listening."""
        self._stopping = True
        self._wake()
        if self._thread.is_alive():
            self._thread.join(_COMMAND_TIMEOUT_S)
        else:
            self._close()

    def set(self, fault: Fault, direction: Direction = Direction.BOTH, which: Which = Which.ALL) -> None:
        """Set `fault`, which replaces the previous fault of that direction of those connections."""

        def change() -> None:
            faults = dict.fromkeys(direction, fault)
            if which is Which.NEXT:
                self._next |= faults
                return
            if which is Which.ALL:
                self._faults |= faults
            for pair in self._pairs:
                self._put(pair, faults)

        self._command(change)

    def heal(self) -> None:
        """Remove all faults. Stalled flows continue; connections that have lost bytes are reset."""
        self._command(self._next.clear)
        self.set(CLEAN)

    def cut(self, end: End = End.RESET) -> int:
        """End all open connections by RST (or `end`), and return their number. New connections are not affected."""
        count = self.open
        self.set(Fault(end=end), which=Which.OPEN)
        return count

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- any thread --------------------------------------------------------------------------------------------------

    def _command(self, act: Callable[[], T]) -> T:
        """Run `act` in the proxy's thread, and wait for its result."""
        done: Future[T] = Future()

        def carry_out() -> None:
            try:
                done.set_result(act())
            except Exception as error:
                done.set_exception(error)

        with self._lock:
            if self._over or not self._thread.is_alive():
                raise ConfigError(f"the proxy at {LOOPBACK}:{self.port} is not running: use it in a `with` statement")
            self._commands.append(carry_out)
        self._wake()
        try:
            return done.result(_COMMAND_TIMEOUT_S)
        except TimeoutError:
            raise StreamGroupError(
                f"the test proxy at {LOOPBACK}:{self.port} did not carry out a command within 10 s"
            ) from None

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # a full pipe ends the wait as well, and a closed proxy has none
            self._waker.send(b"\0")

    # --- the proxy's thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._turn(self._poll())
        finally:
            with self._lock:
                self._over = True
                commands, self._commands = self._commands, []
            for command in commands:
                command()
            self._close()

    def _close(self) -> None:
        for pair in self._pairs:
            pair.end(reset=True)
        self._pairs.clear()
        for each in (self._listener, self._woken, self._waker):
            each.close()

    def _poll(self) -> frozenset[int]:
        """Wait for sockets, a due time or a command, and return the ready descriptors."""
        now = time.monotonic()
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        poll.register(self._listener, select.POLLIN)
        due = now + _LONGEST_WAIT_S
        for pair in self._pairs:
            for fd, events in pair.interests(now):
                poll.register(fd, events)
            due = min(due, pair.due(now))
        # Rounded up: a wake-up before the due time would be a turn without work.
        ready = frozenset(fd for fd, _ in poll.poll(max(0, int((due - now) * 1000 + 0.999))))
        if self._woken.fileno() in ready:
            with contextlib.suppress(BlockingIOError):
                self._woken.recv(4096)
        return ready

    def _turn(self, ready: frozenset[int]) -> None:
        with self._lock:
            commands, self._commands = self._commands, []
        for command in commands:
            command()
        if self._listener.fileno() in ready:
            self._accept()
        now = time.monotonic()
        for pair in self._pairs:
            before = pair.ends()
            pair.advance(ready, now)
            self._count(before, pair)
        self._passed += _delivered(pair for pair in self._pairs if pair.over)
        self._pairs = [pair for pair in self._pairs if not pair.over]

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:  # the client closed before the accept
            return
        self.accepted += 1
        faults, self._next = self._faults | self._next, {}
        pair = _Pair(client, self.upstream, faults, time.monotonic())
        self._count((None, None), pair)
        self._pairs.append(pair)

    def _put(self, pair: _Pair, faults: Faults) -> None:
        before = pair.ends()
        pair.put(faults)
        self._count(before, pair)

    def _count(self, before: tuple[End | None, ...], pair: _Pair) -> None:
        """Count the new ends; an end that replaces another one counts."""
        self.ended += sum(now not in (None, was) for was, now in zip(before, pair.ends(), strict=True))


def _delivered(pairs: Iterable[_Pair]) -> int:
    return sum(pair.flows[Direction.TO_CLIENT].passed for pair in pairs)


class _Pair:
    """A client's connection and its connection to the server."""

    def __init__(self, client: socket.socket, upstream: Address | None, faults: Faults, now: float) -> None:
        self.over = False
        self.flows = {direction: Flow(faults[direction], now) for direction in Direction.BOTH}
        self._client, self._server = client, socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._shut: set[Direction] = set()
        """Directions whose receiver has got a FIN."""
        self._dead: set[socket.socket] = set()
        """Sockets whose peer is gone, while the other side must not notice."""
        for each in (self._client, self._server):
            each.setblocking(False)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = errno.ECONNREFUSED if upstream is None else self._server.connect_ex(upstream)
        self._connecting = code == errno.EINPROGRESS
        if code not in (0, errno.EINPROGRESS):
            self.end(reset=True)

    def ends(self) -> tuple[End | None, ...]:
        """Return the ends that faults have caused, per flow."""
        return tuple(flow.ended for flow in self.flows.values())

    def put(self, faults: Faults) -> None:
        """Replace the faults. A stream that has lost bytes is reset."""
        for direction, fault in faults.items():
            flow = self.flows[direction]
            if flow.ended is End.HALF_OPEN and fault.end is not End.HALF_OPEN:
                self.end(reset=True)
            flow.fault = fault

    def end(self, *, reset: bool) -> None:
        """Close both sockets."""
        self.over = True
        for each in (self._client, self._server):
            if reset and each.fileno() >= 0:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            each.close()

    def interests(self, now: float) -> Iterable[tuple[int, int]]:
        """Return the descriptors and their poll events."""
        wanted = {self._client: 0, self._server: 0}
        if self._connecting:
            wanted[self._server] |= select.POLLOUT
        for direction, flow in self.flows.items():
            source, sink = self._sides(direction)
            if flow.hungry and source not in self._dead and not (source is self._server and self._connecting):
                wanted[source] |= select.POLLIN
            if sink not in self._dead and flow.piece(now):
                wanted[sink] |= select.POLLOUT
        return [(each.fileno(), events) for each, events in wanted.items() if events]

    def due(self, now: float) -> float:
        """Return when to advance even without a socket event."""
        times = [
            due
            for direction, flow in self.flows.items()
            if direction not in self._shut and (due := flow.due(now)) is not None and due > now
        ]
        return min(times, default=now + _LONGEST_WAIT_S)

    def advance(self, ready: frozenset[int], now: float) -> None:
        """Do everything that is possible without waiting."""
        if self.over or (self._connecting and not self._connected(ready)):
            return
        for direction, flow in self.flows.items():
            source, sink = self._sides(direction)
            if source.fileno() in ready:
                self._read(source, flow, now)
            self._write(sink, flow, now)
            if not self.over and flow.finished(now) and direction not in self._shut:
                self._shut.add(direction)
                self._tell_end(sink)
        if not self.over and End.RESET in {flow.ended for flow in self.flows.values()}:
            self.end(reset=True)
        closed = all(direction in self._shut and not flow.hungry for direction, flow in self.flows.items())
        if not self.over and (closed or len(self._dead) == len(self.flows)):
            self.end(reset=not closed)

    def _connected(self, ready: frozenset[int]) -> bool:
        """Return whether the server is connected. If the attempt failed, reset the client."""
        if self._server.fileno() not in ready:
            return False
        code = self._server.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        self._connecting = False
        if code:
            self.end(reset=True)
        return not code

    def _sides(self, direction: Direction) -> tuple[socket.socket, socket.socket]:
        """Return source and sink of a direction."""
        return (self._client, self._server) if direction is Direction.TO_SERVER else (self._server, self._client)

    def _read(self, source: socket.socket, flow: Flow, now: float) -> None:
        if self.over or source in self._dead or not flow.hungry:
            return
        try:
            data = source.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            self._gone(source)
            return
        if data:
            flow.put(data, now)
            return
        flow.close(now)
        if flow.ended is End.HALF_OPEN:
            self._dead.add(source)

    def _write(self, sink: socket.socket, flow: Flow, now: float) -> None:
        # One small piece per turn, so that it is sent before the next one.
        for _ in range(1 if flow.fault.split else _WRITES):
            piece = _NONE if self.over or sink in self._dead else flow.piece(now)
            if not piece:
                return
            try:
                flow.sent(sink.send(piece))
            except BlockingIOError:
                return
            except OSError:
                self._gone(sink)

    def _tell_end(self, sink: socket.socket) -> None:
        try:
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            self._gone(sink)

    def _gone(self, side: socket.socket) -> None:
        """Handle a reset of `side`: reset the other side, unless it must not notice."""
        if End.HALF_OPEN in {flow.ended for flow in self.flows.values()}:
            self._dead.add(side)
        else:
            self.end(reset=True)
