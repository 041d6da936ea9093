"""The producer of Kafka 0.7 as a state machine without sockets and clocks.

A broker of 0.7 never answers a PRODUCE. So each one is followed by an OFFSETS on the same connection. A broker handles
requests in order, so the answer shows that the broker has read the PRODUCE without closing the connection. That is not
an acknowledgement: the broker drops messages above its `max.message.size` without an error, and loses unflushed
messages if its machine fails.

- Without `verify` a message set is sent once. If the connection is lost before the answer, the broker may have the set
  or not: the set fails, with an error that says so (at most once, never silently).
- With `verify` the log is read back from its end before the write. A set is delivered when its bytes are found. After a
  lost connection nothing is sent to the partition until the log shows which sets are missing. These are sent again in
  their order. If a set appears in the log later than that, it is a duplicate (at least once).
- If a broker cannot be reached, movable sets go to another broker. The other sets wait until `delivery_timeout_ms`.

Sources: the wiki page "Writing a Driver for Kafka"; DefaultEventHandler, ProducerPool and SyncProducer of 0.7.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from streamgroup.backoff import Random, backoff_s
from streamgroup.errors import DecodeError, ProduceError
from streamgroup.kafka.producer import kafka07_parts
from streamgroup.kafka.producer.kafka07 import Kafka07Config, fits, produce_request, topic07
from streamgroup.kafka.producer.kafka07_parts import (
    Abandon07,
    Action07,
    Answered07,
    Append07,
    ConnectionLost07,
    Delivered07,
    Drop07,
    Event07,
    Failed07,
    MessageSet,
    MessageSetState,
    Node07,
    Partition07,
    Pending07,
    Purpose07,
    Refresh07,
    Send07,
    SnapshotRead07,
    Tick07,
    WakeAt07,
    read_back,
)
from streamgroup.kafka.wire.kafka07 import (
    LATEST_TIME,
    ErrorCode07,
    FetchRequest07,
    FetchResponse07,
    OffsetsRequest07,
    OffsetsResponse07,
    Request07,
)
from streamgroup.logformat import KAFKA07_LOG
from streamgroup.model import ClusterSnapshot, TopicPartition

_READ_INTERVAL_S = 0.1
"""Seconds between two reads of a log that has nothing new."""
_MOST_HANG_UPS = 3
"""Lost connections in a row after which a set fails: a broker closes the connection at an OFFSETS of an unknown
partition, but connections are lost for other reasons too."""


class Kafka07Producer:
    """The state machine that writes message sets to the broker-partitions of a Kafka 0.7 cluster.

    The caller (the *shell*) owns sockets and clock: `kafka07_parts.py` has the events and actions of `step`.
    """

    def __init__(self, config: Kafka07Config, snapshot: ClusterSnapshot, random: Random) -> None:
        self._config = config
        self._random = random
        self.snapshot = snapshot
        """The brokers and topics as they were read last."""
        self.buffered = 0
        """Bytes of the sets that are not resolved."""
        self._partitions: dict[TopicPartition, Partition07] = {}
        self._nodes: dict[int, Node07] = {}
        self._pending: dict[int, Pending07] = {}
        self._next_token = 0
        self._next_number = 0
        self._now = float("-inf")
        self._actions: list[Action07] = []

    def step(self, event: Event07, now: float) -> list[Action07]:
        """Handle one event at the time `now`, and return the actions for the shell."""
        self._now, self._actions = now, []
        match event:
            case Append07(sets):
                self._append(sets)
            case Answered07():
                self._answered(event)
            case ConnectionLost07(node, reason, unsent):
                self._lost(node, reason, unsent)
            case SnapshotRead07(snapshot):
                self.snapshot = snapshot
            case Abandon07(reason):
                self._fail_all(partial(kafka07_parts.abandoned, reason=reason))
            case Tick07():
                pass
        self._time_out()
        self._move()
        self._send_all()
        if (wake := self._wake_at()) is not None:
            self._actions.append(WakeAt07(wake))
        return self._actions

    @property
    def idle(self) -> bool:
        """Whether every message set is delivered or failed."""
        return not self.buffered

    # -- events -------------------------------------------------------------------------------------------------------

    def _append(self, sets: Iterable[MessageSet]) -> None:
        for each in sets:
            if not each.size:
                raise ValueError(f"an empty message set for {KAFKA07_LOG.name(each.partition)}")
            each.number, each.created_at = self._next_number, self._now
            self._next_number += 1
            self.buffered += each.size
            partition = self._partition(each.partition)
            if not partition.asked and not partition.written and not partition.queue:
                partition.position = None  # other producers may have written much since, which need not be read
            partition.queue.append(each)

    def _answered(self, event: Answered07) -> None:
        pending = self._pending.pop(event.token, None)
        if pending is None:
            return
        node, partition = self._node(pending.node), self._partition(pending.partition)
        node.failures = partition.hang_ups = 0
        if partition.doubtful and partition.reached_at is None:
            partition.reached_at = self._now
        response = event.response
        if pending.purpose is Purpose07.PRODUCE:
            node.in_flight -= 1
            self._handled(pending.sets)
            return
        partition.asked = False
        if isinstance(response, FetchResponse07):
            self._read(partition, response)
        elif isinstance(response, OffsetsResponse07):
            end = response.offsets[0] if response.offsets else 0
            if pending.purpose is Purpose07.START:
                partition.position = end
            else:
                partition.end = end
                self._conclude(partition)

    def _handled(self, sets: Iterable[MessageSet]) -> None:
        for each in sets:
            if each.state is not MessageSetState.SENT:  # `verify` has found it in the log before the answer
                continue
            each.state, each.handled_at = MessageSetState.HANDLED, self._now
            if not self._config.verify:
                self._deliver(each, None)

    def _lost(self, node: int, reason: str, unsent: frozenset[int] = frozenset()) -> None:
        """Queue the unsent sets again, and fail the others, or let `verify` look for them."""
        broker = self._node(node)
        broker.reason, broker.in_flight = reason, 0
        broker.failures += 1
        config = self._config
        broker.retry_at = self._now + backoff_s(
            broker.failures, config.retry_backoff_ms, config.retry_backoff_max_ms, self._random
        )
        back: list[MessageSet] = []
        for token in [token for token, pending in self._pending.items() if pending.node == node]:
            pending = self._pending.pop(token)
            if token not in unsent:
                self._partition(pending.partition).hang_ups += pending.purpose is Purpose07.START
                continue
            back += [each for each in pending.sets if each.state is MessageSetState.SENT]
        for each in sorted(back, key=lambda each: each.number, reverse=True):
            self._take_back(each)
        for partition in [each for each in self._partitions.values() if each.node == node]:
            partition.asked, partition.end, partition.reached_at = False, None, None
            for each in partition.unresolved():
                each.cause = reason
            partition.doubtful = bool(partition.written)
            if not self._config.verify:
                self._fail(partition, partition.written, kafka07_parts.unconfirmed)
            if partition.hang_ups >= _MOST_HANG_UPS:
                self._fail(partition, partition.unresolved(), kafka07_parts.refused)
                partition.hang_ups = 0
        self._actions.append(Refresh07())

    # -- reading back -------------------------------------------------------------------------------------------------

    def _read(self, partition: Partition07, response: FetchResponse07) -> None:
        """Look for the partition's sets in a part of its log."""
        assert partition.position is not None
        if response.error:
            lost = response.error == ErrorCode07.OFFSET_OUT_OF_RANGE
            fail = kafka07_parts.log_lost if lost else kafka07_parts.unreadable
            self._fail(partition, partition.written, partial(fail, position=partition.position))
            partition.position = None
            return
        try:
            found, position, wanted = read_back(response.records, partition.position, partition.written)
        except DecodeError as error:
            self._fail(partition, partition.written, partial(kafka07_parts.damaged, cause=str(error)))
            partition.position = None
            return
        progress = position > partition.position
        # A message whose first bytes equal a set's, and which is shorter at the end of the log, is another message.
        if wanted and wanted <= partition.wanted and not progress:
            position += 4 + int.from_bytes(response.records[:4], "big")
            wanted, progress = 0, True
        partition.position, partition.wanted = position, wanted
        partition.read_at = self._now if progress or wanted else self._now + _READ_INTERVAL_S
        for each, at in found:
            self._resolve(partition, each)
            self._actions.append(Delivered07(each, at))
        self._conclude(partition)

    def _conclude(self, partition: Partition07) -> None:
        """Send missing sets again or fail them, once the log is read up to its end after the wait for a flush."""
        if partition.end is None or partition.position is None or partition.position < partition.end:
            return
        missing = self._overdue(partition)
        again = [each for each in missing if partition.doubtful and each.attempts <= self._config.retries]
        for each in reversed(again):
            self._take_back(each)
        given_up = [each for each in missing if each not in again]
        self._fail(partition, given_up, partial(kafka07_parts.missing, start=partition.position, end=partition.end))
        partition.end = None

    def _overdue(self, partition: Partition07) -> list[MessageSet]:
        """Return the sets that should be in the log by now, in their order."""
        limit = self._now - self._config.verify_wait_ms / 1000
        if partition.doubtful:
            is_due = partition.reached_at is not None and partition.reached_at <= limit
            return list(partition.written) if is_due else []
        return [
            each for each in partition.written if each.state is MessageSetState.HANDLED and each.handled_at <= limit
        ]

    # -- sending ------------------------------------------------------------------------------------------------------

    def _send_all(self) -> None:
        for partition in self._partitions.values():
            if self._config.verify:
                self._ask(partition)
        for node in sorted({each.node for each in self._partitions.values() if each.queue}):
            while self._send(self._node(node)):
                pass

    def _ask(self, partition: Partition07) -> None:
        """Send the next request of `verify` for a partition, if one is due."""
        node = self._node(partition.node)
        if partition.asked or not self._is_open(node) or not (partition.queue or partition.written):
            return
        latest = OffsetsRequest07(partition.tp.topic, partition.number, LATEST_TIME, 1)
        if partition.position is None:
            # One at a time: the broker closes the connection at an unknown partition, which is then this one.
            pending = {each.node for each in self._pending.values() if each.purpose is Purpose07.START}
            if node.node not in pending:
                self._request(partition, Purpose07.START, latest)
        elif not partition.to_read or self._now < partition.read_at:
            return
        elif partition.end is None and self._overdue(partition):
            self._request(partition, Purpose07.END, latest)
        else:
            size = max(self._config.fetch_size, partition.wanted)
            fetch = FetchRequest07(partition.tp.topic, partition.number, partition.position, size)
            self._request(partition, Purpose07.READ, fetch)

    def _request(self, partition: Partition07, purpose: Purpose07, request: Request07) -> None:
        partition.asked = True
        self._send_to(partition.node, purpose, (request,), partition.tp)

    def _send(self, node: Node07) -> bool:
        """Send one request with the oldest message sets of a broker. Return whether there were any."""
        if not self._is_open(node) or node.in_flight >= self._config.max_in_flight:
            return False
        ready = [each for each in self._partitions.values() if each.node == node.node and self._may_send(each)]
        sets: list[MessageSet] = []
        size = 0
        while ready:
            partition = min(ready, key=lambda each: each.queue[0].number)
            head = partition.queue[0]
            if not fits(len(sets), size, head.size, self._config):
                break
            partition.queue.popleft()
            partition.written.append(head)
            head.state = MessageSetState.SENT
            head.attempts += 1
            sets.append(head)
            size += head.size
            if not partition.queue:
                ready.remove(partition)
        if not sets:
            return False
        last = self._partition(sets[-1].partition)
        handled = OffsetsRequest07(last.tp.topic, last.number, LATEST_TIME, 1)
        produce = produce_request([(each.partition, each.messages) for each in sets])
        node.in_flight += 1
        self._send_to(node.node, Purpose07.PRODUCE, (produce, handled), last.tp, tuple(sets))
        return True

    def _may_send(self, partition: Partition07) -> bool:
        if not partition.queue or partition.doubtful:
            return False
        return partition.position is not None or not self._config.verify

    def _send_to(
        self,
        node: int,
        purpose: Purpose07,
        requests: tuple[Request07, ...],
        tp: TopicPartition,
        sets: tuple[MessageSet, ...] = (),
    ) -> None:
        token, self._next_token = self._next_token, self._next_token + 1
        until = self._now + self._config.request_timeout_ms / 1000
        self._pending[token] = Pending07(node, purpose, until, tp, sets)
        self._actions.append(Send07(node, token, requests))

    def _is_open(self, node: Node07) -> bool:
        return self._now >= node.retry_at and node.node in self.snapshot.brokers

    # -- brokers that cannot be reached -------------------------------------------------------------------------------

    def _move(self) -> None:
        """Move unsent movable sets away from brokers that cannot be reached."""
        for partition in list(self._partitions.values()):
            if not partition.queue or not self._is_away(partition.node):
                continue
            movable = [each for each in partition.queue if each.movable]
            others = self._others(partition.tp) if movable else []
            if not others:
                continue
            for each in movable:
                partition.queue.remove(each)
                each.partition = others[int(self._random.random() * len(others))]
                self._partition(each.partition).queue.append(each)

    def _others(self, tp: TopicPartition) -> list[TopicPartition]:
        """Return the topic's partitions at brokers that can be reached."""
        if not self.snapshot.brokers:
            return []
        infos = topic07(self.snapshot, tp.topic).partitions
        return [TopicPartition(tp.topic, each.partition) for each in infos if not self._is_away(each.leader)]

    def _is_away(self, node: int) -> bool:
        # After the backoff the broker is tried again. Otherwise it would never get records without a key.
        return not self._is_open(self._node(node))

    # -- time ---------------------------------------------------------------------------------------------------------

    def _time_out(self) -> None:
        overdue = {pending.node for pending in self._pending.values() if self._now >= pending.until}
        for node in sorted(overdue):
            reason = f"no answer within request.timeout.ms={self._config.request_timeout_ms}"
            self._actions.append(Drop07(node, reason))
            self._lost(node, reason)
        limit = self._now - self._config.delivery_timeout_ms / 1000
        for partition in self._partitions.values():
            if partition.oldest <= limit:
                late = [each for each in partition.unresolved() if each.created_at <= limit]
                where = self._whereabouts(partition)
                self._fail(partition, late, partial(kafka07_parts.timed_out, config=self._config, waits_for=where))

    def _whereabouts(self, partition: Partition07) -> str:
        """Return the reason why a partition's sets wait."""
        node = self._node(partition.node)
        if node.node not in self.snapshot.brokers:
            return f"broker {node.node} is not registered in ZooKeeper"
        if node.failures:
            return f"broker {self.snapshot.brokers[node.node]} cannot be reached: {node.reason}"
        return f"broker {self.snapshot.brokers[node.node]} has not handled them"

    def _wake_at(self) -> float | None:
        times = [pending.until for pending in self._pending.values()]
        for partition in self._partitions.values():
            if partition.queue or partition.written:
                times.append(partition.oldest + self._config.delivery_timeout_ms / 1000)
                node = self._node(partition.node)
                if node.retry_at > self._now:
                    times.append(node.retry_at)
                elif self._config.verify and not partition.asked and partition.to_read:
                    times.append(partition.read_at)
        return min(times, default=None)

    # -- message sets -------------------------------------------------------------------------------------------------

    def _take_back(self, each: MessageSet) -> None:
        """Put a set that was sent back to the head of the queue."""
        partition = self._partition(each.partition)
        partition.written.remove(each)
        partition.doubtful = partition.doubtful and bool(partition.written)
        each.state = MessageSetState.QUEUED
        partition.queue.appendleft(each)

    def _deliver(self, each: MessageSet, position: int | None) -> None:
        self._resolve(self._partition(each.partition), each)
        self._actions.append(Delivered07(each, position))

    def _fail(
        self, partition: Partition07, sets: Iterable[MessageSet], error_of: Callable[[MessageSet], ProduceError]
    ) -> None:
        for each in tuple(sets):
            error = error_of(each)
            self._resolve(partition, each)
            self._actions.append(Failed07(each, error))

    def _fail_all(self, error_of: Callable[[MessageSet], ProduceError]) -> None:
        for partition in self._partitions.values():
            self._fail(partition, partition.unresolved(), error_of)

    def _resolve(self, partition: Partition07, each: MessageSet) -> None:
        (partition.queue if each.state is MessageSetState.QUEUED else partition.written).remove(each)
        partition.doubtful = partition.doubtful and bool(partition.written)
        each.state = MessageSetState.RESOLVED
        self.buffered -= each.size

    def _partition(self, tp: TopicPartition) -> Partition07:
        return self._partitions.setdefault(tp, Partition07(tp))

    def _node(self, node: int) -> Node07:
        return self._nodes.setdefault(node, Node07(node))

    def __str__(self) -> str:
        waiting = [KAFKA07_LOG.name(tp) for tp, each in self._partitions.items() if each.queue or each.written]
        return f"producer of Kafka 0.7, waiting for {', '.join(waiting) or 'nothing'}"
