"""One connection's protocol without its socket: requests in, bytes out; bytes in, answers out.

The contract: send what `outgoing` holds and tell `sent`; receive into `space` and tell `received`, which hands out the
answers. What is asked before the handshake (`handshake.py`) has told the broker's versions waits, since only then is it
known which version to write. Where the broker hangs up before, `hung_up` tells whether the handshake goes on: then all
begins anew on another connection, and what waits goes on waiting. A broker answers the requests of one connection in
their order, and every correlation id is held against that: an answer out of order means that the stream cannot be
trusted any more.

After an exception the connection is of no use: close or reset it.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, NamedTuple

from streamgroup.errors import DecodeError
from streamgroup.net.frames import FrameReader
from streamgroup.net.handshake import ALL_HANDSHAKE_REQUESTS, NOT_A_BROKER_HINT, Handshake, HandshakeRequest
from streamgroup.wire.frames import correlation_id_of, decode_response, encode_body, encode_request
from streamgroup.wire.schema import Request
from streamgroup.wire.versions import BrokerVersions

_LAST_CORRELATION_ID = 2**31 - 1


class Answer(NamedTuple):
    """A response, the correlation id of the request that it answers, and the version that it was asked in (0 in Kafka
    0.7, which has none)."""

    correlation_id: int
    response: Any
    version: int


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

    ENDED_BY: Final = ""
    """What may make the broker end a connection, for error messages."""

    __slots__ = (
        "_asked",
        "_client_id",
        "_handshake",
        "_handshake_sent",
        "_max_frame_bytes",
        "_next_id",
        "_out",
        "_reader",
        "_waiting",
        "peer",
    )

    def __init__(self, peer: str, client_id: str, max_frame_bytes: int) -> None:
        self.peer = peer
        self._client_id = client_id
        self._max_frame_bytes = max_frame_bytes
        self._next_id = 0
        self._asked: deque[_Asked] = deque()
        self._waiting: deque[_Waiting] = deque()
        self._handshake = Handshake(peer)
        self._begin()

    @property
    def versions(self) -> BrokerVersions | None:
        """What the broker speaks; None until the handshake has told. Known from the start of a broker before 0.10 that
        this process has met."""
        return self._handshake.versions

    @property
    def unanswered(self) -> tuple[int, ...]:
        """The correlation ids of all requests that were handed in and not answered, the oldest first."""
        return tuple(a.correlation_id for a in self._asked) + tuple(w.correlation_id for w in self._waiting)

    def describe_pending(self) -> str:
        """What is outstanding, for error messages; empty where nothing is."""
        asked = [f"{question} (correlation id {correlation_id})" for correlation_id, question in self._handshake_sent]
        asked += [str(a) for a in self._asked] + [f"{w.request.NAME} (not yet sent)" for w in self._waiting]
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
            raise type(error)(f"{self.peer}: {error} ({self.describe_pending() or 'nothing was asked'})") from error
        for frame in frames:
            self._accept(frame, answers)

    def on_hang_up(self) -> bool:
        """The broker has closed the connection before the versions were known: whether to connect once more. Then
        `outgoing` is what the new connection begins with."""
        going_on = self._handshake.on_hang_up()
        if going_on:
            self._begin()
        return going_on

    def on_handshake_timeout(self) -> None:
        """The handshake has had no answer for a while."""
        more = self._handshake.pipelined_probe()
        if more is not None:
            self._put(more)

    def on_connection_lost(self) -> None:
        """The connection has failed, or the broker has ended it: it may come back as another release than is
        remembered, so that the next connection is to ask again."""
        self._handshake.forget_release()

    def describe_eof(self) -> str:
        """Why an end of the stream at this point matters, for error messages."""
        if self.versions is None:
            return (
                f"the broker closed the connection on each request of the handshake ({ALL_HANDSHAKE_REQUESTS}). "
                f"No Kafka from 0.8 on does that. {NOT_A_BROKER_HINT}"
            )
        half = f", {self._reader.missing} bytes before the end of a frame" if self._reader.missing else ""
        return f"the broker closed the connection{half}; unanswered: {self.describe_pending() or 'nothing'}"

    def _begin(self) -> None:
        """A new connection: what it is asked first."""
        self._reader = FrameReader(self._max_frame_bytes)
        self._out = bytearray()
        self._handshake_sent: deque[tuple[int, HandshakeRequest]] = deque()
        for question in self._handshake.first_requests():
            self._put(question)
        self._write_waiting()

    def _put(self, question: HandshakeRequest) -> None:
        correlation_id = self._take_id()
        self._out += encode_body(question.api, question.version, correlation_id, self._client_id, question.body)
        self._handshake_sent.append((correlation_id, question))

    def _take_id(self) -> int:
        taken = self._next_id
        self._next_id = 0 if taken == _LAST_CORRELATION_ID else taken + 1
        return taken

    def _write_waiting(self) -> None:
        while self._waiting and self.versions is not None:
            self._write(*self._waiting[0])
            self._waiting.popleft()

    def _write(self, correlation_id: int, request: Request[Any], version: int | None, ceiling: int | None) -> None:
        assert self.versions is not None
        if version is None:
            version = self.versions.highest(type(request), ceiling)
        self._out += encode_request(request, version, correlation_id, self._client_id)
        self._asked.append(_Asked(correlation_id, type(request), version))

    def _accept(self, frame: memoryview, answers: list[Answer]) -> None:
        correlation_id = correlation_id_of(frame)
        if self._handshake_sent:
            self._learn(correlation_id, frame)
            return
        if not self._asked or self._asked[0].correlation_id != correlation_id:
            raise self._astray(correlation_id, f"{self._asked[0]} was next" if self._asked else "nothing was asked")
        asked = self._asked[0]
        response = self._decoded(asked, frame)
        self._asked.popleft()
        answers.append(Answer(correlation_id, response, asked.version))

    def _astray(self, correlation_id: int, expected: str) -> DecodeError:
        return DecodeError(f"{self.peer}: an answer with correlation id {correlation_id} came, but {expected}")

    def _decoded(self, asked: _Asked, frame: memoryview) -> Any:
        try:
            return decode_response(asked.request, asked.version, frame)[1]
        except DecodeError as error:
            raise type(error)(f"{self.peer}: the answer to {asked} cannot be read: {error}") from error

    def _learn(self, correlation_id: int, frame: memoryview) -> None:
        """An answer of the handshake: go on with it, or with what waited for its end."""
        expected, question = self._handshake_sent[0]
        if self.versions is not None and correlation_id == expected:  # the probe behind it, too
            self._handshake_sent.popleft()
            return
        if len(self._handshake_sent) > 1 and self._handshake_sent[1][0] == correlation_id and question.may_be_skipped:
            self._handshake_sent.clear()
            self._handshake.on_probe_answered_first()
            self._write_waiting()
            return
        if correlation_id != expected and not (correlation_id == 0 and question.may_be_anonymous):
            raise self._astray(correlation_id, f"{question} (correlation id {expected}) was next. {NOT_A_BROKER_HINT}")
        more = self._handshake.on_response(question, frame)
        self._handshake_sent.popleft()
        if more is not None:
            self._put(more)
        self._write_waiting()
