"""What to do when a leader does not give what was planned: find the new one, wait, or say that records are lost.

A planned range is delivered whole or the task fails; only with `failOnDataLoss=false` is left out what is gone.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from streamgroup.cluster.requests import EpochCheck
from streamgroup.errors import BrokerError, DataLossError, ErrorCode, KafkaError, TransportError, may_succeed_later
from streamgroup.executor.cursor import Cursor
from streamgroup.logline import render
from streamgroup.model import EARLIEST, LATEST, UNKNOWN_EPOCH, ClusterSnapshot, TopicPartition
from streamgroup.net.backoff import Backoff
from streamgroup.options.types import ClientOptions, FetchOptions, Isolation

if TYPE_CHECKING:
    from streamgroup.cluster.kafka import KafkaCluster

log = logging.getLogger(__name__)

EARLIEST_LOCAL = -4
"""ListOffsets v8: where the part of a log begins that is not in tiered storage (KIP-405)."""
ENOUGH_EMPTY_ANSWERS = 3
KEEP_LONGER = ". To lose no more of them, raise the topic's retention, or read with more resources"
LAST_LOOK_S = 5.0
"""How long the last look at a log may take, once the timeout of a range is over."""


class Recovery:
    """Mends the troubles of cursors. Makes no connection before the first one."""

    _unit: str | None = None
    """What the difference of two offsets counts, where that is not offsets."""

    def __init__(
        self,
        client: ClientOptions,
        fetch: FetchOptions,
        fail_on_data_loss: bool,
        clock: Callable[[], float],
        group: str | None = None,
    ) -> None:
        self._client = client
        self._patience = fetch.poll_timeout_ms / 1000
        self._fail_on_data_loss = fail_on_data_loss
        self._clock = clock
        self._group = group
        self._cluster: KafkaCluster | None = None
        self._pace = Backoff(client, random.Random())
        self._progressed_at: float | None = None
        """When records were handed out last; no range has been waited for since before that."""

    def close(self) -> None:
        """Close what was opened."""
        if self._cluster is not None:
            self._cluster.close()

    def progress(self) -> None:
        """Records of one range were handed out: all others wait from now on.

        While the one is read, or its records are worked on, the others are not asked for. A task may have thousands of
        small ranges, so the time is noted once for all of them.
        """
        self._pace.reset()
        self._progressed_at = self._clock()

    def _waiting_since(self, cursor: Cursor) -> float | None:
        """Return since when `cursor` has been waited for; None where it is not."""
        if cursor.waiting_since is None or self._progressed_at is None:
            return cursor.waiting_since
        return max(cursor.waiting_since, self._progressed_at)

    def check_patience(self, cursors: Sequence[Cursor]) -> None:
        """Raise where a range has been waited for longer than `kafkaConsumer.pollTimeoutMs`."""
        now = self._clock()
        for cursor in cursors:
            since = self._waiting_since(cursor)
            if not cursor.done and since is not None and now - since >= self._patience:
                self._run_out(cursor, now - since, _named(cursor))

    def pass_gaps(self, cursors: Sequence[Cursor], tiered: bool) -> None:
        """Pass over what was compacted away: the leader has told of more and still sends nothing, several times.

        A log in tiered storage may be silent because that is slow: there it is no proof. `tiered`: the broker can be
        asked for the part that is local.
        """
        silent = [c for c in cursors if c.wants_more and c.empty_answers >= ENOUGH_EMPTY_ANSWERS]
        if not silent:
            return
        local: dict[TopicPartition, int] = {}
        if tiered:
            wanted = dict.fromkeys((cursor.tp for cursor in silent), EARLIEST_LOCAL)
            deadline = self._clock() + self._patience
            listed = self._connected().list_offsets(wanted, Isolation.READ_UNCOMMITTED, deadline)
            local = {tp: found.offset for tp, found in listed.items()}
        for cursor in silent:
            cursor.empty_answers = 0
            if cursor.position == cursor.ahead >= local.get(cursor.tp, 0):
                to = min(cursor.readable, cursor.until)
                log.info("%s: no records are left before offset %d", cursor, to)
                cursor.skip(to)

    def mend(self, cursors: Sequence[Cursor]) -> None:
        """Wait a little, then find the leaders of `cursors` anew and clear their troubles.

        Raises DataLossError, TransportError when patience is at its end, and BrokerError for what no waiting mends.
        """
        self.check_patience(cursors)
        for cursor in cursors:
            trouble = cursor.trouble
            if isinstance(trouble, KafkaError) and not may_succeed_later(trouble.code) and trouble.code not in _MENDED:
                raise BrokerError(trouble, f"fetching {cursor.tp} at offset {cursor.ahead}")
        now = self._clock()
        left = [cursor for cursor in cursors if not cursor.done]
        if not left:
            return
        waiting = (self._waiting_since(cursor) for cursor in left)
        deadline = min(now if since is None else since for since in waiting) + self._patience
        try:
            self._look_up(left, deadline)
        except TransportError as error:  # retried until the deadline, which is that of our patience
            for cursor in left:
                self._run_out(cursor, self._patience, f"{_named(cursor)}; {error}")

    def _look_up(self, cursors: Sequence[Cursor], deadline: float) -> None:
        cluster = self._connected()
        time.sleep(max(0.0, min(self._pace.next(), deadline - self._clock())))
        snapshot = cluster.snapshot({cursor.tp.topic for cursor in cursors}, deadline, refresh=True)
        for cursor in cursors:
            self._follow(cursor, snapshot)
        astray = [c for c in cursors if not c.done and _is(c, ErrorCode.OFFSET_OUT_OF_RANGE)]
        if astray:
            self._place(astray, cluster, deadline)
        for cursor in cursors:
            cursor.trouble = None

    def _connected(self) -> KafkaCluster:
        from streamgroup.cluster.kafka import KafkaCluster  # noqa: PLC0415  (most tasks never need it, and start faster)

        if self._cluster is None:
            self._cluster = KafkaCluster(self._client, clock=self._clock)
        return self._cluster

    def _follow(self, cursor: Cursor, snapshot: ClusterSnapshot) -> None:
        """Send `cursor` to its leader of now; a topic of the same name with another id is another topic (R8)."""
        topic = snapshot.topics.get(cursor.tp.topic)
        if topic is None:
            return
        if cursor.topic_id and topic.topic_id and topic.topic_id != cursor.topic_id:
            self._lose(cursor, cursor.until, f"the topic was deleted and made anew (id {topic.topic_id})")
            return
        info = snapshot.partition(cursor.tp)
        if info is None:
            return
        trouble = cursor.trouble
        cursor.moves(snapshot.leader(cursor.tp), info.leader_epoch)
        cursor.trouble = trouble

    def _place(self, cursors: Sequence[Cursor], cluster: KafkaCluster, deadline: float) -> None:
        """Hold positions that the leader has not against what the log has."""
        partitions: Sequence[TopicPartition] = [cursor.tp for cursor in cursors]
        starts = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST), Isolation.READ_UNCOMMITTED, deadline)
        ends = cluster.list_offsets(dict.fromkeys(partitions, LATEST), Isolation.READ_UNCOMMITTED, deadline)
        for cursor in cursors:
            start, end = starts[cursor.tp].offset, ends[cursor.tp].offset
            if start > cursor.position:
                self._lose(
                    cursor, start, f"the log begins at offset {start} by now (retention or DeleteRecords)", KEEP_LONGER
                )
            elif end < cursor.position:
                cursor.high_watermark = end

    def _lose(self, cursor: Cursor, until: int, why: str, way_out: str = "") -> None:
        until = min(until, cursor.until)
        what = self._describe_range(cursor.tp, cursor.position, until)
        lost = f"{what} were planned and cannot be read any more: {why}"
        if self._fail_on_data_loss:
            raise DataLossError(f"{lost}. To go on without these records, set failOnDataLoss=false{way_out}")
        fields = {"group": self._group, "count": until - cursor.position, "unit": self._unit, "partition": cursor.tp}
        words = f"{lost}; going on at offset {until}, since failOnDataLoss=false"
        line = render(words, "data_loss", **fields, **{"from": cursor.position}, to=until, reason=why)
        log.warning("%s", line)
        cursor.skip(until)

    @staticmethod
    def _describe_range(tp: TopicPartition, start: int, until: int) -> str:
        return f"{tp}: the offsets [{start}, {until})"

    def _run_out(self, cursor: Cursor, waited: float, last: str) -> None:
        """End the wait for `cursor`: lose what a last look at the cluster shows to be gone, else fail the task.

        A look that fails proves no loss: with `failOnDataLoss=false` a loss skips records.
        """
        try:
            why = self._why_gone(cursor, self._clock() + min(LAST_LOOK_S, self._patience))
        except TransportError as error:
            last = last if str(error) in last else f"{last}; {error}"
        else:
            if why:
                self._lose(cursor, cursor.until, f"for {waited:.0f} s {why}")
            if cursor.done:
                return
        seen = f"the leader's high watermark is {cursor.high_watermark}" if cursor.high_watermark >= 0 else "no answer"
        raise TransportError(
            f"{cursor}: nothing came for {waited:.0f} s (kafkaConsumer.pollTimeoutMs); {seen}; last: {last}; "
            f"leader: {cursor.leader or 'none'}"
        )

    def _why_gone(self, cursor: Cursor, deadline: float) -> str:
        """Return why nothing can come of `cursor` any more, "" where its log still holds the position.

        A range is lost where its log, listed anew under fresh metadata, does not reach beyond the position. A log that
        does is no loss, even where it ends below the range: the next attempt reads up to its end first.
        """
        cluster = self._connected()
        tp = cursor.tp
        snapshot = self._agreed_metadata(tp, cluster, deadline)
        if snapshot.partition(tp) is None:
            unknown = _is(cursor, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) or _is(cursor, ErrorCode.UNKNOWN_TOPIC_ID)
            return "no broker has known the partition" if unknown else ""
        self._follow(cursor, snapshot)
        if cursor.done:
            return ""
        cursor.high_watermark = cluster.list_offsets({tp: LATEST}, Isolation.READ_UNCOMMITTED, deadline)[tp].offset
        end = max(cursor.high_watermark, self._log_end(cursor, cluster, deadline))
        if end > cursor.position:
            return ""
        return f"the log has ended at offset {end}, as after an unclean leader election or a power loss"

    @staticmethod
    def _agreed_metadata(tp: TopicPartition, cluster: KafkaCluster, deadline: float) -> ClusterSnapshot:
        """Ask two brokers, where there are two. Raises TransportError where they do not agree on the leader of `tp`.

        One that is cut off from the controller may still take itself for the leader.
        """
        first = cluster.snapshot({tp.topic}, deadline, refresh=True).partition(tp)
        cluster.distrust_metadata()
        snapshot = cluster.snapshot({tp.topic}, deadline, refresh=True)
        second = snapshot.partition(tp)
        if (first and first.leader) != (second and second.leader):
            raise TransportError(f"the brokers do not agree on the leader of {tp}: {first} and {second}")
        return snapshot

    @staticmethod
    def _log_end(cursor: Cursor, cluster: KafkaCluster, deadline: float) -> int:
        """Return where the leader's log ends, -1 where its leader cannot tell.

        ListOffsets tells the high watermark, which a new leader may hold below the planned range until its followers
        have caught up. Records above it are not lost.
        """
        if cursor.leader_epoch == UNKNOWN_EPOCH:
            return -1
        check = EpochCheck(cursor.leader_epoch, cursor.leader_epoch)
        ends = cluster.epoch_ends({cursor.tp: check}, deadline)
        if cursor.tp not in ends:
            raise TransportError(f"the leader of {cursor.tp} has not told where its log ends")
        return ends[cursor.tp].end_offset


_MENDED = frozenset({ErrorCode.OFFSET_OUT_OF_RANGE})
"""Not retriable by itself: the leader has to be asked first how far the log reaches now."""


def _is(cursor: Cursor, code: ErrorCode) -> bool:
    return isinstance(cursor.trouble, KafkaError) and cursor.trouble.code == code


def _named(cursor: Cursor) -> str:
    trouble = cursor.trouble
    if trouble is None:
        return "the partition has no leader" if cursor.leader is None else "an empty answer"
    return trouble.name if isinstance(trouble, KafkaError) else str(trouble)
