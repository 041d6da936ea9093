"""The state of one partition in the producer: its batches in order, its leader and its sequence numbers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from streamgroup.kafka.producer.batch import NO_IDENTITY, BatchState, Payload, ProducerBatch, ProducerIdentity
from streamgroup.model import NO_LEADER, UNKNOWN_EPOCH, PartitionInfo, TopicInfo, TopicPartition, is_another_topic

CONFIRMED_FOR_S = 60.0
"""Seconds after an acknowledgement during which several batches of an idempotent partition may be in flight.

A broker without state of the producer accepts any sequence number. If it rejected the first of several batches and
accepted the second, the first could never follow (KAFKA-15591). The broker has no state before the first
acknowledgement, and may have expired it after a long time without a batch.
"""
SILENT_AFTER_S = 3600.0
"""Seconds without an acknowledgement after which an idle partition starts its sequence again under a higher epoch.

Brokers forget a producer after `producer.id.expiration.ms` (a day by default), or with its last record. Some then
reject every sequence number but 0, and brokers of 0.11 do so with the code for lost records.
"""
_REFUSED = (BatchState.REJECTED, BatchState.UNRECOGNIZED)
"""The states of batches that the broker has rejected, and that are not sent again with their sequence numbers."""


class PartitionQueue:
    """The batches of one partition that are neither delivered nor failed.

    Batches in `outstanding` were sent at least once. Batches in `queue` were not sent yet. Both are in the order of the
    records, and all of `outstanding` comes before all of `queue`.
    """

    __slots__ = (
        "confirmed_at",
        "exists",
        "first_goes_alone",
        "identity",
        "leader",
        "leader_epoch",
        "next_sequence",
        "outstanding",
        "partition",
        "queue",
        "resetting",
        "stale",
        "surplus",
        "topic_id",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.queue: deque[ProducerBatch] = deque()
        self.outstanding: list[ProducerBatch] = []
        self.leader = NO_LEADER
        self.leader_epoch = UNKNOWN_EPOCH
        self.topic_id = ""
        self.exists = False
        """Whether the metadata have had the partition at least once."""
        self.stale = False
        """True if an answer contradicts the leader: nothing is sent before the next metadata."""
        self.identity = NO_IDENTITY
        self.next_sequence = 0
        self.confirmed_at = float("-inf")
        """When the broker acknowledged a batch under this identity."""
        self.first_goes_alone = False
        """True if nothing may follow the next batch until it is acknowledged: the topic may have been created again."""
        self.surplus: float = 0
        """Offset minus sequence number of the last acknowledged batch before which no batch was missing. Records of
        other producers raise it. If it falls, the log lacks records. Infinite until the first acknowledgement if the
        topic may have been created again."""
        self.resetting = False
        """True if a sequence number is missing, and the partition waits for another identity."""

    def __iter__(self) -> Iterator[ProducerBatch]:
        """Yield all unresolved batches in order."""
        yield from self.outstanding
        yield from self.queue

    @property
    def is_empty(self) -> bool:
        return not self.outstanding and not self.queue

    @property
    def oldest(self) -> ProducerBatch:
        """The first unresolved batch. Raises IndexError if there is none."""
        return self.outstanding[0] if self.outstanding else self.queue[0]

    def append(self, payload: Payload, now: float, batch_size: int) -> bool:
        """Add `payload` to the last batch if it has room, else to a new batch. Return whether a new batch was made."""
        last = self.queue[-1] if self.queue else None
        new = last is None or last.full or last.size + payload.size > batch_size
        if new:
            if last is not None:
                last.full = True
            self.queue.append(ProducerBatch(self.partition, payload, now))
        elif last is not None:
            last.add(payload)
        self.queue[-1].full = self.queue[-1].size >= batch_size
        return new

    def remove(self, batch: ProducerBatch) -> None:
        """Remove a batch that is delivered or failed."""
        batch.state = BatchState.RESOLVED
        if batch in self.outstanding:
            self.outstanding.remove(batch)
        else:
            self.queue.remove(batch)

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Replace `batch` by `parts`, which divide its sequence numbers among them."""
        batch.state = BatchState.RESOLVED
        if batch in self.outstanding:
            sequence = batch.base_sequence
            for part in parts:
                part.state = BatchState.RETRY
                if batch.identity != NO_IDENTITY:
                    sequence = part.number(batch.identity, sequence)
            at = self.outstanding.index(batch)
            self.outstanding[at : at + 1] = parts
        else:
            at = self.queue.index(batch)
            self.queue.remove(batch)
            for offset, part in enumerate(parts):
                self.queue.insert(at + offset, part)

    # -- the leader ---------------------------------------------------------------------------------------------------

    def follow(self, info: PartitionInfo | None, topic_id: str) -> None:
        """Use the leader in new metadata, unless a Produce response has named a leader with a later epoch."""
        self.stale = False
        if info is None:
            self.leader = NO_LEADER
            return
        self.exists = True
        no_epoch = UNKNOWN_EPOCH in (info.leader_epoch, self.leader_epoch)
        is_recreated = is_another_topic(self.topic_id, topic_id)
        if is_recreated:
            self.doubt_the_log()
        if no_epoch or info.leader_epoch >= self.leader_epoch or is_recreated:
            self.leader, self.leader_epoch, self.topic_id = info.leader, info.leader_epoch, topic_id

    def is_of_another(self, topic: TopicInfo) -> bool:
        """Whether `topic` has another topic id: it was deleted and created again."""
        return is_another_topic(self.topic_id, topic.topic_id)

    def doubt_the_log(self) -> None:
        """Assume that the topic may have been created again.

        The broker of a new log accepts any sequence number for its first batch.
        """
        self.first_goes_alone, self.surplus = True, float("inf")

    def moved_to(self, leader: int, leader_epoch: int) -> bool:
        """Use the leader that a Produce response names (KIP-951). Return False if its epoch is not newer."""
        if leader < 0 or leader_epoch <= self.leader_epoch:
            return False
        self.leader, self.leader_epoch, self.stale = leader, leader_epoch, False
        return True

    # -- the order ----------------------------------------------------------------------------------------------------

    def next_in_sequence(self, limit: int, now: float) -> ProducerBatch | None:
        """Return the next batch of an idempotent producer, even if it may still linger.

        While a batch must be sent again, only the first one may be: the broker rejects all later ones. Unrecognized
        batches are skipped. No new batch follows a doubtful one: the broker must remember the doubtful batch at its
        next attempt, and remembers only five batches.
        """
        first = True
        may_follow = not self.resetting
        for batch in self.outstanding:
            state = batch.state
            if state in _REFUSED:
                may_follow = False
                continue
            if state is not BatchState.IN_FLIGHT:
                return batch if first and state is BatchState.RETRY and batch.retry_at <= now else None
            first = False
            may_follow = may_follow and not batch.doubtful
        goes_alone = self.first_goes_alone or now - self.confirmed_at > CONFIRMED_FOR_S
        if not may_follow or (self.outstanding and goes_alone):
            return None
        return self._next_queued(limit)

    def next_in_order(self, limit: int, now: float) -> ProducerBatch | None:
        """Return the next batch of a producer without idempotence.

        Only `limit` 1 preserves the order: with more in flight, a retried batch comes after its successors.
        """
        waiting = next((b for b in self.outstanding if b.state is not BatchState.IN_FLIGHT), None)
        if waiting is not None:
            return waiting if waiting.state is BatchState.RETRY and waiting.retry_at <= now else None
        return self._next_queued(limit)

    def _next_queued(self, limit: int) -> ProducerBatch | None:
        if not self.queue or len(self.outstanding) >= limit:
            return None
        if self.outstanding and self.outstanding[-1].node != self.leader:
            return None  # wait for the old leader's answers: the new leader may not have those batches
        return self.queue[0] if self.queue[0].state is BatchState.QUEUED else None

    def sent(self, batch: ProducerBatch) -> None:
        """Record that `batch` is being sent to the leader now. One of the two methods above has returned it."""
        if batch.state is BatchState.QUEUED:
            self.queue.popleft()
            self.outstanding.append(batch)
            if self.identity != NO_IDENTITY:
                self.next_sequence = batch.number(self.identity, self.next_sequence)
        batch.sent_first = next(b for b in self.outstanding if b.state is not BatchState.UNRECOGNIZED) is batch
        batch.state = BatchState.IN_FLIGHT
        batch.attempts += 1
        batch.node = self.leader

    # -- sequences ----------------------------------------------------------------------------------------------------

    def confirm(self, batch: ProducerBatch, offset: int, now: float) -> tuple[list[ProducerBatch], list[ProducerBatch]]:
        """Remove `batch`, which the broker has at `offset` (-1: unknown).

        Return the unrecognized earlier batches that the broker must have too, and the earlier batches that can never
        follow.
        """
        before = self.outstanding[: self.outstanding.index(batch)]
        surplus = self.surplus if offset < 0 else offset - batch.base_sequence
        proves = self.identity != NO_IDENTITY and self.surplus <= surplus < float("inf")
        if proves:
            # A broker with state of the producer appends a batch only after the one before it. A broker without state
            # appends any batch, but then the log has too few records before this one (unless another producer writes).
            for earlier in before:
                earlier.followed |= earlier.doubtful
        if proves or not before:  # otherwise earlier batches may be missing, and no later batch may count as proof
            self.surplus = surplus
        self.confirmed_at, self.first_goes_alone = now, False
        appended = [b for b in before if b.state is BatchState.UNRECOGNIZED and b.followed]
        for each in (*appended, batch):
            self.remove(each)
        return appended, [b for b in before if b.state in _REFUSED]

    @property
    def is_recognized(self) -> bool:
        """Whether there is no batch with a rejected sequence number that the broker may have."""
        return all(b.state is not BatchState.UNRECOGNIZED for b in self.outstanding)

    @property
    def unprovable(self) -> list[ProducerBatch]:
        """The unrecognized batches, if no later batch is left whose answer could show that the broker has them."""
        if any(b.state not in _REFUSED for b in self.outstanding):
            return []
        return [b for b in self.outstanding if b.state is BatchState.UNRECOGNIZED]

    def is_silent(self, now: float) -> bool:
        """Whether the broker may have forgotten the producer, and no batch is unresolved."""
        return self.is_empty and float("-inf") < self.confirmed_at < now - SILENT_AFTER_S

    def begin_reset(self) -> None:
        """Wait for another identity. A batch that no broker can have waits too; all others must first be resolved."""
        self.resetting = True
        for batch in self.outstanding:
            if batch.state is BatchState.RETRY and not batch.doubtful:
                batch.state = BatchState.REJECTED

    @property
    def may_reset(self) -> bool:
        """Whether no broker has, or can still receive, an unresolved batch under the old identity."""
        return self.resetting and all(b.state is BatchState.REJECTED for b in self.outstanding)

    def reset(self, identity: ProducerIdentity, now: float) -> None:
        """Start again at sequence 0 under `identity`. The rejected batches come first."""
        self.identity, self.next_sequence = identity, 0
        self.confirmed_at, self.resetting = float("-inf"), False
        for batch in self.outstanding:
            batch.state, batch.retry_at = BatchState.RETRY, now
            self.next_sequence = batch.number(identity, self.next_sequence)
