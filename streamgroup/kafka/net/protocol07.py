"""The Kafka 0.7 protocol of one connection without its socket. Its interface is that of `protocol.py`.

Kafka 0.7 has no handshake, versions or correlation ids: ids are this client's own count, and responses come in the
order of the requests. The broker closes the connection on a request that it refuses. The error for an end of the stream
therefore lists the possible causes.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from streamgroup.errors import DecodeError
from streamgroup.kafka.net.frames import FrameReader, Outgoing
from streamgroup.kafka.net.protocol import CorrelatedResponse, FramedStream
from streamgroup.kafka.wire.kafka07 import (
    MultiFetchRequest07,
    MultiProduceRequest07,
    ProduceRequest07,
    Request07,
    decode_response,
)
from streamgroup.kafka.wire.versions import BrokerVersions

_SMALLEST = 2
"""The size of the error code, which every response has."""
_NO_VERSION = 0
_NAMED = 3
"""Number of parts of a MULTIFETCH that error messages show."""
_NEVER_ANSWERED = (ProduceRequest07, MultiProduceRequest07)
_HANG_UP_CAUSES = (
    ". Kafka 0.7 closes the connection on an OFFSETS of a partition that it does not have, on a topic with an illegal "
    "name and on a request that it cannot read. Kafka 0.8 or later does so on every request of 0.7 (then set "
    "kafka.bootstrap.servers)"
)


class _InFlight07(NamedTuple):
    number: int
    request: Request07


class Protocol07(FramedStream):
    """The protocol state of one connection to Kafka 0.7.

    It has the in-flight requests, the bytes to send, and the incomplete incoming frame.
    """

    ENDED_BY = _HANG_UP_CAUSES
    HINT = ". Check that this is a broker of Kafka 0.7"

    def __init__(self, peer: str, client_id: str, max_frame_bytes: int) -> None:
        """`client_id` is not sent: requests of 0.7 have none."""
        super().__init__(peer)
        self.versions = BrokerVersions(peer, {})
        """Empty: 0.7 has no API of the later protocol."""
        self._reader = FrameReader(max_frame_bytes, _SMALLEST)
        self._out = Outgoing()
        self._next_number = 0
        self._in_flight: deque[_InFlight07] = deque()

    @property
    def unanswered(self) -> tuple[int, ...]:
        """The ids of all requests without a response, the oldest first."""
        return tuple(asked.number for asked in self._in_flight)

    def describe_pending(self) -> str:
        return ", ".join(describe(asked.request) for asked in self._in_flight)

    def send(self, request: Request07, version: int | None = None, ceiling: int | None = None) -> int:
        """Queue `request` and return its id. The broker never answers PRODUCE and MULTIPRODUCE.

        `version` and `ceiling` are ignored: 0.7 has no versions. Raises EncodeError.
        """
        self._out.add(request.encode())
        number = self._next_number
        self._next_number += 1
        if not isinstance(request, _NEVER_ANSWERED):
            self._in_flight.append(_InFlight07(number, request))
        return number

    def describe_eof(self) -> str:
        half = f", {self._reader.missing} bytes before the end of a frame" if self._reader.missing else ""
        if not self._in_flight:
            return f"closed the connection{half}; pending: nothing"
        behind = f", and {len(self._in_flight) - 1} more requests" if len(self._in_flight) > 1 else ""
        first = describe(self._in_flight[0].request)
        return f"closed the connection{half}; pending: {first}{behind}{self.ENDED_BY}"

    def on_hang_up(self) -> bool:
        """Return False: 0.7 has no handshake to continue."""
        return False

    def on_handshake_timeout(self) -> None:
        """Do nothing: 0.7 has no handshake."""

    def on_connection_lost(self) -> None:
        """Do nothing: no release is remembered for a broker of 0.7."""

    def _on_frame(self, frame: memoryview, answers: list[CorrelatedResponse]) -> None:
        if not self._in_flight:
            raise DecodeError(
                f"unexpected response of {len(frame)} bytes from broker {self.peer}; expected: none{self.HINT}"
            )
        number, request = self._in_flight[0]
        try:
            response = decode_response(request, frame)
        except DecodeError as error:
            raise type(error)(
                f"invalid response from broker {self.peer} to {describe(request)}: {error}{self.HINT}"
            ) from error
        self._in_flight.popleft()
        answers.append(CorrelatedResponse(number, response, _NO_VERSION))


def describe(request: Request07) -> str:
    """Return a short description of `request` for messages."""
    name = request.TYPE.name
    if isinstance(request, MultiFetchRequest07):
        named = ", ".join(f"{part.topic}-{part.partition}@{part.offset}" for part in request.fetches[:_NAMED])
        more = len(request.fetches) - _NAMED
        return f"{name} of {named}" + (f" and {more} more" if more > 0 else "")
    if isinstance(request, MultiProduceRequest07):
        return f"{name} of {len(request.produces)} sets"
    at = f"@{request.offset}" if hasattr(request, "offset") else ""
    return f"{name} of {request.topic}-{request.partition}{at}"
