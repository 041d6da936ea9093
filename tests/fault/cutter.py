"""A proxy that cuts connections at chosen Produce requests: in the request, before its response, or in the response."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Self

_PRODUCE = 0
_RESET = struct.pack("ii", 1, 0)
_JOIN_S = 10.0

Address = tuple[str, int]


class Cut(Enum):
    """Where a connection ends."""

    REQUEST = "the broker gets half of the request"
    BEFORE_RESPONSE = "the broker has the request, and the client gets nothing"
    RESPONSE = "the client gets half of the response"


@dataclass(frozen=True, slots=True)
class PlannedCut:
    """A cut at the Produce request that follows `after` others."""

    after: int
    cut: Cut


def plan_of(seed: int, count: int, spacing: int = 4) -> tuple[PlannedCut, ...]:
    """Return `count` cuts, of each kind about as many. Fewer than `spacing` requests pass between two."""
    rng = random.Random(seed)
    kinds = [list(Cut)[n % len(Cut)] for n in range(count)]
    rng.shuffle(kinds)
    return tuple(PlannedCut(rng.randrange(spacing), kind) for kind in kinds)


class CutPlan:
    """The cuts of one run, one after the other, which the cutters of all brokers share."""

    def __init__(self, planned: Sequence[PlannedCut]) -> None:
        self.requests = 0
        """Produce requests so far."""
        self.made: Counter[Cut] = Counter()
        self._left = deque(planned)
        self._passed = 0
        self._under_way = False
        self._lock = threading.Lock()

    @property
    def left(self) -> int:
        """The number of cuts that are not made."""
        return len(self._left)

    def begin(self) -> Cut | None:
        """Return the cut that is to be made at the Produce request that has arrived now."""
        with self._lock:
            self.requests += 1
            if self._under_way or not self._left or self._passed < self._left[0].after:
                self._passed += not self._under_way
                return None
            self._under_way = True
            return self._left[0].cut

    def end(self, cut: Cut, *, made: bool) -> None:
        """End a cut that has begun. One that is not made, because the connection ended before, is made later."""
        with self._lock:
            self._under_way = False
            if made:
                self.made[cut] += 1
                self._left.popleft()
                self._passed = 0


class Cutter:
    """Listens on a free port of 127.0.0.1 and forwards whole frames of Kafka to and from `upstream`, two threads for
    each connection."""

    def __init__(self, upstream: Address, plan: CutPlan) -> None:
        self._upstream = upstream
        self._plan = plan
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: Address = self._listener.getsockname()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept, name="cutter", daemon=True)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(_JOIN_S)  # or it could accept on the next socket that gets this one's number
        self._listener.close()
        with self._lock:
            sockets = list(self._open)
        for each in sockets:
            _shut(each)
        for thread in self._threads:
            thread.join(_JOIN_S)
        assert not any(thread.is_alive() for thread in self._threads), "a thread of the cutter does not end"

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._upstream)
            except OSError:  # the broker is down
                _reset(client)
                continue
            pair = _Pair(client, server, self._plan)
            with self._lock:
                self._open |= {client, server}
            for forward in (pair.forward_requests, pair.forward_responses):
                self._threads.append(threading.Thread(target=self._carry, args=(forward, pair), daemon=True))
                self._threads[-1].start()

    def _carry(self, forward: Callable[[], None], pair: _Pair) -> None:
        with contextlib.suppress(OSError):
            forward()
        # Both directions end with the first. The socket is closed where no thread reads it any more.
        for each in (pair.client, pair.server):
            _shut(each)
        if pair.is_last():
            with self._lock:
                self._open -= {pair.client, pair.server}
            pair.close()


class _Pair:
    """A client's connection and its connection to the broker."""

    def __init__(self, client: socket.socket, server: socket.socket, plan: CutPlan) -> None:
        self.client, self.server = client, server
        self._plan = plan
        self._awaited: tuple[int, Cut] | None = None
        """The correlation id of the response at which to cut."""
        self._ended = threading.Semaphore(1)
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def is_last(self) -> bool:
        """Whether this direction is the second one to end."""
        return not self._ended.acquire(blocking=False)

    def close(self) -> None:
        """Close both sockets. A cut that still waits for its response is not made here."""
        if self._awaited is not None:
            self._plan.end(self._awaited[1], made=False)
        self.client.close()
        self.server.close()

    def forward_requests(self) -> None:
        """Forward requests until the connection ends or is cut."""
        for frame in _frames(self.client):
            api, _, correlation_id = struct.unpack_from(">hhi", frame, 4)
            cut = self._plan.begin() if api == _PRODUCE else None
            if cut is Cut.REQUEST:
                self._plan.end(cut, made=True)
                self.server.sendall(frame[: len(frame) // 2])
                return
            if cut is not None:
                self._awaited = correlation_id, cut
            self.server.sendall(frame)

    def forward_responses(self) -> None:
        """Forward responses until the connection ends or is cut."""
        for frame in _frames(self.server):
            awaited = self._awaited
            if awaited is not None and int.from_bytes(frame[4:8], "big") == awaited[0]:
                self._awaited = None
                self._plan.end(awaited[1], made=True)
                self.client.sendall(frame[: len(frame) // 2] if awaited[1] is Cut.RESPONSE else b"")
                return
            self.client.sendall(frame)


def _frames(source: socket.socket) -> Iterator[bytes]:
    """Yield whole frames with their length, until the source ends."""
    with source.makefile("rb") as file:
        while len(head := file.read(4)) == 4:
            body = file.read(int.from_bytes(head, "big"))
            if len(body) < int.from_bytes(head, "big"):
                return
            yield head + body


def _shut(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)


def _reset(each: socket.socket) -> None:
    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    each.close()
