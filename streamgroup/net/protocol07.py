"""One connection's protocol where the broker is a Kafka 0.7, without its socket: the contract is that of `protocol.py`.

There is no handshake, no version and no correlation id: an id is our own count, and answers come in the order of the
requests. What the broker does not like it does not refuse, it hangs up; so an end of the stream is told with all that
makes a 0.7 broker end it.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from streamgroup.errors import DecodeError
from streamgroup.net.frames import FrameReader
from streamgroup.net.protocol import Answer
from streamgroup.wire.kafka07 import (
    MultiFetchRequest07,
    MultiProduceRequest07,
    ProduceRequest07,
    Request07,
    decode_response,
)
from streamgroup.wire.versions import BrokerVersions

_SMALLEST = 2
"""A response has its error at least."""
_NO_VERSION = 0
_NAMED = 3
"""So many parts of a MULTIFETCH are named in messages."""
_NEVER_ANSWERED = (ProduceRequest07, MultiProduceRequest07)
_CAUSES = (
    ". Kafka 0.7 hangs up on an OFFSETS of a partition that it does not have, on a topic with an illegal name and on a "
    "request that it cannot read; a Kafka of 0.8 or later does so on every request of 0.7 (then name it with "
    "kafka.bootstrap.servers)"
)


class _Asked(NamedTuple):
    number: int
    request: Request07


class Protocol07:
    """The state of one connection: what is to be sent, what is asked, the frame that is coming in."""

    ENDED_BY: Final = _CAUSES
    """What may make the broker end a connection, for error messages."""

    __slots__ = ("_asked", "_next_number", "_out", "_reader", "peer", "versions")

    def __init__(self, peer: str, client_id: str, max_frame_bytes: int) -> None:
        """`client_id` is not sent: 0.7 knows none."""
        self.peer = peer
        self.versions = BrokerVersions(peer, {})
        """No API of Kafka's later protocol."""
        self._reader = FrameReader(max_frame_bytes, _SMALLEST)
        self._out = bytearray()
        self._next_number = 0
        self._asked: deque[_Asked] = deque()

    @property
    def unanswered(self) -> tuple[int, ...]:
        """The numbers of all requests that were handed in and not answered, the oldest first."""
        return tuple(asked.number for asked in self._asked)

    def describe_pending(self) -> str:
        """What is outstanding, for error messages; empty where nothing is."""
        return ", ".join(words(asked.request) for asked in self._asked)

    def send(self, request: Request07, version: int | None = None, ceiling: int | None = None) -> int:
        """Ask `request`; its number. One that is never answered (PRODUCE, MULTIPRODUCE) is not waited for.

        `version` and `ceiling` mean nothing here. Raises EncodeError.
        """
        self._out += request.encode()
        number = self._next_number
        self._next_number += 1
        if not isinstance(request, _NEVER_ANSWERED):
            self._asked.append(_Asked(number, request))
        return number

    def outgoing(self) -> bytearray:
        """The bytes to be sent; tell `sent` how many were."""
        return self._out

    def sent(self, count: int) -> None:
        """The first `count` bytes of `outgoing` are on their way."""
        del self._out[:count]

    def space(self) -> memoryview:
        """Where the next bytes are to be received; never empty."""
        return self._reader.space()

    def received(self, count: int, answers: list[Answer]) -> None:
        """`count` bytes now lie in `space()`: append the answers that they complete. Raises TooLarge, DecodeError."""
        try:
            frames = self._reader.received(count)
        except DecodeError as error:
            raise type(error)(
                f"{self.peer}: {error} ({self.describe_pending() or 'nothing was asked'}); {_NOT_07}"
            ) from error
        for frame in frames:
            self._accept(frame, answers)

    def describe_eof(self) -> str:
        """Why an end of the stream at this point matters, for error messages."""
        half = f", {self._reader.missing} bytes before the end of a frame" if self._reader.missing else ""
        if not self._asked:
            return f"the broker closed the connection{half}; nothing was asked"
        behind = f", and {len(self._asked) - 1} requests behind it" if len(self._asked) > 1 else ""
        first = words(self._asked[0].request)
        return f"the broker closed the connection{half}; unanswered: {first}{behind}{self.ENDED_BY}"

    def on_hang_up(self) -> bool:
        """There is no handshake that might go on."""
        return False

    def on_handshake_timeout(self) -> None:
        """There is no handshake."""

    def on_connection_lost(self) -> None:
        """Nothing is remembered of a broker."""

    def _accept(self, frame: memoryview, answers: list[Answer]) -> None:
        if not self._asked:
            raise DecodeError(f"{self.peer}: an answer of {len(frame)} bytes came, but nothing was asked; {_NOT_07}")
        number, request = self._asked[0]
        try:
            response = decode_response(request, frame)
        except DecodeError as error:
            raise type(error)(
                f"{self.peer}: the answer to {words(request)} cannot be read: {error}; {_NOT_07}"
            ) from error
        self._asked.popleft()
        answers.append(Answer(number, response, _NO_VERSION))


_NOT_07 = "is this a broker of Kafka 0.7?"


def words(request: Request07) -> str:
    """What `request` asks, for messages."""
    name = request.TYPE.name
    if isinstance(request, MultiFetchRequest07):
        named = ", ".join(f"{part.topic}-{part.partition}@{part.offset}" for part in request.fetches[:_NAMED])
        more = len(request.fetches) - _NAMED
        return f"{name} of {named}" + (f" and {more} more" if more > 0 else "")
    if isinstance(request, MultiProduceRequest07):
        return f"{name} of {len(request.produces)} sets"
    at = f"@{request.offset}" if hasattr(request, "offset") else ""
    return f"{name} of {request.topic}-{request.partition}{at}"
