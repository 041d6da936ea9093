"""One connection's protocol without its socket: requests in, bytes out; bytes in, answers out.

The contract: send what `outgoing` holds and tell `sent`; receive into `space` and tell `received`, which hands out the
answers. The first request is always ApiVersions; whatever is asked before its answer waits, since only then is it known
which version to write. A broker answers the requests of one connection in their order, and every correlation id is
held against that: an answer out of order means that the stream cannot be trusted any more.

After an exception the connection is of no use: close or reset it.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from streamgroup import __version__
from streamgroup.errors import BrokerError, DecodeError, ErrorCode
from streamgroup.net.frames import FrameReader
from streamgroup.wire.frames import correlation_id_of, decode_response, encode_request
from streamgroup.wire.messages.cluster import ApiVersionsRequest
from streamgroup.wire.schema import Request
from streamgroup.wire.versions import BrokerVersions

_SOFTWARE_NAME = "streamgroup"
_HANDSHAKE_VERSION = 3
"""The first that names the client's software (KIP-511). A broker without it answers error 35 in the layout of v0."""
_LAST_CORRELATION_ID = 2**31 - 1
_NO_ID = -1


class Answer(NamedTuple):
    """A response, and the correlation id of the request that it answers."""

    correlation_id: int
    response: Any


class _Asked(NamedTuple):
    correlation_id: int
    request: type[Request[Any]]
    version: int

    def __str__(self) -> str:
        return f"{self.request.NAME} v{self.version} (correlation id {self.correlation_id})"


class _Waiting(NamedTuple):
    correlation_id: int
    request: Request[Any]
    version: int | None
    ceiling: int | None


class Protocol:
    """The state of one connection: what is to be sent, what is asked, the frame that is coming in."""

    __slots__ = ("_asked", "_client_id", "_handshake_id", "_next_id", "_out", "_reader", "_waiting", "peer", "versions")

    def __init__(self, peer: str, client_id: str, max_frame_bytes: int) -> None:
        self.peer = peer
        self.versions: BrokerVersions | None = None
        """What the broker speaks; None until it has said so."""
        self._client_id = client_id
        self._reader = FrameReader(max_frame_bytes)
        self._out = bytearray()
        self._next_id = 0
        self._asked: deque[_Asked] = deque()
        self._waiting: deque[_Waiting] = deque()
        self._shake_hands(_HANDSHAKE_VERSION)

    @property
    def unanswered(self) -> tuple[int, ...]:
        """The correlation ids of all requests that were handed in and not answered, the oldest first."""
        asked = tuple(a.correlation_id for a in self._asked if a.correlation_id != self._handshake_id)
        return asked + tuple(w.correlation_id for w in self._waiting)

    @property
    def midway(self) -> str:
        """What is outstanding, for error messages; empty where nothing is."""
        asked = [str(a) for a in self._asked] + [f"{w.request.NAME} (not yet sent)" for w in self._waiting]
        return ", ".join(asked)

    def send(self, request: Request[Any], version: int | None = None, ceiling: int | None = None) -> int:
        """Ask `request`; its correlation id. Without `version` it is the highest that both know, `ceiling` at most.

        Raises UnsupportedVersionError where there is none: at once, or, while the handshake lasts, from `received`.
        """
        correlation_id = self._take_id()
        if self.versions is None:
            self._waiting.append(_Waiting(correlation_id, request, version, ceiling))
        else:
            self._write(correlation_id, request, version, ceiling)
        return correlation_id

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
        """`count` bytes now lie in `space()`: append the answers that they complete.

        Raises TooLarge, DecodeError, UnsupportedVersionError, or BrokerError where the handshake was refused.
        """
        try:
            frames = self._reader.received(count)
        except DecodeError as error:
            raise type(error)(f"{self.peer}: {error} ({self.midway or 'nothing was asked'})") from error
        for frame in frames:
            self._accept(frame, answers)

    def cut(self) -> str:
        """Why an end of the stream at this point matters, for error messages."""
        if self.versions is None:
            return (
                "the broker closed the connection during the ApiVersions handshake "
                "(a broker before 0.10, a listener with TLS or SASL, or no Kafka broker at all)"
            )
        half = f", {self._reader.missing} bytes before the end of a frame" if self._reader.missing else ""
        return f"the broker closed the connection{half}; unanswered: {self.midway or 'nothing'}"

    def _take_id(self) -> int:
        taken = self._next_id
        self._next_id = 0 if taken == _LAST_CORRELATION_ID else taken + 1
        return taken

    def _write(self, correlation_id: int, request: Request[Any], version: int | None, ceiling: int | None) -> None:
        assert self.versions is not None
        if version is None:
            version = self.versions.highest(type(request), ceiling)
        self._out += encode_request(request, version, correlation_id, self._client_id)
        self._asked.append(_Asked(correlation_id, type(request), version))

    def _accept(self, frame: memoryview, answers: list[Answer]) -> None:
        correlation_id = correlation_id_of(frame)
        if not self._asked or self._asked[0].correlation_id != correlation_id:
            expected = f"{self._asked[0]} was next" if self._asked else "nothing was asked"
            raise DecodeError(f"{self.peer}: an answer with correlation id {correlation_id} came, but {expected}")
        asked = self._asked[0]
        if correlation_id == self._handshake_id:
            self._asked.popleft()
            self._learn(asked, frame)
            return
        response = self._decoded(asked, frame)
        self._asked.popleft()
        answers.append(Answer(correlation_id, response))

    def _decoded(self, asked: _Asked, frame: memoryview) -> Any:
        try:
            return decode_response(asked.request, asked.version, frame)[1]
        except DecodeError as error:
            raise type(error)(f"{self.peer}: the answer to {asked} cannot be read: {error}") from error

    def _shake_hands(self, version: int) -> None:
        self._handshake_id = self._take_id()
        request = ApiVersionsRequest()
        if version >= _HANDSHAKE_VERSION:
            request = ApiVersionsRequest(client_software_name=_SOFTWARE_NAME, client_software_version=__version__)
        self._out += encode_request(request, version, self._handshake_id, self._client_id)
        self._asked.append(_Asked(self._handshake_id, ApiVersionsRequest, version))

    def _learn(self, asked: _Asked, frame: memoryview) -> None:
        """Take the handshake's answer: go on with what waited, or ask again in the oldest version."""
        code = int.from_bytes(frame[4:6], "big", signed=True)  # stands first in every version
        if code == ErrorCode.UNSUPPORTED_VERSION and asked.version > 0:
            self._shake_hands(0)
            return
        if code:
            raise BrokerError(code, f"{self.peer}: the ApiVersions handshake")
        self.versions = BrokerVersions.of(self._decoded(asked, frame), self.peer)
        self._handshake_id = _NO_ID
        while self._waiting:
            waiting = self._waiting[0]
            self._write(*waiting)
            self._waiting.popleft()
