"""What to do when a leader does not give what was planned: find the new one, wait, or say that records are lost.

A planned range is delivered whole or the task fails; only with `failOnDataLoss=false` is left out what is gone.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from streamgroup.errors import BrokerError, DataLossError, ErrorCode, KafkaError, TransportError
from streamgroup.executor.cursor import Cursor
from streamgroup.logline import render
from streamgroup.model import EARLIEST, LATEST, ClusterSnapshot, TopicPartition
from streamgroup.net.backoff import Backoff
from streamgroup.options.types import ClientOptions, FetchOptions, Isolation

if TYPE_CHECKING:
    from streamgroup.net.cluster import Cluster

log = logging.getLogger(__name__)

EARLIEST_LOCAL = -4
"""ListOffsets v8: where the part of a log begins that is not in tiered storage (KIP-405)."""
ENOUGH_EMPTY_ANSWERS = 3


class Recovery:
    """Mends the troubles of cursors. Makes no connection before the first one."""

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
        self._cluster: Cluster | None = None
        self._pace = Backoff(client, random.Random())

    def close(self) -> None:
        """Close what was opened."""
        if self._cluster is not None:
            self._cluster.close()

    def progress(self, cursors: Sequence[Cursor]) -> None:
        """Records of one of `cursors` were handed out: all others wait from now on.

        While the one is read, or its records are worked on, the others are not asked for.
        """
        self._pace.reset()
        now = self._clock()
        for cursor in cursors:
            if cursor.waiting_since is not None:
                cursor.waiting_since = now

    def check_patience(self, cursors: Sequence[Cursor]) -> None:
        """Raise where a range has been waited for longer than `kafkaConsumer.pollTimeoutMs`."""
        now = self._clock()
        for cursor in cursors:
            if not cursor.done and cursor.waiting_since is not None and now - cursor.waiting_since >= self._patience:
                self._run_out(cursor, now - cursor.waiting_since, _named(cursor))

    def pass_gaps(self, cursors: Sequence[Cursor], tiered: bool) -> None:
        """End ranges whose rest was compacted away: the leader has it all and still sends nothing, several times.

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
                log.info("%s: no records are left in the rest of the range", cursor)
                cursor.skip(cursor.until)

    def mend(self, cursors: Sequence[Cursor]) -> None:
        """Wait a little, then find the leaders of `cursors` anew and clear their troubles.

        Raises DataLossError, TransportError when patience is at its end, and BrokerError for what no waiting mends.
        """
        self.check_patience(cursors)
        for cursor in cursors:
            trouble = cursor.trouble
            if isinstance(trouble, KafkaError) and not trouble.retriable and trouble.code not in _MENDED:
                raise BrokerError(trouble, f"fetching {cursor.tp} at offset {cursor.ahead}")
        now = self._clock()
        left = [cursor for cursor in cursors if not cursor.done]
        if not left:
            return
        deadline = min((now if c.waiting_since is None else c.waiting_since) for c in left) + self._patience
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

    def _connected(self) -> Cluster:
        from streamgroup.net.cluster import Cluster  # noqa: PLC0415  (most tasks never need it, and start faster)

        if self._cluster is None:
            self._cluster = Cluster(self._client, clock=self._clock)
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

    def _place(self, cursors: Sequence[Cursor], cluster: Cluster, deadline: float) -> None:
        """Hold positions that the leader has not against what the log has."""
        partitions: Sequence[TopicPartition] = [cursor.tp for cursor in cursors]
        starts = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST), Isolation.READ_UNCOMMITTED, deadline)
        ends = cluster.list_offsets(dict.fromkeys(partitions, LATEST), Isolation.READ_UNCOMMITTED, deadline)
        for cursor in cursors:
            start, end = starts[cursor.tp].offset, ends[cursor.tp].offset
            if start > cursor.position:
                self._lose(cursor, start, f"the log begins at offset {start} by now (retention or DeleteRecords)")
            elif end < cursor.position:
                cursor.high_watermark = end

    def _lose(self, cursor: Cursor, until: int, why: str) -> None:
        until = min(until, cursor.until)
        lost = f"{cursor.tp}: the offsets [{cursor.position}, {until}) were planned and cannot be read any more: {why}"
        if self._fail_on_data_loss:
            raise DataLossError(
                f"{lost}. If these records may be missed, set failOnDataLoss=false; "
                "else raise the topic's retention, or read with more resources"
            )
        fields = {"group": self._group, "count": until - cursor.position, "partition": cursor.tp}
        words = f"{lost}; going on at offset {until}, since failOnDataLoss=false"
        line = render(words, "data_loss", **fields, **{"from": cursor.position}, to=until, reason=why)
        log.warning("%s", line)
        cursor.skip(until)

    def _run_out(self, cursor: Cursor, waited: float, last: str) -> None:
        """Patience is at its end: lost where the log ends before the position or the topic is gone, else a failure."""
        if 0 <= cursor.high_watermark < cursor.position:
            why = f"the log ends at offset {cursor.high_watermark}, as after an unclean leader election"
            return self._lose(cursor, cursor.until, f"for {waited:.0f} s {why}")
        if _is(cursor, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) or _is(cursor, ErrorCode.UNKNOWN_TOPIC_ID):
            return self._lose(cursor, cursor.until, f"for {waited:.0f} s no broker has known the partition")
        seen = f"the leader's high watermark is {cursor.high_watermark}" if cursor.high_watermark >= 0 else "no answer"
        raise TransportError(
            f"{cursor}: nothing came for {waited:.0f} s (kafkaConsumer.pollTimeoutMs); {seen}; last: {last}; "
            f"leader: {cursor.leader or 'none'}"
        )


_MENDED = frozenset({ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_SERVER_ERROR})
"""Not retriable by themselves: what became of the log has to be asked first; and old brokers have no other code for a
disk that stumbles or a partition on the move, so that one is waited for as well."""


def _is(cursor: Cursor, code: ErrorCode) -> bool:
    return isinstance(cursor.trouble, KafkaError) and cursor.trouble.code == code


def _named(cursor: Cursor) -> str:
    trouble = cursor.trouble
    return trouble.name if isinstance(trouble, KafkaError) else str(trouble or "an empty answer")
