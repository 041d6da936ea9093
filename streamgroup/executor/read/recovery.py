"""Recovers a range whose leader does not return it: finds the new leader, waits, or reports lost records.

A task delivers a planned range completely or fails. Only with `failOnDataLoss=false` does it skip lost records.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Sequence

from streamgroup.backoff import Backoff
from streamgroup.errors import DataLossError, TransportError
from streamgroup.executor.read.cursor import Cursor
from streamgroup.executor.read.read_format import LogLookup, Loss, describe_failure
from streamgroup.kafka.net.connection import Connection
from streamgroup.logline import render
from streamgroup.options.types import ClientOptions, FetchOptions

log = logging.getLogger(__name__)

ENOUGH_EMPTY_ANSWERS = 3


class Recovery:
    """Resolves the failures of a task's cursors by a `LogLookup`. `clock` returns seconds."""

    def __init__(
        self,
        lookup: LogLookup,
        client: ClientOptions,
        fetch: FetchOptions,
        *,
        fail_on_data_loss: bool,
        clock: Callable[[], float],
        group: str | None = None,
    ) -> None:
        self._lookup = lookup
        self._timeout_s = fetch.poll_timeout_s
        self._fail_on_data_loss = fail_on_data_loss
        self._clock = clock
        self._group = group
        self._backoff = Backoff(client.retry_backoff_ms, client.retry_backoff_max_ms, random.Random())
        self._progressed_at: float | None = None
        """When records were delivered last. Earlier time does not count as waiting."""

    def close(self) -> None:
        self._lookup.close()

    def note_progress(self) -> None:
        """Record that records of one range were delivered. The timeouts of all other ranges start again.

        While Spark processes the records of one range, the task does not fetch the others. A task may have thousands of
        small ranges, so one time is recorded for all of them.
        """
        self._backoff.reset()
        self._progressed_at = self._clock()

    def note_throttled(self, cursors: Iterable[Cursor], seconds: float) -> None:
        """Extend the timeouts by `seconds`: because of a quota the broker accepts no request in that time (KIP-219)."""
        for cursor in cursors:
            if cursor.waiting_since is not None:
                cursor.waiting_since += seconds
        if self._progressed_at is not None:
            self._progressed_at += seconds

    def waited_s(self, cursor: Cursor) -> float:
        """Return for how many seconds neither `cursor` nor any other range has made progress."""
        since = self._waiting_since(cursor)
        return 0.0 if since is None else self._clock() - since

    def _waiting_since(self, cursor: Cursor) -> float | None:
        """Return since when `cursor` has waited; None if it does not."""
        if cursor.waiting_since is None or self._progressed_at is None:
            return cursor.waiting_since
        return max(cursor.waiting_since, self._progressed_at)

    def check_timeouts(self, cursors: Sequence[Cursor]) -> None:
        """Skip or fail the ranges that have waited longer than `kafkaConsumer.pollTimeoutMs`.

        Ranges that are fetched from a follower are not included: a follower without records proves no loss, and
        `ReadReplicas` moves its ranges to the leader.

        Raises DataLossError, TransportError.
        """
        now = self._clock()
        for cursor in cursors:
            is_elsewhere = cursor.replica is not None or cursor.is_moving
            since = None if is_elsewhere else self._waiting_since(cursor)
            if not cursor.done and since is not None and now - since >= self._timeout_s:
                self._time_out(cursor, now - since, describe_failure(cursor))

    def pass_gaps(self, cursors: Sequence[Cursor], connection: Connection) -> None:
        """Skip offsets without records: the leader on `connection` has later records, but has sent none several times.

        Responses of a follower do not count (see `FetchProtocol.note_no_progress`).

        Raises DataLossError, TransportError.
        """
        silent = [c for c in cursors if c.wants_more and c.empty_answers >= ENOUGH_EMPTY_ANSWERS]
        if not silent:
            return
        for cursor in silent:
            cursor.empty_answers = 0
        self._lose_all(self._lookup.pass_gaps(silent, connection, self._clock() + self._timeout_s))

    def mend(self, cursors: Sequence[Cursor]) -> None:
        """Back off, then find the current leaders of `cursors` and clear their failures.

        A cursor whose broker has named a newer leader moves there at once (KIP-951).

        Raises DataLossError, TransportError for a range that has timed out, and BrokerError for an error that retrying
        cannot resolve.
        """
        cursors = [cursor for cursor in cursors if not cursor.follow_named_leader()]
        for cursor in cursors:
            if not cursor.done:
                self._lookup.require_mendable(cursor)
        self.check_timeouts(cursors)
        now = self._clock()
        left = [cursor for cursor in cursors if not cursor.done]
        if not left:
            return
        waiting = (self._waiting_since(cursor) for cursor in left)
        deadline = min(now if since is None else since for since in waiting) + self._timeout_s
        try:
            time.sleep(max(0.0, min(self._backoff.next(), deadline - self._clock())))
            self._lose_all(self._lookup.look_up(left, deadline))
        except TransportError as error:  # the lookup has retried until the deadline, when the ranges time out
            for cursor in left:
                self._time_out(cursor, self._timeout_s, f"{describe_failure(cursor)}; {error}")
            return
        for cursor in left:
            cursor.failure = None

    def _lose_all(self, losses: Iterable[Loss]) -> None:
        for loss in losses:
            self._lose(loss)

    def _lose(self, loss: Loss) -> None:
        """Skip lost records with a warning. Raises DataLossError if `failOnDataLoss` is true."""
        cursor = loss.cursor
        log_format = cursor.log_format
        until = min(loss.until, cursor.until)
        what = log_format.describe_range(cursor.tp, cursor.position, until)
        lost = f"{what} were planned and cannot be read any more: {loss.why}"
        if self._fail_on_data_loss:
            raise DataLossError(f"{lost}. To continue without these records, set failOnDataLoss=false{loss.way_out}")
        fields = {
            "group": self._group,
            "count": until - cursor.position,
            "unit": log_format.log_unit,
            "partition": cursor.tp,
        }
        words = f"{lost}; continuing at offset {until}, because failOnDataLoss=false"
        line = render(words, "data_loss", **fields, **{"from": cursor.position}, to=until, reason=loss.why)
        log.warning("%s", line)
        cursor.skip_to(until)

    def _time_out(self, cursor: Cursor, waited_s: float, last: str) -> None:
        """End the wait for `cursor`: skip the records that a last check of its log proves lost, else fail the task.

        A check that fails proves no loss: with `failOnDataLoss=false` a loss skips records.
        """
        seen = ""
        try:
            found = self._lookup.last_look(cursor, waited_s)
        except TransportError as error:
            last = last if str(error) in last else f"{last}; {error}"
        else:
            if isinstance(found, Loss):
                self._lose(found)
                return
            seen = found
        if not seen:
            known = cursor.high_watermark >= 0
            seen = f"the leader's high watermark is {cursor.high_watermark}" if known else "no answer"
        raise TransportError(
            f"{cursor}: no records for {waited_s:.0f} s (kafkaConsumer.pollTimeoutMs); {seen}; last: {last}; "
            f"leader: {cursor.leader or 'none'}{self._lookup.next_step}"
        )
