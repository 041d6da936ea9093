"""The events that a `Producer` handles, and the actions that it returns.

The *shell* is the code that owns sockets and clock. It calls `Producer.step(event, now) -> list[Action]`, carries out
the actions in their order, and reports the results as events. Times are seconds of one monotonic clock.

- The shell answers a `Send` by one `Answered`, or by `Written` with acks=0. If the connection is lost or cannot be
  made, one `Disconnected` answers all pending `Send`s to the broker. The producer ignores tokens that are not pending.
- The producer watches the timeout of a request, and returns a `Disconnect` when it has passed.
- The shell answers each `GetProducerId` by `ProducerIdGiven` or `ProducerIdRefused`, each `ReadMetadata` by
  `MetadataRead` or `MetadataFailed`, each `Split` by `SplitInto`, each `Reroute` by `Rerouted`.
- Every payload that is appended ends in exactly one batch that is `Delivered` or `Failed`, unless it is rerouted.
- If anything is pending, the list of a step ends with one `WakeAt`. The shell sends a `Tick` at that time, unless
  another event comes first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from streamgroup.errors import ProduceError
from streamgroup.frozen import frozen
from streamgroup.kafka.producer.batch import Payload, ProducerBatch
from streamgroup.kafka.producer.transaction import Transaction
from streamgroup.kafka.wire.messages.produce import ProduceResponse
from streamgroup.model import Broker, TopicInfo, TopicPartition

# -- events -----------------------------------------------------------------------------------------------------------


@frozen
class FindTopics:
    """Event: find these topics. Each is answered by `TopicFound` or, after `max.block.ms`, by `TopicMissing`.

    With `again` their metadata are read again, because the known metadata lack a partition.
    """

    topics: tuple[str, ...]
    again: bool = False


@frozen
class Append:
    """Event: write these records, each to its partition, in this order.

    Only a `Split` or `Reroute` divides a payload. A payload larger than `batch.size` becomes a batch of its own.
    """

    payloads: Sequence[tuple[TopicPartition, Payload]]


@frozen
class Flush:
    """Event: send all batches without lingering.

    The action `Flushed` follows when every batch is delivered or failed.
    """


@frozen
class Abandon:
    """Event: fail every batch that is not delivered. The producer stays usable."""

    reason: str


@frozen
class Answered:
    """Event: the response to the `Send` with this token, and the version of Produce."""

    token: int
    response: ProduceResponse
    version: int


@frozen
class Written:
    """Event: the request with this token is written to the socket. Only with acks=0, which has no response."""

    token: int


@frozen
class Disconnected:
    """Event: the connection to a broker was lost or could not be made. Its pending requests get no response.

    `written` is False if no byte of these requests was sent, for example because no connection could be made.
    """

    node: int
    reason: str
    written: bool = True


@frozen
class MetadataRead:
    """Event: the metadata of the topics `asked`. `topics` has those that exist.

    `errors` has the error codes of topics, such as TOPIC_AUTHORIZATION_FAILED. The shell may also send the event
    without a `ReadMetadata`. For each topic of `ReadMetadata.limits`, `max_message_bytes` has the largest batch that it
    accepts, or `no_limits` the reason why that is unknown.
    """

    topics: Mapping[str, TopicInfo]
    asked: frozenset[str]
    errors: Mapping[str, int] = field(default_factory=dict)
    max_message_bytes: Mapping[str, int] = field(default_factory=dict)
    no_limits: Mapping[str, str] = field(default_factory=dict)


@frozen
class MetadataFailed:
    """Event: no broker has answered a `ReadMetadata`."""

    reason: str


@frozen
class ProducerIdGiven:
    """Event: a broker has answered a `GetProducerId` with a producer id."""

    producer_id: int
    epoch: int


@frozen
class ProducerIdRefused:
    """Event: InitProducerId failed.

    `code` is NETWORK_EXCEPTION without an answer, and UNSUPPORTED_VERSION if the broker lacks the API.
    """

    code: int
    reason: str = ""


@frozen
class SplitInto:
    """Event: the result of a `Split`, at least two payloads with all records of the batch, in their order."""

    batch: ProducerBatch
    parts: tuple[Payload, ...]


@frozen
class Rerouted:
    """Event: the result of a `Reroute`, the batch's records with new partitions, which the topic has now.

    None if the rows set the partition: the batch then fails.
    """

    batch: ProducerBatch
    payloads: Sequence[tuple[TopicPartition, Payload]] | None


@frozen
class Tick:
    """Event: the time of the last `WakeAt` has come. A tick at another time does no harm."""


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


@frozen
class Send:
    """Action: send one Produce request with these batches, at most one per partition (`requests.py` builds it).

    The shell writes `identity` and `base_sequence` into the header of each batch now. `topic_ids` has the ids of
    topics, as far as they are known. `transaction` is the one that the batches belong to.
    """

    node: int
    token: int
    batches: tuple[ProducerBatch, ...]
    acks: int
    timeout_ms: int
    topic_ids: Mapping[str, str]
    transaction: Transaction | None = None


@frozen
class Disconnect:
    """Action: close the connection to a broker that has not answered in time. No `Disconnected` must follow."""

    node: int
    reason: str


@frozen
class ReadMetadata:
    """Action: read the metadata of these topics from any broker. The request may create missing topics.

    For the topics in `limits`, also read the largest batch that they accept.
    """

    topics: frozenset[str]
    limits: frozenset[str] = frozenset()


@frozen
class GetProducerId:
    """Action: send InitProducerId to any broker (`requests.init_producer_id`)."""


@frozen
class UseBrokers:
    """Action: connect to new leaders at these addresses, which are from a Produce response (KIP-951)."""

    brokers: tuple[Broker, ...]


@frozen
class TopicFound:
    """Action: report a topic of `FindTopics`, with its partitions."""

    topic: TopicInfo


@frozen
class TopicMissing:
    """Action: report that a topic of `FindTopics` did not appear in time, or that the user is not authorized for it."""

    topic: str
    error: ProduceError


@frozen
class Delivered:
    """Action: report that the broker has the batch, as far as `acks` requires.

    `base_offset` is -1 if the broker does not return it: with acks=0, and for a repeated batch that it no longer
    remembers. `log_append_time_ms` is -1 if the topic stores the timestamps of the producer (CreateTime).
    """

    batch: ProducerBatch
    base_offset: int
    log_append_time_ms: int


@frozen
class Failed:
    """Action: report that the batch has failed. If `error.maybe_written`, a broker may have it nevertheless."""

    batch: ProducerBatch
    error: ProduceError


@frozen
class Split:
    """Action: split the batch, which is too large, into parts of about half its size."""

    batch: ProducerBatch


@frozen
class Reroute:
    """Action: choose other partitions for the batch's records, because the topic no longer has the partition."""

    batch: ProducerBatch


@frozen
class Flushed:
    """Action: report that every batch is delivered or failed, after a `Flush`."""


@frozen
class NotIdempotent:
    """Action: report that the producer continues without idempotence: the broker does not support producer ids.

    It then has at most one batch in flight per partition.
    """

    reason: str


@frozen
class LimitUnknown:
    """Action: report that the size limit of the topic's batches is unknown.

    With acks=0 a broker drops a larger batch without an error.
    """

    topic: str
    reason: str


@frozen
class Warn:
    """Action: log this message at WARNING. The producer waits, and fails later unless the cause ends."""

    message: str


@frozen
class WakeAt:
    """Action: send a `Tick` at this time."""

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
