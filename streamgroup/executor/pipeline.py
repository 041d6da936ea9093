"""The fetches of one broker on one connection: the next one is sent before the answer to the last is decoded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from heapq import nsmallest

from streamgroup.errors import DecodeError, TransportError
from streamgroup.executor.cursor import Cursor
from streamgroup.executor.read_format import Fetched, FetchProtocol, Portion
from streamgroup.net.connection import Connection

MOST_PARTITIONS = 100
"""Of one request: small ranges of one leader share a round trip."""


class Pipeline:
    """Fetches `cursors` over `connection`, which nobody else uses meanwhile.

    Besides the answer that is being decoded, at most `prefetch` answers are asked for or held. The headers of an answer
    are walked when it arrives: they tell where to go on, long before the records are decoded. `clock` gives seconds.
    """

    def __init__(
        self,
        connection: Connection,
        protocol: FetchProtocol,
        cursors: Sequence[Cursor],
        prefetch: int,
        clock: Callable[[], float],
    ) -> None:
        self._connection = connection
        self._protocol = protocol
        self._cursors = cursors
        self._prefetch = prefetch
        self._clock = clock
        self._asked: list[Cursor] = []
        """The cursors of the request that has no answer yet."""
        self._ready: deque[list[Portion]] = deque()
        self._failure: TransportError | DecodeError | None = None
        self._answers = 0
        self._throttled_s = 0.0

    def next(self) -> list[Portion] | None:
        """Return the portions of the next answer, none where it brought nothing; None when nothing is left to fetch.

        Waits for the answer up to the protocol's `timeout_s`. Cursors that fail are left out from then on and have a
        `failure`. Raises TransportError, DecodeError.
        """
        if not self._ready:
            if self._failure is not None:
                raise self._failure
            if not self._asked and not self._ask():
                return None
            self._receive()
        portions = self._ready.popleft()
        if portions:
            self.pump()
        return portions

    def take_throttled_s(self) -> float:
        """Return the throttle times of the answers since the last call: the next requests wait that long."""
        throttled_s, self._throttled_s = self._throttled_s, 0.0
        return throttled_s

    def pump(self) -> None:
        """Take the answer that has arrived and send the next request, without waiting. To be called while decoding.

        Raises nothing: `next` raises the error once all that came before it is delivered.
        """
        if self._failure is not None:
            return
        try:
            if self._asked and self._connection.arrived():
                self._receive()
            if not self._asked and len(self._ready) < self._prefetch:
                self._ask()
        except (TransportError, DecodeError) as error:
            self._failure = error

    def _ask(self) -> bool:
        """Send the next request and return True, or return False where nothing is left to ask for."""
        # A cursor that wants nothing more never will again in this pipeline: its failure is mended for other fetches.
        self._cursors = [cursor for cursor in self._cursors if cursor.wants_more]
        wanted = nsmallest(MOST_PARTITIONS, self._cursors, key=lambda cursor: cursor.last_served)
        if not wanted:
            return False
        fetch = self._protocol.ask(wanted)
        self._asked = fetch.cursors
        self._connection.send(fetch.request, fetch.version)
        return True

    def _receive(self) -> None:
        """Wait for the answer and append its portions to `_ready`. Raises TransportError, DecodeError."""
        try:
            timeout_s = self._protocol.timeout_s + self._connection.throttled_s
            answer = self._connection.receive(self._clock() + timeout_s)
        except (TransportError, DecodeError) as error:
            raise type(error)(f"{error} (for {', '.join(map(str, self._asked))})") from error
        self._answers += 1
        asked, self._asked = self._asked, []
        self._throttled_s += answer.throttle_s
        answered = self._protocol.read(answer.response, asked)
        if len(answered) < len(asked):
            found = {id(fetched.cursor) for fetched in answered}
            for missing in asked:
                if id(missing) not in found:
                    missing.mark_waiting(self._clock())
        portions = (self._portion(fetched) for fetched in answered)
        self._ready.append([portion for portion in portions if portion is not None])

    def _portion(self, fetched: Fetched) -> Portion | None:
        """Note on its cursor what came, and return the records, None where there is no whole frame."""
        cursor, frames = fetched.cursor, fetched.frames
        if fetched.error is not None:
            cursor.mark_failed(fetched.error, self._clock())
            return None
        assert frames is not None
        if cursor.replica is None:
            cursor.high_watermark = fetched.high_watermark
        start = cursor.ahead
        if fetched.read_replica is not None:
            cursor.mark_redirected(fetched.read_replica)
        if frames.next_offset > start:
            cursor.mark_fetched(frames.next_offset, frames.size)
            cursor.last_served = self._answers
            return Portion(cursor, start, frames, fetched.aborted)
        if not cursor.is_moving:  # a leader that names a follower sends no records, whatever its log holds
            self._protocol.note_no_progress(fetched, self._clock())
        return None
