"""The events that a producer handles, and the actions that it returns.

The contract of `Producer.step(event, now) -> list[Action]`: the shell carries the actions out in their order and
reports back. Times are seconds of one monotonic clock.

- The shell answers a `Send` by one `Answered`, or by `Written` with acks=0. Where the connection is lost or cannot be
  made, one `Disconnected` answers all of a broker's pending `Send`s. The producer ignores tokens that are not pending.
- The producer watches the timeout of a request, and asks for a `Disconnect` when it has passed.
- The shell answers each `GetProducerId` by `ProducerIdGiven` or `ProducerIdRefused`, each `ReadMetadata` by
  `MetadataRead` or `MetadataFailed`, each `Split` by `SplitInto`, each `Reroute` by `Rerouted`.
- Every payload that is appended ends in exactly one batch that is `Delivered` or `Failed`, unless it is rerouted.
- Where anything is pending, the list of a step ends with one `WakeAt`. The shell sends a `Tick` at that time, unless
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

    `again`: read their metadata again, since those known lack a partition.
    """

    topics: tuple[str, ...]
    again: bool = False


@dataclass(frozen=True, slots=True)
class Append:
    """Write these records, each to its partition, in this order.

    A payload is never divided, but for a `Split` or `Reroute`: one that exceeds `batch.size` is a batch by itself.
    """

    payloads: Sequence[tuple[TopicPartition, Payload]]


@dataclass(frozen=True, slots=True)
class Flush:
    """Send everything without lingering. `Flushed` follows when nothing is unresolved any more."""


@dataclass(frozen=True, slots=True)
class Abandon:
    """Fail every unresolved batch now. The producer stays usable."""

    reason: str


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to the `Send` with this token, and the version of both."""

    token: int
    response: ProduceResponse
    version: int


@dataclass(frozen=True, slots=True)
class Written:
    """The request with this token is written to the socket. Reported with acks=0 only, where no answer comes."""

    token: int


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection to a broker is lost or could not be made: none of its pending requests gets an answer.

    `written` is False if no byte of them has left, as when no connection could be made.
    """

    node: int
    reason: str
    written: bool = True


@dataclass(frozen=True, slots=True)
class MetadataRead:
    """The cluster's metadata of these topics, of which those that exist are in `topics`.

    `errors` are the error codes of topics, such as TOPIC_AUTHORIZATION_FAILED. The shell may also send it unasked.
    `max_message_bytes` and `no_limits` are about the topics of `ReadMetadata.limits`: the largest batch that each
    takes, or why that is not known.
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
    """No id came: the error code of the answer; NETWORK_EXCEPTION without one; UNSUPPORTED_VERSION where the broker
    does not have the API."""

    code: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SplitInto:
    """The answer to `Split`: two payloads or more with all records of the batch, in their order."""

    batch: ProducerBatch
    parts: tuple[Payload, ...]


@dataclass(frozen=True, slots=True)
class Rerouted:
    """The answer to `Reroute`: the records of the batch, each in a partition that the topic has now.

    None if the rows name the partition: the batch fails.
    """

    batch: ProducerBatch
    payloads: Sequence[tuple[TopicPartition, Payload]] | None


@dataclass(frozen=True, slots=True)
class Tick:
    """The time of the last `WakeAt` has come. At any other time a tick is harmless."""


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
    """Close the connection to a broker, which has not answered in time. The producer has already taken note."""

    node: int
    reason: str


@dataclass(frozen=True, slots=True)
class ReadMetadata:
    """Read the metadata of these topics, from any broker, which may create those that do not exist.

    `limits` are those whose largest batch is to be read, too.
    """

    topics: frozenset[str]
    limits: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class GetProducerId:
    """Send InitProducerId to any broker (`requests.init_producer_id`)."""


@dataclass(frozen=True, slots=True)
class UseBrokers:
    """Addresses of brokers that an answer has named as leaders (KIP-951)."""

    brokers: tuple[Broker, ...]


@dataclass(frozen=True, slots=True)
class TopicFound:
    """A topic of `FindTopics`, and its partitions."""

    topic: TopicInfo


@dataclass(frozen=True, slots=True)
class TopicMissing:
    """A topic of `FindTopics` that did not appear in time, or that the user may not use."""

    topic: str
    error: ProduceError


@dataclass(frozen=True, slots=True)
class Delivered:
    """The broker has the batch, as `acks` asks for it.

    `base_offset` is -1 where the broker does not say: with acks=0, and for a repetition that it no longer remembers.
    `log_append_time_ms` is -1 where the topic keeps the timestamps of the producer (CreateTime).
    """

    batch: ProducerBatch
    base_offset: int
    log_append_time_ms: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The batch is given up. `error.maybe_written` says whether a broker may have it all the same."""

    batch: ProducerBatch
    error: ProduceError


@dataclass(frozen=True, slots=True)
class Split:
    """Divide the batch, which is too large, into parts of about half its size."""

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
    """The broker has no producer ids: the producer goes on without idempotence, one batch in flight per partition."""

    reason: str


@dataclass(frozen=True, slots=True)
class LimitUnknown:
    """With acks=0 no broker tells that it has dropped a batch, and the largest that the topic takes is not known."""

    topic: str
    reason: str


@dataclass(frozen=True, slots=True)
class Warn:
    """Log this at WARNING: the producer waits, and fails if the cause lasts."""

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
