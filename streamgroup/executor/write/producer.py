"""The producer of a task for Kafka 0.8 and later: runs the state machine of `kafka/producer/` over connections."""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, cast

import numpy as np

from streamgroup.errors import ConfigError, DeliveryTimeoutError, EncodeError, StreamGroupError
from streamgroup.executor.pools import ProducerPool
from streamgroup.executor.write.produce_links import ProduceLinks
from streamgroup.executor.write.written import WriteTotals
from streamgroup.kafka.net.requester import requester_of
from streamgroup.kafka.producer import events as ev
from streamgroup.kafka.producer.batch import ProducerBatch
from streamgroup.kafka.producer.config import Idempotence, ProducerConfig
from streamgroup.kafka.producer.machine import Producer
from streamgroup.kafka.producer.reactions import too_large_unheard
from streamgroup.kafka.producer.transaction import Transaction, add_partitions
from streamgroup.kafka.records.encode import EncodedRecords, Encoder, RecordColumns, RecordFormat
from streamgroup.kafka.records.record_columns import concat
from streamgroup.kafka.wire.messages.produce import NO_ACKS
from streamgroup.kafka.wire.primitives import Bytes
from streamgroup.model import TopicInfo, TopicPartition
from streamgroup.options.types import ClientOptions, ProducerOptions
from streamgroup.text import counted

if TYPE_CHECKING:
    from streamgroup.kafka.cluster.kafka import KafkaCluster

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class RecordSlice:
    """The records `[start, stop)` of `columns`. The columns may hold a larger batch from Spark."""

    columns: RecordColumns
    start: int
    stop: int


@dataclass(frozen=True, slots=True, eq=False)
class RecordSlices:
    """Records of one partition, in their order: the payload type of `TaskProducer`."""

    slices: tuple[RecordSlice, ...]
    count: int
    size: int
    """Their bytes as encoded, without compression."""
    names_partition: bool = False
    """Whether rows name their partition, so that the producer may not choose another one."""

    @classmethod
    def of(cls, columns: RecordColumns, start: int, stop: int, size: int, *, names_partition: bool = False) -> Self:
        """Return the records `[start, stop)` of `columns`, which take `size` bytes."""
        return cls((RecordSlice(columns, start, stop),), stop - start, size, names_partition)

    @classmethod
    def joined(cls, payloads: Sequence[RecordSlices]) -> RecordSlices:
        if len(payloads) == 1:
            return payloads[0]
        slices = tuple(each for payload in payloads for each in payload.slices)
        names_partition = any(p.names_partition for p in payloads)
        return cls(slices, sum(p.count for p in payloads), sum(p.size for p in payloads), names_partition)

    def encode(self, encoder: Encoder) -> EncodedRecords:
        """Encode the records as one batch. Raises EncodeError for records that the format cannot hold."""
        if len(self.slices) == 1:
            (only,) = self.slices
            return encoder.encode(only.columns, only.start, only.stop)
        columns = self.columns()
        return encoder.encode(columns, 0, len(columns))

    def halves(self, encoder: Encoder) -> tuple[RecordSlices, RecordSlices]:
        """Return the records as two payloads of about the same size. There are at least two records."""
        columns, named = self.columns(), self.names_partition
        sizes = np.cumsum(encoder.sizes(columns))
        total = int(sizes[-1])
        middle = min(max(int(np.searchsorted(sizes, total / 2, "right")), 1), self.count - 1)
        first = int(sizes[middle - 1])
        return (
            RecordSlices.of(columns, 0, middle, first, names_partition=named),
            RecordSlices.of(columns, middle, self.count, total - first, names_partition=named),
        )

    def columns(self) -> RecordColumns:
        return concat([each.columns.slice(each.start, each.stop - each.start) for each in self.slices])


Placed = tuple[TopicPartition, RecordSlices]
Router = Callable[[str, RecordSlices], Sequence[Placed]]
"""Returns records of a topic, each with a partition of that topic."""
_APPENDED_BYTES = 1 << 20
"""The least bytes that are appended at once. `buffer.memory` is exceeded by less than that and one payload."""
_FIRST_OF_V1 = 2
_FIRST_OF_V2 = 3
"""The versions of Produce from which on a request carries messages of magic 1, and record batches."""
_FIRST_WITH_ZSTD = 7
_NEVER = float("inf")


