"""The producer for Kafka 0.8 and later as a state machine without sockets and clocks.

It turns records and the brokers' responses into requests and results: `events.py` has its events and actions. The
states are in `bookkeeping.py`, the reactions to error codes in `reactions.py`, the order of the batches of a partition
in `partition_queue.py`.

An idempotent producer writes no duplicate. A batch keeps its identity and sequence number in every attempt, so that the
broker recognizes it. It gets new ones only if every attempt was answered, and each answer shows that the batch was not
appended. A batch that a broker may have fails instead.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from streamgroup.backoff import Random
from streamgroup.errors import ErrorCode, ProduceError, error_of
from streamgroup.kafka.producer import events as ev
from streamgroup.kafka.producer import reactions
from streamgroup.kafka.producer.batch import NO_IDENTITY, BatchState, ProducerBatch, ProducerIdentity
from streamgroup.kafka.producer.bookkeeping import (
    TABLE,
    IdentitySource,
    Node,
    PendingProduce,
    ProducerCue,
    ProducerState,
    Topics,
)
from streamgroup.kafka.producer.config import Idempotence, ProducerConfig
from streamgroup.kafka.producer.partition_queue import PartitionQueue
from streamgroup.kafka.producer.reactions import (
    UNEXPECTED_ATTEMPTS,
    Appended,
    CodeReaction,
    ProduceReaction,
    reaction_to,
    reaction_to_metadata,
    reaction_to_producer_id,
)
from streamgroup.kafka.producer.requests import answers_of, endpoints_of, throttle_s
from streamgroup.kafka.producer.transaction import Transaction
from streamgroup.kafka.wire.messages.produce import NO_ACKS, PartitionProduceResponse
from streamgroup.model import NO_LEADER, NO_TOPIC_ID, TopicInfo, TopicPartition

_NEVER = float("inf")
_BATCH_HEADER = 61
"""Bytes of a record batch before its records."""
_COMPRESSION_ADDS = 64
"""A codec adds at most 1/64 to bytes that it cannot compress."""
_LATE_S = 30.0
"""Seconds between two warnings about unresolved batches."""
_MISSING = PartitionProduceResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, error_message="the answer lacks it")


class Producer:
    """The state machine of one producer. One thread uses it, and no method blocks. See the module."""

    def __init__(self, config: ProducerConfig, random: Random) -> None:
        self._config = config
        self._random = random
        self._idempotent = config.wants_idempotence
        self._state = ProducerState.NO_ID if self._idempotent else ProducerState.WITHOUT_ID
        self._limit = config.max_in_flight
        """The most unresolved batches of one partition that may have been sent."""
        self._ids = IdentitySource()
        self._transaction: Transaction | None = None
        """The transaction that the records belong to. Its identity is given, and stays the same."""
        self._fatal: ProduceError | None = None
        self._topics = Topics(config, random)
        self._partitions: dict[TopicPartition, PartitionQueue] = {}
        """The partitions of the topics that were used within metadata.max.idle.ms."""
        self._active: dict[TopicPartition, PartitionQueue] = {}
        """The partitions with unresolved batches. The partitions served last are at the end."""
        self._resetting: dict[TopicPartition, PartitionQueue] = {}
        self._unrecognized: dict[TopicPartition, PartitionQueue] = {}
        """The partitions with batches that the broker does not recognize."""
        self._absent: dict[TopicPartition, tuple[PartitionQueue, float]] = {}
        """The partitions that the metadata of their topics lack, and since when they do."""
        self._nodes: dict[int, Node] = {}
        self._requests: dict[int, PendingProduce] = {}
        self._tokens = itertools.count(1)
        self._late_at = float("-inf")
        """When to check for late batches again."""
        self._buffered = 0
        self._unresolved = 0
        self._flushing = False
        self._now = 0.0
        self._out: list[ev.Action] = []

    @property
    def state(self) -> ProducerState:
        return self._state

    @property
    def identity(self) -> ProducerIdentity:
        """The newest producer id and epoch, NO_IDENTITY if there is none. A partition may still use an earlier one."""
        return self._ids.current

    @property
    def buffered_bytes(self) -> int:
        """The bytes of the records that are appended, and neither delivered nor failed."""
        return self._buffered

    @property
    def unresolved(self) -> int:
        """The number of batches that are neither delivered nor failed."""
        return self._unresolved

    @property
    def has_room(self) -> bool:
        """Whether `buffer.memory` has room. The shell appends only then.

        Without room batches are sent without lingering.
        """
        return self._buffered < self._config.buffer_memory

    def begin_task(self, now: float, transaction: Transaction | None = None) -> None:
        """Begin another task. Since the last task, topics may have been deleted and created again.

        A producer writes either all of its tasks in transactions, or none.
        """
        self._forget_idle_topics(now)
        if transaction is not None:
            self._transaction = transaction
            self._partitions.clear()
            self._absent.clear()
            self._ids.given(transaction.identity)
            self._change(ProducerCue.IN_TRANSACTION)
        for queue in self._partitions.values():
            queue.doubt_the_log()

    def topic(self, name: str) -> TopicInfo | None:
        return self._topics.get(name)

    def max_message_bytes(self, topic: str) -> int | None:
        """Return the bytes of the largest batch that the topic accepts; None if unknown."""
        return self._topics.limit(topic)

    def batch_size(self, topic: str) -> int:
        """Return how many bytes a batch of the topic collects: `batch.size`, or less if the topic's limit is lower."""
        limit = self._topics.limit(topic)
        if limit is None:
            return self._config.batch_size
        return min(self._config.batch_size, max(1, limit - _BATCH_HEADER - limit // _COMPRESSION_ADDS))

    def queued_bytes(self, partition: TopicPartition) -> int:
        """Return the unresolved bytes of a partition: a partitioner uses them to avoid slow brokers (KIP-794)."""
        queue = self._active.get(partition)
        return 0 if queue is None else sum(batch.size for batch in queue)

    def step(self, event: ev.Event, now: float) -> list[ev.Action]:
        """Handle one event at `now` (monotonic seconds). Return the actions to carry out, in order."""
        self._now, self._out = now, []
        self._HANDLERS[type(event)](self, event)
        self._watch_requests()
        self._expire()
        self._warn_of_late_batches()
        self._reroute()
        self._fail_unprovable()
        self._reset_sequences()
        self._get_id()
        self._read_metadata()
        self._send()
        if self._flushing and not self._unresolved:
            self._flushing = False
            self._out.append(ev.Flushed())
        wake_at = self._wake_at()
        if wake_at < _NEVER:
            self._out.append(ev.WakeAt(wake_at))
        return self._out

    # -- records ------------------------------------------------------------------------------------------------------

    def _find_topics(self, event: ev.FindTopics) -> None:
        self._wants_id()
        for topic in event.topics:
            info = self._topics.look_for(topic, self._now, again=event.again)
            if info is not None:
                self._out.append(ev.TopicFound(info))

    def _append(self, event: ev.Append) -> None:
        self._wants_id()
        for partition, payload in event.payloads:
            self._topics.use(partition.topic, self._now)
            queue = self._partitions.get(partition) or self._new_partition(partition)
            if self._idempotent and self._transaction is None and queue.is_silent(self._now):
                self._begin_reset(queue)
            new = queue.append(payload, self._now, self.batch_size(partition.topic))
            self._buffered += payload.size
            self._unresolved += new
            self._active[partition] = queue
        if self._fatal is not None:
            self._fail_all(self._fatal)

    def _new_partition(self, partition: TopicPartition) -> PartitionQueue:
        queue = self._partitions[partition] = PartitionQueue(partition)
        info = self._topics.get(partition.topic)
        if info is not None:
            self._follow(queue, info)
        return queue

    def _flush(self, _: ev.Flush) -> None:
        self._flushing = True
        for queue in self._active.values():
            for batch in queue.queue:
                batch.full = True

    def _abandon(self, event: ev.Abandon) -> None:
        for queue in list(self._active.values()):
            for batch in list(queue):
                self._fail(queue, batch, reactions.abandoned(batch, event.reason))

    def _split(self, event: ev.SplitInto) -> None:
        batch, queue = event.batch, self._partitions[event.batch.partition]
        if batch.state is not BatchState.SPLITTING:
            return  # it has failed meanwhile
        if len(event.parts) < 2 or sum(part.count for part in event.parts) != batch.count:
            raise ValueError(f"{batch}: expected at least two parts with {batch.count} records, got {event.parts}")
        parts = [batch.part(payload) for payload in event.parts]
        for part in parts:
            part.retry_at = self._now
        queue.replace(batch, parts)
        if queue.resetting:
            queue.begin_reset()
        self._buffered += sum(part.size for part in parts) - batch.size
        self._unresolved += len(parts) - 1

    def _reroute(self) -> None:
        """Reroute the records of partitions that no longer exist.

        A topic with another id was deleted and created again. If the id is unknown or the same, a broker with old
        metadata may have answered, so the producer waits for the partition for max.block.ms. A new log has none of the
        batches, since they were deleted with the old log. A topic with the same id is the same topic, and never loses a
        partition: its metadata are old, so a batch that a broker may have fails.
        """
        for partition, (queue, since) in list(self._absent.items()):
            topic = self._topics.get(partition.topic)
            if topic is None or not (
                queue.is_of_another(topic) or self._now >= since + self._config.max_block_ms / 1000
            ):
                continue
            if any(batch.state is BatchState.IN_FLIGHT for batch in queue.outstanding):
                continue  # the records keep their order
            is_same = queue.topic_id == topic.topic_id != NO_TOPIC_ID
            for batch in list(queue):
                if batch.state is BatchState.SPLITTING:
                    continue
                if is_same and batch.doubtful:
                    self._fail(queue, batch, reactions.hidden_partition(batch, self._config))
                    continue
                batch.state, batch.full, batch.doubtful = BatchState.SPLITTING, True, False
                self._out.append(ev.Reroute(batch))

    def _rerouted(self, event: ev.Rerouted) -> None:
        batch, queue = event.batch, self._partitions[event.batch.partition]
        if batch.state is not BatchState.SPLITTING:
            return  # it has failed meanwhile
        if event.payloads is None:
            topic = self._topics.get(batch.partition.topic)
            is_new = topic is not None and queue.is_of_another(topic)
            self._fail(queue, batch, reactions.unknown_partition(batch, self._config, topic, is_new=is_new))
            return
        self._take_out(queue, batch)
        self._append(ev.Append(event.payloads))

    def _tick(self, _: ev.Tick) -> None:
        """Do nothing more than every step does."""

    # -- metadata -----------------------------------------------------------------------------------------------------

    def _metadata_read(self, event: ev.MetadataRead) -> None:
        self._topics.read_limits(event.max_message_bytes, event.no_limits)
        if self._config.acks == NO_ACKS:
            self._out += [ev.LimitUnknown(topic, reason) for topic, reason in event.no_limits.items()]
        found = self._topics.read(event.topics, event.asked, self._now)
        self._out += [ev.TopicFound(info) for info in found]
        for partition, queue in self._partitions.items():
            if partition.topic in event.topics:
                self._follow(queue, event.topics[partition.topic])
            elif partition.topic in event.asked:
                queue.follow(None, queue.topic_id)
        for topic, code in event.errors.items():
            row = reaction_to_metadata(code)
            if row.reaction is ProduceReaction.FAIL:
                self._refuse_topic(topic, reactions.topic_refused(topic, code, row, self._config.requester))
        self._forget_idle_topics(self._now)

    def _forget_idle_topics(self, now: float) -> None:
        """Forget the topics that were not written for metadata.max.idle.ms, with their partitions.

        A partition that is written again starts at sequence 0, so it needs another identity than before. A transaction
        has only one.
        """
        if self._transaction is not None:
            return
        idle = set(self._topics.forget_idle(self._waiting_topics(), now))
        for queue in [queue for partition, queue in self._partitions.items() if idle and partition.topic in idle]:
            if queue.identity == NO_IDENTITY or self._ids.retire(queue.identity):
                del self._partitions[queue.partition]
                self._resetting.pop(queue.partition, None)
                self._absent.pop(queue.partition, None)

    def _waiting_topics(self) -> set[str]:
        return {partition.topic for partition in self._active}

    def _follow(self, queue: PartitionQueue, topic: TopicInfo) -> None:
        info = topic.partition(queue.partition.partition)
        queue.follow(info, topic.topic_id)
        if info is None:
            self._absent.setdefault(queue.partition, (queue, self._now))
        else:
            self._absent.pop(queue.partition, None)

    def _refuse_topic(self, topic: str, error: ProduceError) -> None:
        if self._topics.drop(topic):
            self._out.append(ev.TopicMissing(topic, error))
        for partition, queue in list(self._active.items()):
            if partition.topic == topic:
                for batch in list(queue):
                    self._fail(queue, batch, type(error)(error.message, error.code, batch.maybe_written))

    def _metadata_failed(self, event: ev.MetadataFailed) -> None:
        self._topics.failed(event.reason, self._now)

    def _read_metadata(self) -> None:
        unsettled = any(queue.stale or queue.leader == NO_LEADER for queue in self._active.values())
        topics = self._topics.take_due(self._waiting_topics(), unsettled, self._now)
        if topics:
            self._out.append(ev.ReadMetadata(topics, self._topics.limits_to_read(topics)))
        for topic, left in self._topics.late(self._now):
            self._out.append(ev.Warn(reactions.late_topic(topic, left, self._config, self._topics.reason)))
        for topic in self._topics.missing(self._now):
            self._out.append(ev.TopicMissing(topic, reactions.missing_topic(topic, self._config, self._topics.reason)))

    # -- the identity -------------------------------------------------------------------------------------------------

    def _change(self, cue: ProducerCue) -> None:
        self._state = TABLE.next_state(self._state, cue)

    def _wants_id(self) -> None:
        if self._state is ProducerState.NO_ID:
            self._change(ProducerCue.RECORDS)

    def _get_id(self) -> None:
        if self._state is ProducerState.ASKING_ID and self._ids.take_due(self._now):
            self._out.append(ev.GetProducerId())

    def _id_given(self, event: ev.ProducerIdGiven) -> None:
        if self._ids.pending:
            self._ids.given(ProducerIdentity(event.producer_id, event.epoch))
            self._change(ProducerCue.ID_GIVEN)

    def _id_refused(self, event: ev.ProducerIdRefused) -> None:
        if not self._ids.pending:
            return
        self._ids.refused(event.reason or error_of(event.code).text)
        falls_back = self._config.idempotence is Idempotence.PREFERRED and not self._has_sequences()
        if event.code == ErrorCode.UNSUPPORTED_VERSION and falls_back:
            self._idempotent, self._limit = False, 1  # one in flight keeps the order, at least
            self._change(ProducerCue.UNSUPPORTED)
            self._out.append(ev.NotIdempotent(event.reason))
            return
        row = reaction_to_producer_id(event.code)
        if row.reaction is ProduceReaction.RETRY:
            self._ids.retry_at = self._now + self._config.backoff_s(self._ids.attempts, self._random)
        else:
            self._fail_for_good(reactions.no_producer_id(event.code, event.reason, row, self._config.requester))

    def _has_sequences(self) -> bool:
        return any(queue.identity != NO_IDENTITY for queue in self._partitions.values())

    def _begin_reset(self, queue: PartitionQueue) -> None:
        """Start to reset the sequence of a partition: it sends no new batch until it has another identity.

        A transaction has only one: its task fails with the batch, and the driver aborts it.
        """
        if self._transaction is not None:
            return
        queue.begin_reset()
        self._resetting[queue.partition] = queue
        if self._state is ProducerState.READY:
            self._change(ProducerCue.BROKEN)

    def _reset_sequences(self) -> None:
        """Reset the sequences of the partitions whose batches are all resolved or rejected."""
        if self._state is ProducerState.READY and self._resetting:
            self._change(ProducerCue.BROKEN)  # the producer got an id in the meantime
        if self._state is not ProducerState.BUMPING:
            return
        for queue in [queue for queue in self._resetting.values() if queue.may_reset]:
            if not self._ids.renew(queue.identity):
                self._change(ProducerCue.ID_SPENT)
                return
            queue.reset(self._ids.current, self._now)
            del self._resetting[queue.partition]
        if not self._resetting:
            self._change(ProducerCue.BUMPED)

    # -- the fate of a batch ------------------------------------------------------------------------------------------

    def _resolved(self, batch: ProducerBatch) -> None:
        self._buffered -= batch.size
        self._unresolved -= 1
        if self._partitions[batch.partition].is_empty:
            self._active.pop(batch.partition, None)

    def _deliver(self, queue: PartitionQueue, batch: ProducerBatch, answer: PartitionProduceResponse) -> None:
        offset = answer.base_offset if answer.error_code == ErrorCode.NONE else -1
        appended, overtaken = queue.confirm(batch, offset, self._now)
        for earlier in appended:
            self._out.append(ev.Delivered(earlier, -1, -1))
            self._resolved(earlier)
        self._out.append(ev.Delivered(batch, offset, answer.log_append_time_ms))
        self._resolved(batch)
        for earlier in overtaken:
            self._fail(queue, earlier, reactions.out_of_turn(earlier))

    def _fail(self, queue: PartitionQueue, batch: ProducerBatch, error: ProduceError) -> None:
        self._take_out(queue, batch)
        self._out.append(ev.Failed(batch, error))

    def _take_out(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Remove a batch that is not delivered."""
        queue.remove(batch)
        self._resolved(batch)
        if batch.identity != NO_IDENTITY and batch.identity == queue.identity:
            self._begin_reset(queue)  # its sequence numbers may be missing in the log

    def _fail_all(self, error: ProduceError) -> None:
        for queue in list(self._active.values()):
            for batch in list(queue):
                self._fail(queue, batch, type(error)(error.message, error.code, batch.maybe_written))

    def _fail_for_good(self, error: ProduceError) -> None:
        self._fatal = error
        self._change(ProducerCue.FATAL)
        self._resetting.clear()
        self._fail_all(error)

    def _retry(
        self, queue: PartitionQueue, batch: ProducerBatch, row: CodeReaction, answer: PartitionProduceResponse
    ) -> None:
        """Send the batch again with its sequence number, after a backoff unless the answer names the new leader."""
        most = UNEXPECTED_ATTEMPTS if row.reaction is ProduceReaction.UNEXPECTED else self._config.retries + 1
        if batch.attempts >= most:
            self._fail(queue, batch, reactions.refused(batch, batch.code, row, answer))
            return
        self._wait(queue, batch, self._now + self._config.backoff_s(batch.attempts, self._random))
        if row.reaction is ProduceReaction.METADATA:
            named = answer.current_leader
            if queue.moved_to(named.leader_id, named.leader_epoch):
                batch.retry_at = self._now
            else:
                queue.stale = True
            self._topics.refresh()

    def _wait(self, queue: PartitionQueue, batch: ProducerBatch, until: float) -> None:
        batch.state, batch.retry_at = BatchState.RETRY, until
        if queue.resetting:
            queue.begin_reset()

    def _reject(
        self, queue: PartitionQueue, batch: ProducerBatch, row: CodeReaction, answer: PartitionProduceResponse
    ) -> None:
        """Give the batch another sequence number; fail it if a broker may have it under this one."""
        if self._transaction is not None:
            self._fail(queue, batch, reactions.refused_in_transaction(batch, self._transaction))
            return
        if batch.doubtful or batch.identity == NO_IDENTITY:
            refused = reactions.refused(batch, batch.code, row, answer)
            self._fail(queue, batch, reactions.out_of_reach(batch) if queue.resetting else refused)
            return
        batch.state = BatchState.REJECTED
        self._begin_reset(queue)

    def _too_large(
        self, queue: PartitionQueue, batch: ProducerBatch, row: CodeReaction, limit: int | None = None
    ) -> None:
        if batch.count == 1:
            self._fail(queue, batch, reactions.too_large(batch, row, limit))
        else:
            batch.state, batch.full = BatchState.SPLITTING, True
            self._out.append(ev.Split(batch))

    def _out_of_order(
        self, queue: PartitionQueue, batch: ProducerBatch, row: CodeReaction, answer: PartitionProduceResponse
    ) -> None:
        if batch.followed:
            self._deliver(queue, batch, answer)  # the broker has the batch, but no longer remembers it
        elif queue.resetting:
            self._reject(queue, batch, row, answer)  # it follows a batch that has failed
        elif batch.identity != NO_IDENTITY and not batch.sent_first:
            self._wait(queue, batch, self._now)  # until the broker has the batch before it
        elif batch.identity != NO_IDENTITY and batch.doubtful:
            # A restarted broker remembers only the last batch of a producer, and rejects earlier batches that it has.
            # A broker that has lost acknowledged records rejects all later batches.
            batch.state = BatchState.UNRECOGNIZED
            self._unrecognized[queue.partition] = queue
        else:
            self._fail(queue, batch, reactions.refused(batch, batch.code, row, answer))

    def _fail_unprovable(self) -> None:
        """Fail the unrecognized batches if the broker has accepted no later batch: it has lost earlier records."""
        for partition, queue in list(self._unrecognized.items()):
            for batch in queue.unprovable:
                self._fail(queue, batch, reactions.refused(batch, batch.code, reaction_to(batch.code), None))
            if queue.is_recognized:
                del self._unrecognized[partition]

    def _answer(self, queue: PartitionQueue, batch: ProducerBatch, answer: PartitionProduceResponse) -> None:
        code = answer.error_code
        row = reaction_to(code)
        if row.reaction is ProduceReaction.DELIVERED:
            self._deliver(queue, batch, answer)
            return
        batch.doubtful |= row.appended is not Appended.NO
        batch.code, batch.cause = code, f"{error_of(code).name} ({code}): {error_of(code).text}"
        match row.reaction:
            case ProduceReaction.RETRY | ProduceReaction.METADATA | ProduceReaction.UNEXPECTED:
                self._retry(queue, batch, row, answer)
            case ProduceReaction.SPLIT:
                if code == ErrorCode.MESSAGE_TOO_LARGE:
                    self._topics.want_limit(batch.partition.topic)
                self._too_large(queue, batch, row)
            case ProduceReaction.OUT_OF_ORDER:
                self._out_of_order(queue, batch, row, answer)
            case ProduceReaction.NEW_EPOCH:
                # A leader without state of the producer has none of its batches, and accepts only sequence 0.
                batch.doubtful = False
                self._reject(queue, batch, row, answer)
            case ProduceReaction.NEW_ID:
                self._ids.fenced(batch.identity)
                self._reject(queue, batch, row, answer)
            case ProduceReaction.FAIL:
                self._fail(queue, batch, reactions.refused(batch, code, row, answer, self._config.requester))
            case ProduceReaction.FATAL:
                self._fail(queue, batch, reactions.refused(batch, code, row, answer, self._config.requester))
                if self._fatal is None:
                    self._fail_for_good(reactions.producer_refused(batch.node, code, row, self._config.requester))

    # -- answers ------------------------------------------------------------------------------------------------------

    def _take(self, token: int) -> PendingProduce | None:
        """Return the request and remove it from the pending ones; None if it is not pending."""
        request = self._requests.pop(token, None)
        if request is not None:
            node = self._nodes[request.node]
            node.tokens.discard(token)
            node.failures = 0
        return request

    def _answered(self, event: ev.Answered) -> None:
        request = self._take(event.token)
        if request is None:
            return
        throttle = throttle_s(event.response, event.version)
        if throttle:
            node = self._nodes[request.node]
            node.muted_until = max(node.muted_until, self._now + throttle)
            for token in node.tokens:  # the broker reads requests already sent only after the throttle time
                self._requests[token].overdue_at += throttle
        endpoints = endpoints_of(event.response)
        if endpoints:
            self._out.append(ev.UseBrokers(endpoints))
        answers = answers_of(event.response, request.topic_ids)
        self._settle(request.batches, answers, _MISSING)

    def _written(self, event: ev.Written) -> None:
        request = self._take(event.token)
        if request is not None:
            self._settle(request.batches, {}, PartitionProduceResponse(base_offset=-1))

    def _settle(
        self,
        batches: Iterable[ProducerBatch],
        answers: Mapping[TopicPartition, PartitionProduceResponse],
        default: PartitionProduceResponse,
    ) -> None:
        for batch in batches:
            if batch.state is BatchState.IN_FLIGHT:  # else its delivery.timeout.ms has passed meanwhile
                self._answer(self._partitions[batch.partition], batch, answers.get(batch.partition, default))

    def _disconnected(self, event: ev.Disconnected) -> None:
        node = self._nodes.setdefault(event.node, Node())
        node.failures += 1
        node.retry_at = self._now + self._config.backoff_s(node.failures, self._random)
        row = CodeReaction(ProduceReaction.RETRY, Appended.MAYBE)
        answer = PartitionProduceResponse()
        tokens, node.tokens = sorted(node.tokens), set()
        for token in tokens:
            for batch in self._requests.pop(token).batches:
                if batch.state is not BatchState.IN_FLIGHT:
                    continue
                batch.doubtful |= event.written
                batch.code = ErrorCode.NETWORK_EXCEPTION
                batch.cause = f"connection to broker {event.node} lost: {event.reason}"
                self._retry(self._partitions[batch.partition], batch, row, answer)
        self._topics.refresh()

    # -- time ---------------------------------------------------------------------------------------------------------

    def _watch_requests(self) -> None:
        """Close connections with a timed-out request: a broker answers the requests of one connection in order."""
        for node in sorted({r.node for r in self._requests.values() if r.overdue_at <= self._now}):
            reason = f"no answer within request.timeout.ms={self._config.request_timeout_ms}"
            self._out.append(ev.Disconnect(node, reason))
            self._disconnected(ev.Disconnected(node, reason))

    def _expire(self) -> None:
        delivery, block = self._config.delivery_timeout_ms / 1000, self._config.max_block_ms / 1000
        for queue in list(self._active.values()):
            limit = min(delivery, block) if self._is_missing(queue) else delivery
            for batch in list(queue) if self._now >= queue.oldest.created_at + limit else ():
                if self._now >= batch.created_at + delivery:
                    self._fail(queue, batch, reactions.timed_out(batch, self._config, self._waits_for(queue)))
                elif self._is_missing(queue) and self._now >= batch.created_at + block:
                    self._fail(queue, batch, reactions.unknown_partition(batch, self._config, None))
                else:
                    break  # later batches are younger

    def _warn_of_late_batches(self) -> None:
        if self._now < self._late_at:
            return
        first = min(self._active.values(), key=lambda queue: queue.oldest.created_at, default=None)
        self._late_at = (self._now if first is None else first.oldest.created_at) + _LATE_S
        if first is not None and self._now >= self._late_at:
            late = sum(self._now >= queue.oldest.created_at + _LATE_S for queue in self._active.values())
            cause = first.oldest.cause or self._waits_for(first)
            self._out.append(ev.Warn(reactions.late(first.oldest, late, self._now, self._config, cause)))
            self._late_at = self._now + _LATE_S

    def _is_missing(self, queue: PartitionQueue) -> bool:
        """Whether the topic has not appeared yet. If only the partition is missing, it is in `_absent`."""
        return not queue.exists and queue.partition not in self._absent

    def _waits_for(self, queue: PartitionQueue) -> str:
        """Return why a batch has not been sent."""
        if self._state is ProducerState.ASKING_ID:
            return self._ids.reason or "no producer id so far"
        if queue.leader == NO_LEADER:
            return f"the partition has no leader{self._topics.reason and f' ({self._topics.reason})'}"
        return f"earlier requests to broker {queue.leader} were not answered in time"

    def _wake_at(self) -> float:
        """Return the earliest time at which something is due; infinity if the producer only waits for the shell."""
        config, now, unsettled = self._config, self._now, False
        delivery, linger, block = config.delivery_timeout_ms / 1000, config.linger_ms / 1000, config.max_block_ms / 1000
        times = [r.overdue_at for r in self._requests.values()]
        times += [since + block for _, since in self._absent.values()]
        for queue in self._active.values():
            limit = min(delivery, block) if self._is_missing(queue) else delivery
            times.append(queue.oldest.created_at + limit)
            times += [batch.retry_at for batch in queue.outstanding if batch.state is BatchState.RETRY]
            unsettled |= queue.stale or queue.leader == NO_LEADER
            if queue.queue:
                times.append(queue.queue[0].created_at + linger)
        for node in self._nodes.values():
            times += (node.muted_until, node.retry_at)
        if self._active:
            times.append(self._late_at)
        times.append(self._topics.wake_at(self._waiting_topics(), unsettled))
        if self._state is ProducerState.ASKING_ID and not self._ids.pending:
            times.append(self._ids.retry_at)
        return min([time for time in times if time > now], default=_NEVER)

    # -- requests -----------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        """Send the batches that order, brokers and linger time allow."""
        by_node: dict[int, deque[PartitionQueue]] = {}
        for queue in self._active.values():
            if queue.leader != NO_LEADER and not queue.stale:
                by_node.setdefault(queue.leader, deque()).append(queue)
        for node_id, queues in by_node.items():
            node = self._nodes.setdefault(node_id, Node())
            while len(node.tokens) < self._config.max_in_flight and node.available_at() <= self._now:
                batches = self._take_batches(queues)
                if not batches:
                    break
                self._send_batches(node_id, node, batches)

    def _take_batches(self, queues: deque[PartitionQueue]) -> tuple[ProducerBatch, ...]:
        """Take at most one batch of each partition, up to `max.request.size`, and move these partitions to the end."""
        taken: list[ProducerBatch] = []
        size = 0
        for _ in range(len(queues)):
            queue = queues[0]
            batch = self._next(queue)
            if batch is not None:
                if taken and size + batch.size > self._config.max_request_size:
                    break
                size += batch.size
                queue.sent(batch)
                taken.append(batch)
                self._active[queue.partition] = self._active.pop(queue.partition)
            queues.rotate(-1)
        return tuple(taken)

    def _next(self, queue: PartitionQueue) -> ProducerBatch | None:
        """Return the batch of a partition to send now. Records above `max.request.size` fail."""
        if self._idempotent and queue.identity == NO_IDENTITY:
            queue.identity = self._ids.current
            if queue.identity == NO_IDENTITY:
                return None
        next_of = queue.next_in_sequence if self._idempotent else queue.next_in_order
        while (batch := next_of(self._limit, self._now)) is not None:
            if batch.state is BatchState.RETRY:
                return batch
            if not (batch.full or self._flushing or not self.has_room or self._lingered(batch)):
                return None
            if batch.size <= self._config.max_request_size:
                return batch
            self._too_large(queue, batch, reaction_to(ErrorCode.MESSAGE_TOO_LARGE), self._config.max_request_size)
        return None

    def _lingered(self, batch: ProducerBatch) -> bool:
        return self._now >= batch.created_at + self._config.linger_ms / 1000

    def _send_batches(self, node_id: int, node: Node, batches: tuple[ProducerBatch, ...]) -> None:
        token = next(self._tokens)
        ids = dict(self._topics.ids({batch.partition.topic for batch in batches}))
        timeout_ms = self._config.request_timeout_ms
        self._requests[token] = PendingProduce(node_id, batches, ids, self._now + timeout_ms / 1000)
        node.tokens.add(token)
        self._out.append(ev.Send(node_id, token, batches, self._config.acks, timeout_ms, ids, self._transaction))

    _HANDLERS: ClassVar[Mapping[type[Any], Callable[..., None]]] = {
        ev.FindTopics: _find_topics,
        ev.Append: _append,
        ev.Flush: _flush,
        ev.Abandon: _abandon,
        ev.Answered: _answered,
        ev.Written: _written,
        ev.Disconnected: _disconnected,
        ev.MetadataRead: _metadata_read,
        ev.MetadataFailed: _metadata_failed,
        ev.ProducerIdGiven: _id_given,
        ev.ProducerIdRefused: _id_refused,
        ev.SplitInto: _split,
        ev.Rerouted: _rerouted,
        ev.Tick: _tick,
    }
