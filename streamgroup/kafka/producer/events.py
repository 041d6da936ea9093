"""The events that a producer handles, and the actions that it returns.

The contract of `Producer.step(event, now) -> list[Action]`: the shell carries out the actions in their order and
reports the results as events. Times are seconds of one monotonic clock.

- The shell answers a `Send` by one `Answered`, or by `Written` with acks=0. If the connection is lost or cannot be
  made, one `Disconnected` answers all pending `Send`s of the broker. The producer ignores tokens that are not pending.
- The producer watches the timeout of a request, and returns a `Disconnect` when it has passed.
- The shell answers each `GetProducerId` by `ProducerIdGiven` or `ProducerIdRefused`, each `ReadMetadata` by
  `MetadataRead` or `MetadataFailed`, each `Split` by `SplitInto`, each `Reroute` by `Rerouted`.
- Every payload that is appended ends in exactly one batch that is `Delivered` or `Failed`, unless it is rerouted.
- If anything is pending, the list of a step ends with one `WakeAt`. The shell sends a `Tick` at that time, unless
  another event comes first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from streamgroup.errors import ProduceError
from streamgroup.kafka.producer.batch import Payload, ProducerBatch
from streamgroup.kafka.wire.messages.produce import ProduceResponse
from streamgroup.model import Broker, TopicInfo, TopicPartition

# -- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FindTopics:
    """Find these topics: each is answered by `TopicFound` or, after `max.block.ms`, by `TopicMissing`.

    `again`: read their metadata again, since the known metadata lack a partition.
    """

    topics: tuple[str, ...]
    again: bool = False


@dataclass(frozen=True, slots=True)
class Append:
    """Write these records, each to its partition, in this order.

    Only a `Split` or `Reroute` divides a payload. A payload larger than `batch.size` is a batch of its own.
    """

    payloads: Sequence[tuple[TopicPartition, Payload]]


@dataclass(frozen=True, slots=True)
class Flush:
    """Send all batches without lingering. `Flushed` follows when every batch is resolved."""


@dataclass(frozen=True, slots=True)
class Abandon:
    """Fail every unresolved batch now. The producer stays usable."""

    reason: str


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to the `Send` with this token, and the API version."""

    token: int
    response: ProduceResponse
    version: int


@dataclass(frozen=True, slots=True)
class Written:
    """The request with this token is written to the socket. Reported only with acks=0, which has no answer."""

    token: int


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection to a broker is lost or could not be made: none of its pending requests gets an answer.

    `written` is False if no byte of them was sent, as when no connection could be made.
    """

    node: int
    reason: str
    written: bool = True


@dataclass(frozen=True, slots=True)
class MetadataRead:
    """The metadata of the topics `asked`; `topics` has the existing ones.

    `errors` are the error codes of topics, such as TOPIC_AUTHORIZATION_FAILED. The shell may also send the event
    without a `ReadMetadata`. For each topic of `ReadMetadata.limits`, `max_message_bytes` has the largest batch that it
    accepts, or `no_limits` the reason why that is unknown.
    """

    topics: Mapping[str, TopicInfo]
    asked: frozenset[str]
    errors: Mapping[str, int] = field(default_factory=dict)
    max_message_bytes: Mapping[str, int] = field(default_factory=dict)
    no_limits: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MetadataFailed:
    """No broker has answered."""

    reason: str


@dataclass(frozen=True, slots=True)
class ProducerIdGiven:
    """The answer to `GetProducerId`."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ProducerIdRefused:
    """InitProducerId failed. `code` is NETWORK_EXCEPTION without an answer, and UNSUPPORTED_VERSION if the broker lacks
    the API."""

    code: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SplitInto:
    """The answer to `Split`: at least two payloads with all records of the batch, in their order."""

    batch: ProducerBatch
    parts: tuple[Payload, ...]


@dataclass(frozen=True, slots=True)
class Rerouted:
    """The answer to `Reroute`: the records of the batch, each in a partition that the topic has now.

    None if the rows set the partition: the batch then fails.
    """

    batch: ProducerBatch
    payloads: Sequence[tuple[TopicPartition, Payload]] | None


@dataclass(frozen=True, slots=True)
class Tick:
    """The time of the last `WakeAt` has come. A tick at another time is harmless."""


Event = (
    FindTopics
    | Append
    | Flush
    | Abandon
    | Answered
    | Written
    | Disconnected
    | MetadataRead
    | MetadataFailed
    | ProducerIdGiven
    | ProducerIdRefused
    | SplitInto
    | Rerouted
    | Tick
)

# -- actions ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Send one Produce request with these batches, at most one for each partition (`requests.py` builds it).

    The shell seals each batch with its `identity` and `base_sequence` at this moment. `topic_ids` has the topics whose
    id is known.
    """

    node: int
    token: int
    batches: tuple[ProducerBatch, ...]
    acks: int
    timeout_ms: int
    topic_ids: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the connection to a broker that has not answered in time. The producer needs no `Disconnected` for it."""

    node: int
    reason: str


@dataclass(frozen=True, slots=True)
class ReadMetadata:
    """Read the metadata of these topics from any broker. The request may create missing topics.

    For the topics of `limits`, read the largest batch that they accept too.
    """

    topics: frozenset[str]
    limits: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class GetProducerId:
    """Send InitProducerId to any broker (`requests.init_producer_id`)."""


@dataclass(frozen=True, slots=True)
class UseBrokers:
    """Addresses of new leaders, from an answer (KIP-951)."""

    brokers: tuple[Broker, ...]


@dataclass(frozen=True, slots=True)
class TopicFound:
    """A topic of `FindTopics`, and its partitions."""

    topic: TopicInfo


@dataclass(frozen=True, slots=True)
class TopicMissing:
    """A topic of `FindTopics` that did not appear in time, or that the user is not authorized for."""

    topic: str
    error: ProduceError


@dataclass(frozen=True, slots=True)
class Delivered:
    """The broker has the batch, as far as `acks` requires.

    `base_offset` is -1 if the broker does not report it: with acks=0, and for a repetition that it no longer remembers.
    `log_append_time_ms` is -1 if the topic stores the timestamps of the producer (CreateTime).
    """

    batch: ProducerBatch
    base_offset: int
    log_append_time_ms: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The batch has failed. If `error.maybe_written`, a broker may have it nevertheless."""

    batch: ProducerBatch
    error: ProduceError


@dataclass(frozen=True, slots=True)
class Split:
    """Split the batch, which is too large, into parts of about half its size."""

    batch: ProducerBatch


@dataclass(frozen=True, slots=True)
class Reroute:
    """Choose other partitions for the records of the batch: the topic no longer has its partition."""

    batch: ProducerBatch


@dataclass(frozen=True, slots=True)
class Flushed:
    """Every batch is resolved."""


@dataclass(frozen=True, slots=True)
class NotIdempotent:
    """The broker does not support producer ids: the producer continues without, one batch in flight per partition."""

    reason: str


@dataclass(frozen=True, slots=True)
class LimitUnknown:
    """The largest batch of the topic is unknown. With acks=0, a broker drops a larger one without an error."""

    topic: str
    reason: str


@dataclass(frozen=True, slots=True)
class Warn:
    """Log this at WARNING: the producer waits, and fails unless the cause ends."""

    message: str


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Send a `Tick` at this time."""

    time: float


Action = (
    Send
    | Disconnect
    | ReadMetadata
    | GetProducerId
    | UseBrokers
    | TopicFound
    | TopicMissing
    | Delivered
    | Failed
    | Split
    | Reroute
    | Flushed
    | NotIdempotent
    | LimitUnknown
    | Warn
    | WakeAt
)
