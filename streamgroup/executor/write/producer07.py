"""The producer of a task for Kafka 0.7: runs the state machine of `kafka/producer/kafka07_machine.py`.

**Kafka 0.7 acknowledges nothing.** A broker never answers a PRODUCE. The producer sends an OFFSETS request after each
PRODUCE. The response shows that the broker has read the PRODUCE. With `verify` the producer also reads the logs back
and looks for the records: only that shows that they are written.

Tasks do not read ZooKeeper: they get brokers and topics from the driver. A caller that can read ZooKeeper, such as the
command line, passes `refresh`, and reports changes with `update`.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Self

from streamgroup.backoff import Random
from streamgroup.errors import EncodeError, ProduceError, RecordTooLargeError, StreamGroupError
from streamgroup.executor.write.producer import TaskClock
from streamgroup.executor.write.written import WriteTotals
from streamgroup.kafka.net.poller import (
    ConnectionIdle,
    ConnectionLost,
    ConnectionReady,
    Handle,
    Poller,
    ResponseReceived,
)
from streamgroup.kafka.producer.kafka07 import Kafka07Config, message_sets07, require_partition, topic07
from streamgroup.kafka.producer.kafka07_machine import Kafka07Producer
from streamgroup.kafka.producer.kafka07_parts import (
    Abandon07,
    Answered07,
    Append07,
    ConnectionLost07,
    Delivered07,
    Drop07,
    Event07,
    Failed07,
    MessageSet,
    Refresh07,
    Send07,
    SnapshotRead07,
    Tick07,
    WakeAt07,
)
from streamgroup.kafka.records.encode import Encoder, RecordColumns, RecordFormat
from streamgroup.logformat import KAFKA07_LOG
from streamgroup.model import ClusterSnapshot, Dialect, TopicInfo, TopicPartition
from streamgroup.options.types import ClientOptions

log = logging.getLogger(__name__)


class Kafka07TaskProducer:
    """Writes message sets to Kafka 0.7. One thread and one task at a time use it.

        with Kafka07TaskProducer(snapshot, Kafka07Config(verify=True), options) as producer:
            producer.write(TopicPartition("events", 10002), columns)
            producer.flush()

    Later tasks may use the same producer with its connections. If a message set fails, the producer gives up all
    pending records: write them again, which may write some of them twice. `close` it at the end.
    """

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        config: Kafka07Config,
        options: ClientOptions,
        *,
        refresh: Callable[[], ClusterSnapshot] | None = None,
        chance: Random | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a producer for the brokers and topics of `snapshot`.

        `refresh()` returns a new snapshot; it is called if a broker cannot be reached.
        """
        self._config = config
        self._refresh = refresh
        self._clock = TaskClock(clock)
        self._machine = Kafka07Producer(config, snapshot, chance or random.Random())
        self._poller = Poller(options, self._clock, Dialect.KAFKA07)
        self._handles: dict[int, Handle] = {}
        self._connected: set[Handle] = set()
        self._tokens: dict[tuple[Handle, int], int] = {}
        self._unsent: set[int] = set()
        """Tokens of requests on connections whose end is among the events that are being handled."""
        self._wake_at: float | None = None
        self._errors: list[ProduceError] = []
        self.written = WriteTotals()
        """The records that were delivered, as far as Kafka 0.7 shows, and the bytes of their message sets."""

    def begin(self) -> None:
        """Begin a task, and remove connections that were closed since the last task."""
        self.written = WriteTotals()
        self._serve(0)

    @property
    def is_usable(self) -> bool:
        """Whether the next task may use this producer."""
        return self._machine.idle and not self._errors

    @property
    def buffered(self) -> int:
        """Bytes of the message sets that are neither delivered nor failed."""
        return self._machine.buffered

    def topic(self, topic: str) -> TopicInfo:
        """Return the broker-partitions that records of `topic` may go to (see `topic07`).

        Raises ProduceError, UnknownTopicError.
        """
        return topic07(self._machine.snapshot, topic)

    def require(self, partition: TopicPartition) -> None:
        """Raise UnknownTopicError if `partition` cannot be written to (see `require_partition`)."""
        require_partition(self._machine.snapshot, partition)

    def update(self, snapshot: ClusterSnapshot) -> None:
        self._step(SnapshotRead07(snapshot))

    def write(self, partition: TopicPartition, columns: RecordColumns, *, movable: bool = True) -> None:
        """Write the values of `columns` to `partition`, in their order, with the compression of the config.

        If `movable` is True, sets of records without a key may be written to another broker-partition of the topic. It
        is False if the column `partition` selects the partition. Raises EncodeError for null values and for headers,
        which messages of 0.7 cannot have, RecordTooLargeError, and the errors of `append`. Error messages contain the
        partition.
        """
        codec = self._config.codec
        level = None if codec == "none" else self._config.compression_level
        encoder = Encoder(RecordFormat.V07_1, codec, level)

        def encode(start: int, stop: int) -> MessageSet:
            encoded = encoder.encode(columns, start, stop)
            keys = None if columns.key is None else columns.key.slice(start, stop - start)
            unkeyed = keys is None or keys.null_count == len(keys)
            return MessageSet(partition, encoded.sealed(), encoded.count, movable and unkeyed)

        sets = message_sets07(encoder.sizes(columns), codec != "none", encode, self._config)
        for each in _naming(partition, sets):
            self.append([each])

    def append(self, sets: Iterable[MessageSet]) -> None:
        """Send message sets. Sets of one partition are sent in this order. Waits while `buffer_memory` is full.

        Raises UnknownTopicError for a broker-partition that does not exist, and the error of any set that failed.
        """
        new = tuple(sets)
        for each in new:
            self.require(each.partition)
        self._clock.resume()
        if self._machine.idle:
            self._serve(0)  # a connection may have ended since it was used last
        self._step(Append07(new))
        self._serve(0)
        self._raise_error()
        while self._machine.buffered > self._config.buffer_memory:
            self._serve(None)
            self._raise_error()
        if not self._machine.idle:
            self._clock.pause()

    def flush(self) -> None:
        """Wait until every message set is delivered. Raises the error of any set that failed.

        With `verify` this also waits until the brokers have flushed, which takes seconds (see
        `Kafka07Config.verify_wait_ms`).
        """
        self._clock.resume()
        while not self._machine.idle:
            self._serve(None)
            self._raise_error()

    def close(self) -> None:
        """Close all connections, and give up the records that are not delivered."""
        self._poller.close(reset=not self._machine.idle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the loop -----------------------------------------------------------------------------------------------------

    def _serve(self, timeout: float | None) -> None:
        """Handle what arrives within `timeout` seconds, or, with None, until the machine's next timer."""
        if timeout is None and self._wake_at is not None:
            timeout = max(0.0, self._wake_at - self._clock())
        events = self._poller.wait(timeout)
        for event in events:
            match event:
                case ConnectionReady(handle):
                    self._connected.add(handle)
                case ResponseReceived(handle, number, response):
                    token = self._tokens.pop((handle, number), None)
                    if token is not None:
                        self._step(Answered07(token, response))
                case ConnectionLost(handle, error):
                    self._lost(handle, error)
                case ConnectionIdle(handle) if self._handles.get(int(handle.tag)) == handle:
                    self._forget(int(handle.tag))
        self._unsent.clear()
        if not events:
            self._step(Tick07())

    def _lost(self, handle: Handle, error: StreamGroupError) -> None:
        node = int(handle.tag)
        if self._handles.get(node) == handle:
            unsent = set(self._unsent)
            if handle not in self._connected:
                unsent.update(token for (theirs, _), token in self._tokens.items() if theirs == handle)
            self._forget(node)
            self._step(ConnectionLost07(node, str(error), frozenset(unsent)))

    def _forget(self, node: int) -> Handle:
        handle = self._handles.pop(node)
        self._connected.discard(handle)
        self._tokens = {key: token for key, token in self._tokens.items() if key[0] != handle}
        return handle

    def _step(self, event: Event07) -> None:
        self._wake_at, is_stale = None, False
        for action in self._machine.step(event, self._clock()):
            match action:
                case Send07():
                    self._send(action)
                case Drop07(node, reason):
                    log.debug("resetting the connection to broker %d: %s", node, reason)
                    if node in self._handles:
                        self._poller.drop(self._forget(node), reset=True)
                case Delivered07(messages):
                    self.written.add(messages.partition, messages.count, messages.size, -1)
                case Failed07(_, error):
                    self._errors.append(error)
                case WakeAt07(at):
                    self._wake_at = at
                case Refresh07():
                    is_stale = True
        if is_stale:
            self._read_again()

    def _send(self, action: Send07) -> None:
        handle = self._handles.get(action.node)
        if handle is None:
            broker = self._machine.snapshot.brokers[action.node]
            handle = self._handles[action.node] = self._poller.connect(broker.host, broker.port, str(action.node))
        if not self._poller.has(handle):  # a later event reports its end
            self._unsent.add(action.token)
            return
        for request in action.requests:
            number = self._poller.send(handle, request)
        self._tokens[handle, number] = action.token

    def _read_again(self) -> None:
        """Read brokers and topics again, if the caller has passed `refresh`."""
        if self._refresh is None:
            return
        try:
            snapshot = self._refresh()
        except StreamGroupError as error:
            log.debug("cannot refresh the brokers, using the known ones: %s", error)
            return
        self.update(snapshot)

    def _raise_error(self) -> None:
        """Raise the error of the first set that has failed, and give up the others."""
        if not self._errors:
            return
        first = self._errors[0]
        self._step(Abandon07("other records of the task could not be written"))
        self._errors.clear()
        raise first


def _naming(partition: TopicPartition, sets: Iterator[MessageSet]) -> Iterator[MessageSet]:
    """Yield `sets`. The error for a record that cannot be encoded names the partition."""
    try:
        yield from sets
    except (EncodeError, RecordTooLargeError) as error:
        raise type(error)(f"cannot write to {KAFKA07_LOG.name(partition)}: {error}") from error