class TaskProducer:
    """Writes records to brokers and waits for their acknowledgements. One thread uses it.

    A worker process uses it for several tasks, with its connections, metadata and producer id. If a batch fails, the
    producer raises that error and gives up all other batches. It must then be closed.
    """

    def __init__(
        self, client: ClientOptions, options: ProducerOptions, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._options = options
        self._transaction: Transaction | None = None
        self._added: set[TopicPartition] = set()
        """The partitions that this task has added to a transaction V1."""
        self._cluster: KafkaCluster | None = None
        """The connection to the coordinator of a transaction V1."""
        self._clock = TaskClock(clock)
        self._producer = Producer(_config(client, options), random.Random())
        self._links = ProduceLinks(client, self._sealed, self._clock)
        self._encoders: dict[RecordFormat, Encoder] = {}
        self._format = RecordFormat.V2
        self._events: deque[ev.Event] = deque()
        """Events that the machine has not handled yet. All actions of one step precede the next step."""
        self._wake_at: float | None = None
        self._found: dict[str, TopicInfo] = {}
        self._failure: StreamGroupError | None = None
        self._flushed = True
        self.router: Router | None = None
        """Chooses partitions again for records whose partition is gone. A task may set it."""
        self.written = WriteTotals()
        """The records, bytes and offsets that brokers have acknowledged to this task so far."""

    # -- the task's calls ---------------------------------------------------------------------------------------------

    def begin(self, transaction: Transaction | None = None) -> None:
        """Begin a task, and remove connections that were closed since the last task.

        The records of the task belong to `transaction`. A producer writes either all of its tasks in transactions, or
        none.
        """
        self.written, self.router = WriteTotals(notes=set(self.written.notes)), None
        self._transaction, self._added = transaction, set()
        self._producer.begin_task(self._clock(), transaction)
        self._turn(0.0)

    @property
    def encoder(self) -> Encoder:
        """The encoder of the record format that was used last."""
        return self._encoder(self._format)

    def topic(self, name: str, *, again: bool = False) -> TopicInfo:
        """Return the partitions of a topic. Waits up to `max.block.ms` for its metadata.

        With `again` the metadata are read even if the topic is known. Raises ProduceError or a subclass.
        """
        known = self._producer.topic(name)
        if known is not None and not again:
            return known
        self._clock.resume()
        self._found.pop(name, None)
        self._step(ev.FindTopics((name,), again))
        self._run(lambda: name in self._found)
        return self._found.pop(name)

    def batch_size(self, topic: str) -> int:
        """Return the target size of the topic's batches in bytes."""
        return self._producer.batch_size(topic)

    def queued_bytes(self, partition: TopicPartition) -> int:
        """Return the bytes of a partition's records that are not acknowledged yet."""
        return self._producer.queued_bytes(partition)

    def append(self, payloads: Sequence[Placed]) -> None:
        """Write records, each to its partition, in this order. Waits while `buffer.memory` is full.

        Raises the ProduceError of any batch that has failed, also of a batch from an earlier call.
        """
        self._resume()
        self._add_to_transaction({partition for partition, _ in payloads})
        for part in _parts(payloads):
            self._make_room()
            self._step(ev.Append(part))
            self._turn(0.0)
        if self._producer.unresolved:
            self._clock.pause()

    def flush(self) -> None:
        """Send all records and wait until every batch is acknowledged.

        Raises the ProduceError of a batch that failed.
        """
        self._resume()
        self._flushed = False
        self._step(ev.Flush())
        self._run(lambda: self._flushed)

    def close(self) -> None:
        """Give up the records that are not acknowledged, and close the connections."""
        self._links.close()
        if self._cluster is not None:
            self._cluster.close()

    @property
    def is_usable(self) -> bool:
        """Whether the next task may use this producer."""
        return self._failure is None and not self._producer.unresolved and self._links.is_usable

    def _add_to_transaction(self, partitions: set[TopicPartition]) -> None:
        """Add new partitions to the transaction. Brokers with transactions V2 do so themselves."""
        new = partitions - self._added
        if self._transaction is None or self._transaction.is_v2 or not new:
            return
        from streamgroup.kafka.cluster.kafka import KafkaCluster  # noqa: PLC0415  (few tasks need a cluster)
        from streamgroup.kafka.cluster.transactions import TransactionRunner  # noqa: PLC0415

        if self._cluster is None:
            self._cluster = KafkaCluster(self._client)
        deadline = self._cluster.deadline(self._options.max_block_ms)
        adding = add_partitions(self._transaction, new)
        TransactionRunner(self._cluster).run(adding, "answer to AddPartitionsToTxn", deadline)
        self._added |= new

    # -- the loop -----------------------------------------------------------------------------------------------------

    def _resume(self) -> None:
        """Continue after a wait for rows, and drop connections that have ended or were idle too long."""
        self._clock.resume()
        self._raise_failure()
        self._turn(0.0)

    def _make_room(self) -> None:
        if self._producer.has_room:
            return
        until = self._clock() + self._options.max_block_ms / 1000
        self._run(lambda: self._producer.has_room or self._clock() >= until, until)
        if not self._producer.has_room:
            raise DeliveryTimeoutError(
                f"no room in buffer.memory={self._options.buffer_memory} within max.block.ms="
                f"{self._options.max_block_ms}: {counted(self._producer.unresolved, 'unresolved batch')}. Check "
                "whether the brokers keep up, or raise kafka.buffer.memory or kafka.max.block.ms"
            )

    def _run(self, is_over: Callable[[], bool], until: float = _NEVER) -> None:
        """Send and receive until `is_over`, which it also calls at the time `until`. Raises the first failure."""
        self._raise_failure()
        while not is_over():
            wake_at = min(until, _NEVER if self._wake_at is None else self._wake_at)
            self._turn(None if wake_at == _NEVER else max(0.0, wake_at - self._clock()))

    def _turn(self, timeout: float | None) -> None:
        """Handle what arrives within `timeout` seconds. Raises the first failure."""
        for event in self._links.wait(timeout):
            self._step(event)
        if self._wake_at is not None and self._clock() >= self._wake_at:
            self._step(ev.Tick())
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _step(self, event: ev.Event) -> None:
        """Let the machine handle an event, and the events that its actions cause at once."""
        self._events.append(event)
        while self._events:
            self._wake_at = None
            for action in self._producer.step(self._events.popleft(), self._clock()):
                self._carry_out(action)

    def _carry_out(self, action: ev.Action) -> None:
        match action:
            case ev.Delivered(batch, base_offset, append_time):
                self.written.add(
                    batch.partition,
                    batch.count,
                    batch.size,
                    base_offset,
                    log_append_time_ms=append_time,
                    producer=batch.identity,
                )
                batch.encoded = None
            case ev.Failed(_, error) | ev.TopicMissing(_, error):
                self._failure = self._failure or error
            case ev.WakeAt(time_):
                self._wake_at = time_
            case ev.TopicFound(topic):
                self._found[topic.name] = topic
            case ev.Split(batch):
                self._events.append(ev.SplitInto(batch, _payload(batch).halves(self.encoder)))
            case ev.LimitUnknown(topic, reason):
                self.written.notes.add(
                    f"with kafka.acks=0 a broker drops batches above max.message.bytes of topic {topic} without an "
                    f"error, and that limit cannot be read: {reason}. Set kafka.batch.size below it, or kafka.acks=1"
                )
            case ev.Warn(message):
                log.warning("%s", message)
            case ev.Reroute(batch):
                self._events.append(ev.Rerouted(batch, self._other_partitions(batch)))
            case ev.Flushed():
                self._flushed = True
            case ev.NotIdempotent(reason):
                self.written.notes.add(f"this task writes without idempotence: {reason}")
            case _:
                self._ask_brokers(action)

    def _other_partitions(self, batch: ProducerBatch) -> Sequence[Placed] | None:
        """Return the records of a batch with other partitions, or None if the rows name their partitions."""
        payload = _payload(batch)
        if self.router is None or payload.names_partition:
            return None
        return self.router(batch.partition.topic, payload)

    def _ask_brokers(self, action: ev.Action) -> None:
        match action:
            case ev.Send():
                self._links.send(action)
            case ev.Disconnect(node):
                self._links.disconnect(node)
            case ev.ReadMetadata(topics, limits):
                self._links.read_metadata(topics, limits)
            case ev.GetProducerId():
                self._links.get_producer_id()
            case ev.UseBrokers(brokers):
                self._links.use_brokers(brokers)

    # -- encoding -----------------------------------------------------------------------------------------------------

    def _sealed(self, batch: ProducerBatch, version: int) -> Bytes:
        """Return the bytes of a batch for a version of Produce, with its producer id and sequence."""
        if self._options.compression == "zstd" and version < _FIRST_WITH_ZSTD:
            raise ConfigError(
                f"cannot write {batch.partition} with kafka.compression.type=zstd: its broker is older than Kafka 2.1. "
                "Use lz4, snappy or gzip"
            )
        encoder = self._encoder(_format_of(version))
        held = cast("tuple[RecordFormat, EncodedRecords] | None", batch.encoded)
        if held is None or held[0] is not encoder.record_format:
            held = batch.encoded = (encoder.record_format, _encoded(batch, encoder))
        in_transaction = self._transaction is not None
        sealed = held[1].sealed(*batch.identity, batch.base_sequence, transactional=in_transaction)
        limit = self._producer.max_message_bytes(batch.partition.topic)
        if self._options.acks == NO_ACKS and limit is not None and len(sealed) > limit:
            raise too_large_unheard(batch, len(sealed), limit)
        return sealed

    def _encoder(self, record_format: RecordFormat) -> Encoder:
        self._format = record_format
        if record_format not in self._encoders:
            options = self._options
            self._encoders[record_format] = Encoder(record_format, options.compression, options.compression_level)
        return self._encoders[record_format]


def _parts(payloads: Sequence[Placed]) -> Iterator[Sequence[Placed]]:
    """Divide `payloads` so that each part has about `_APPENDED_BYTES`."""
    first = size = 0
    for index, (_, payload) in enumerate(payloads, 1):
        size += payload.size
        if size >= _APPENDED_BYTES:
            yield payloads[first:index]
            first, size = index, 0
    if first < len(payloads):
        yield payloads[first:]


def _payload(batch: ProducerBatch) -> RecordSlices:
    return RecordSlices.joined(cast("list[RecordSlices]", batch.payloads))


def _encoded(batch: ProducerBatch, encoder: Encoder) -> EncodedRecords:
    """Encode a batch. Raises EncodeError, which names the partition, for records that the format cannot hold."""
    try:
        return _payload(batch).encode(encoder)
    except EncodeError as error:
        raise EncodeError(f"cannot write to {batch.partition}: {error}") from error


def _format_of(version: int) -> RecordFormat:
    if version >= _FIRST_OF_V2:
        return RecordFormat.V2
    return RecordFormat.V1 if version >= _FIRST_OF_V1 else RecordFormat.V0


def _idempotence(options: ProducerOptions) -> Idempotence:
    if not options.enable_idempotence:
        return Idempotence.OFF
    return Idempotence.REQUIRED if options.require_idempotence else Idempotence.PREFERRED


def _config(client: ClientOptions, options: ProducerOptions) -> ProducerConfig:
    return ProducerConfig(
        acks=options.acks,
        idempotence=_idempotence(options),
        batch_size=options.batch_size,
        linger_ms=options.linger_ms,
        buffer_memory=options.buffer_memory,
        max_request_size=options.max_request_size,
        max_in_flight=options.max_in_flight,
        request_timeout_ms=client.request_timeout_ms,
        delivery_timeout_ms=options.delivery_timeout_ms,
        max_block_ms=options.max_block_ms,
        retries=options.retries,
        retry_backoff_ms=client.retry_backoff_ms,
        retry_backoff_max_ms=client.retry_backoff_max_ms,
        metadata_max_age_ms=client.metadata_max_age_ms,
        metadata_max_idle_ms=options.metadata_max_idle_ms,
        requester=requester_of(client),
    )


class TaskClock:
    """A monotonic clock that stops while the task waits for its rows. Returns seconds.

    During such a wait the task sends no batch and reads no response. If the time counted, `request.timeout.ms` would
    end connections whose responses have arrived, and `delivery.timeout.ms` would fail a task whose rows arrive slowly.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left_out = 0.0
        self._paused_at: float | None = None

    def __call__(self) -> float:
        return (self._clock() if self._paused_at is None else self._paused_at) - self._left_out

    def pause(self) -> None:
        if self._paused_at is None:
            self._paused_at = self._clock()

    def resume(self) -> None:
        if self._paused_at is not None:
            self._left_out += self._clock() - self._paused_at
            self._paused_at = None


def _open(key: tuple[ClientOptions, ProducerOptions]) -> TaskProducer:
    return TaskProducer(*key)


PRODUCERS = ProducerPool(_open)
"""The producers of this process for Kafka 0.8 and later."""
TRANSACTIONAL_PRODUCERS = ProducerPool(_open)
"""The producers of this process that write in transactions."""
