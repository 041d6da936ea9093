"""How the producer reacts to each error code of Produce, Metadata and InitProducerId, and the errors it raises."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from streamgroup.advice import RESOURCES, UNKNOWN, Operation, Requester, Resource, grant, missing_right
from streamgroup.errors import (
    DeliveryTimeoutError,
    ErrorCode,
    NoBrokerError,
    ProduceAuthorizationError,
    ProduceError,
    RecordTooLargeError,
    Refresh,
    UnknownTopicError,
    error_of,
    is_unexpected,
)
from streamgroup.frozen import frozen
from streamgroup.kafka.producer.batch import ProducerBatch
from streamgroup.kafka.producer.config import ProducerConfig
from streamgroup.kafka.producer.transaction import Transaction
from streamgroup.kafka.wire.messages.produce import PartitionProduceResponse
from streamgroup.model import TopicInfo
from streamgroup.text import counted

UNEXPECTED_ATTEMPTS = 10
"""Attempts after which a batch fails on unexpected errors of the broker: 7 s with the default backoff."""


class ProduceReaction(Enum):
    """The reactions of the producer to an error code of one partition in a Produce response."""

    DELIVERED = "delivered"
    """The broker has the batch."""
    RETRY = "retry"
    """Send the batch again after a backoff, with the same sequence."""
    METADATA = "metadata"
    """As RETRY, to the leader that the answer or new metadata name."""
    UNEXPECTED = "unexpected"
    """As RETRY, at most `UNEXPECTED_ATTEMPTS` times: the broker failed for an unknown reason."""
    SPLIT = "split"
    """Send the batch in parts; a batch of one record fails."""
    OUT_OF_ORDER = "out of order"
    """Retry after the missing batch. If none is missing, the broker has forgotten the batch or lost acknowledged
    records: fail, unless it accepts a later batch, which shows that it has this one."""
    NEW_EPOCH = "new epoch"
    """The broker has forgotten the producer: start again at sequence 0 under a higher epoch (KIP-360)."""
    NEW_ID = "new id"
    """Another producer uses the id: start again at sequence 0 with a new id."""
    FAIL = "fail"
    """Fail the batch: the same records would fail again."""
    FATAL = "fatal"
    """Fail the producer with all its batches."""


class Appended(Enum):
    """Whether a leader that returns this error code has appended the batch to its log."""

    NO = "no"
    MAYBE = "maybe"
    YES = "yes"


@frozen
class CodeReaction:
    """The row for one error code: the reaction, whether the batch was appended, and the user's next step on failure."""

    reaction: ProduceReaction
    appended: Appended
    advice: str = ""


_NO, _MAYBE, _YES = Appended.NO, Appended.MAYBE, Appended.YES

_SMALLER = "Raise max.message.bytes of the topic (message.max.bytes of the broker), or write smaller records"
_FORMAT = "Raise the topic's message.format.version, or write without headers, timestamps and idempotence"
_REPLICAS = "Check for brokers that are down, or lower min.insync.replicas of the topic"
_LOST = (
    "The broker does not have the records before these, which it had acknowledged: check for an unclean leader "
    "election, or a topic that was deleted and created again, then write again"
)

PRODUCE: Mapping[int, CodeReaction] = {
    ErrorCode.NONE: CodeReaction(ProduceReaction.DELIVERED, _YES),
    # A repetition whose first attempt was appended. Brokers that remember the batch answer it with NONE.
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: CodeReaction(ProduceReaction.DELIVERED, _YES),
    ErrorCode.CORRUPT_MESSAGE: CodeReaction(
        ProduceReaction.RETRY,
        _NO,
        "If records lack a key and the topic is compacted, give them keys; else check for a network that damages data",
    ),
    # The leader appends first and then waits for the other replicas. Meanwhile it may lose the leadership, the
    # partition or its disk. It then answers with an error, although the next leader may have the records.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: CodeReaction(
        ProduceReaction.METADATA, _MAYBE, "Check whether the topic was deleted"
    ),
    # The topic with this id was deleted with all its records, or the broker does not know it yet.
    ErrorCode.UNKNOWN_TOPIC_ID: CodeReaction(ProduceReaction.METADATA, _NO, "Check whether the topic was deleted"),
    ErrorCode.INCONSISTENT_TOPIC_ID: CodeReaction(ProduceReaction.METADATA, _MAYBE),
    ErrorCode.LEADER_NOT_AVAILABLE: CodeReaction(ProduceReaction.METADATA, _MAYBE),
    ErrorCode.NOT_LEADER_OR_FOLLOWER: CodeReaction(ProduceReaction.METADATA, _MAYBE),
    ErrorCode.REPLICA_NOT_AVAILABLE: CodeReaction(ProduceReaction.METADATA, _MAYBE),
    ErrorCode.FENCED_LEADER_EPOCH: CodeReaction(ProduceReaction.METADATA, _MAYBE),
    ErrorCode.UNKNOWN_LEADER_EPOCH: CodeReaction(ProduceReaction.METADATA, _MAYBE),
    ErrorCode.KAFKA_STORAGE_ERROR: CodeReaction(ProduceReaction.METADATA, _MAYBE, "Check the disks of the broker"),
    ErrorCode.REQUEST_TIMED_OUT: CodeReaction(
        ProduceReaction.RETRY, _MAYBE, "Check for replicas that are slow or down"
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS: CodeReaction(ProduceReaction.RETRY, _NO, _REPLICAS),
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: CodeReaction(ProduceReaction.RETRY, _YES, _REPLICAS),
    ErrorCode.MESSAGE_TOO_LARGE: CodeReaction(ProduceReaction.SPLIT, _NO, _SMALLER),
    ErrorCode.RECORD_LIST_TOO_LARGE: CodeReaction(
        ProduceReaction.SPLIT, _NO, "Raise segment.bytes of the topic, or write smaller"
    ),
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: CodeReaction(ProduceReaction.OUT_OF_ORDER, _NO, _LOST),
    ErrorCode.UNKNOWN_PRODUCER_ID: CodeReaction(ProduceReaction.NEW_EPOCH, _NO, "Write again"),
    ErrorCode.INVALID_PRODUCER_EPOCH: CodeReaction(ProduceReaction.NEW_ID, _NO, "Write again"),
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: CodeReaction(ProduceReaction.NEW_ID, _NO, "Write again"),
    ErrorCode.INVALID_TIMESTAMP: CodeReaction(
        ProduceReaction.FAIL,
        _NO,
        "Correct the column 'timestamp', or raise the topic's message.timestamp.before.max.ms and "
        "message.timestamp.after.max.ms (message.timestamp.difference.max.ms before 3.6)",
    ),
    ErrorCode.INVALID_RECORD: CodeReaction(ProduceReaction.FAIL, _NO, "Give records of a compacted topic keys"),
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: CodeReaction(ProduceReaction.FAIL, _NO, _FORMAT),
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: CodeReaction(
        ProduceReaction.FAIL, _NO, "Choose another compression.type; zstd needs 2.1"
    ),
    ErrorCode.INVALID_TOPIC_EXCEPTION: CodeReaction(
        ProduceReaction.FAIL, _NO, "Choose a valid topic name; clients may not write internal topics"
    ),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: CodeReaction(ProduceReaction.FAIL, _NO),
    ErrorCode.POLICY_VIOLATION: CodeReaction(ProduceReaction.FAIL, _NO, "Look up the policies of the cluster"),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: CodeReaction(
        ProduceReaction.FATAL,
        _NO,
        "Without this permission, set kafka.enable.idempotence=false",
    ),
    ErrorCode.INVALID_REQUIRED_ACKS: CodeReaction(ProduceReaction.FATAL, _NO, "Set kafka.acks to 0, 1 or all"),
    ErrorCode.UNSUPPORTED_VERSION: CodeReaction(
        ProduceReaction.FATAL, _NO, "Connect to the brokers themselves, without a proxy"
    ),
    ErrorCode.PRODUCER_FENCED: CodeReaction(
        ProduceReaction.FATAL, _NO, "Stop the other producer of this transactional.id"
    ),
}
"""The codes of Produce with a row of their own."""

_UNEXPECTED_ADVICE = "Check the log of the broker, then write again"

_METADATA: Mapping[int, CodeReaction] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: PRODUCE[ErrorCode.TOPIC_AUTHORIZATION_FAILED],
    ErrorCode.INVALID_TOPIC_EXCEPTION: PRODUCE[ErrorCode.INVALID_TOPIC_EXCEPTION],
}

_PRODUCER_ID: Mapping[int, CodeReaction] = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: PRODUCE[ErrorCode.CLUSTER_AUTHORIZATION_FAILED],
    ErrorCode.UNSUPPORTED_VERSION: CodeReaction(
        ProduceReaction.FATAL,
        _NO,
        "Idempotence needs brokers of Kafka 0.11 or later: leave kafka.enable.idempotence out",
    ),
    ErrorCode.NETWORK_EXCEPTION: CodeReaction(ProduceReaction.RETRY, _NO),
}


def reaction_to(code: int) -> CodeReaction:
    """Return the reaction to error `code` of a partition in a Produce response.

    A code without a row is retried if `errors.error_of` calls it retriable. Otherwise the batch fails.
    """
    return PRODUCE.get(code) or _by_the_table(code)


def reaction_to_metadata(code: int) -> CodeReaction:
    """Return the reaction to error `code` of a topic in a Metadata response.

    For a code without a row the producer waits.
    """
    return _METADATA.get(code) or CodeReaction(ProduceReaction.RETRY, _NO)


def reaction_to_producer_id(code: int) -> CodeReaction:
    """Return the reaction to error `code` of an InitProducerId response."""
    row = _PRODUCER_ID.get(code) or _by_the_table(code)
    if row.reaction in {ProduceReaction.UNEXPECTED, ProduceReaction.METADATA}:
        # delivery.timeout.ms of the waiting batches limits the retries.
        return CodeReaction(ProduceReaction.RETRY, _NO)
    return CodeReaction(ProduceReaction.FATAL, _NO, row.advice) if row.reaction is ProduceReaction.FAIL else row


def _by_the_table(code: int) -> CodeReaction:
    if is_unexpected(code):
        return CodeReaction(ProduceReaction.UNEXPECTED, _MAYBE, _UNEXPECTED_ADVICE)
    error = error_of(code)
    if not error.retriable:
        return CodeReaction(ProduceReaction.FAIL, _MAYBE, _UNEXPECTED_ADVICE)
    return CodeReaction(
        ProduceReaction.METADATA if error.refresh is Refresh.METADATA else ProduceReaction.RETRY, _MAYBE
    )


_MOST_RECORDS_NAMED = 3


def _what(batch: ProducerBatch) -> str:
    where = f" at broker {batch.node}" if batch.node >= 0 else ""
    return f"could not write {counted(batch.count, 'record')} ({batch.size} bytes) to {batch.partition}{where}"


def _outcome(maybe_written: bool) -> str:
    return ". The broker may have the records: writing them again may duplicate them" if maybe_written else ""


def refused(
    batch: ProducerBatch,
    code: int,
    row: CodeReaction,
    answer: PartitionProduceResponse | None,
    requester: Requester = UNKNOWN,
) -> ProduceError:
    """Return the error for a batch that a broker has rejected with `code`, after which a retry cannot succeed."""
    detail = _detail(answer) if answer is not None else ""
    advice = f". {row.advice}" if row.advice else ""
    cause = _cause(code, batch.partition.topic, requester)
    return _error_for(code)(f"{_what(batch)}: {cause}{detail}{_outcome(batch.doubtful)}{advice}", code, batch.doubtful)


def _error_for(code: int) -> type[ProduceError]:
    return ProduceAuthorizationError if code in RESOURCES else ProduceError


def _cause(code: int, topic: str, requester: Requester) -> str:
    """Return the code and its meaning; for an authorization error, the user and the missing permission."""
    error = error_of(code)
    kind = RESOURCES.get(code)
    text = error.text
    if kind is not None:
        operation = Operation.IDEMPOTENT_WRITE if kind is Resource.CLUSTER else Operation.WRITE
        text = missing_right(code, operation, topic if kind is Resource.TOPIC else "", requester)
    return f"{error.name} ({code}): {text}"


def _detail(answer: PartitionProduceResponse) -> str:
    """Return the broker's own message, which names the records since v8 (KIP-467)."""
    words = [answer.error_message] if answer.error_message else []
    words += [
        f"record {each.batch_index} of the batch: {each.batch_index_error_message or 'rejected'}"
        for each in answer.record_errors[:_MOST_RECORDS_NAMED]
    ]
    more = len(answer.record_errors) - _MOST_RECORDS_NAMED
    return "".join(f"; {word}" for word in words) + (f"; and {counted(more, 'more record')}" if more > 0 else "")


def no_producer_id(code: int, reason: str, row: CodeReaction, requester: Requester) -> ProduceError:
    """Return the error for a failed InitProducerId. `reason` may be ""."""
    return _fatal("could not get a producer id", code, row, requester, reason)


def producer_refused(node: int, code: int, row: CodeReaction, requester: Requester) -> ProduceError:
    """Return the error for a producer all of whose batches broker `node` would reject."""
    return _fatal(f"broker {node} refuses this producer", code, row, requester)


def _fatal(context: str, code: int, row: CodeReaction, requester: Requester, reason: str = "") -> ProduceError:
    reason = f" ({reason})" if reason else ""
    message = f"{context}{reason}: {_cause(code, '', requester)}. {row.advice}"
    return _error_for(code)(message.rstrip(". "), code)


def too_large(batch: ProducerBatch, row: CodeReaction, limit: int | None) -> RecordTooLargeError:
    """Return the error for a single record above `limit` (max.request.size), or above a limit of the broker if None."""
    outcome = _outcome(batch.doubtful)
    if limit is None:
        error = error_of(batch.code)
        text = f"{_what(batch)}: {error.name} ({batch.code}): {error.text}{outcome}. {row.advice}"
        return RecordTooLargeError(text, batch.code, batch.doubtful)
    cause = f"the record is larger than max.request.size={limit}{outcome}. Raise kafka.max.request.size"
    return RecordTooLargeError(f"{_what(batch)}: {cause}", batch.code, batch.doubtful)


def too_large_unheard(batch: ProducerBatch, size: int, limit: int) -> RecordTooLargeError:
    """Return the error for a batch of `size` bytes with acks=0: the broker would drop it without an error."""
    row = reaction_to(ErrorCode.MESSAGE_TOO_LARGE)
    return RecordTooLargeError(
        f"could not write {counted(batch.count, 'record')} to {batch.partition}: a batch of {size} bytes is larger "
        f"than max.message.bytes={limit} of the topic. {row.advice}",
        ErrorCode.MESSAGE_TOO_LARGE,
    )


def timed_out(batch: ProducerBatch, config: ProducerConfig, waits_for: str) -> DeliveryTimeoutError:
    """Return the error for a batch that was not acknowledged within delivery.timeout.ms.

    `waits_for` is the cause if the batch has no error of its own.
    """
    cause = batch.cause or waits_for
    message = (
        f"{_what(batch)}: not acknowledged within delivery.timeout.ms={config.delivery_timeout_ms} after "
        f"{counted(batch.attempts, 'attempt')}; last: {cause}{_outcome(batch.maybe_written)}. {_timeout_advice(batch)}"
    )
    return DeliveryTimeoutError(message, batch.code, batch.maybe_written)


def _timeout_advice(batch: ProducerBatch) -> str:
    row = reaction_to(batch.code)
    known = "" if row.reaction is ProduceReaction.OUT_OF_ORDER else row.advice  # it only waited for another batch
    return known or "Check that the partition's leader runs and keeps up, or raise kafka.delivery.timeout.ms"


def unknown_partition(
    batch: ProducerBatch, config: ProducerConfig, topic: TopicInfo | None, *, is_new: bool = False
) -> UnknownTopicError:
    """Return the error for a batch of a partition that `topic` does not have (None: the topic does not exist).

    `is_new`: the topic was deleted and created again. If False, the producer has waited for the partition.
    """
    if topic is None:
        return UnknownTopicError(f"{_what(batch)}: {_no_topic(batch.partition.topic, config)}")
    count, partition = counted(len(topic.partitions), "partition"), batch.partition.partition
    cause = (
        f"topic {topic.name} was deleted and created again with {count}, without partition {partition}"
        if is_new
        else f"topic {topic.name} has {count}, and partition {partition} did not appear within "
        f"max.block.ms={config.max_block_ms}"
    )
    return UnknownTopicError(f"{_what(batch)}: {cause}. Correct the column 'partition', or add partitions to the topic")


def hidden_partition(batch: ProducerBatch, config: ProducerConfig) -> UnknownTopicError:
    """Return the error for a batch that a broker may have, if new metadata lack its partition."""
    topic, partition = batch.partition
    return UnknownTopicError(
        f"{_what(batch)}: the metadata of topic {topic} have lacked partition {partition} for "
        f"max.block.ms={config.max_block_ms}, although no topic loses a partition. Check for a broker with old "
        f"metadata{_outcome(True)}",
        maybe_written=True,
    )


def _no_topic(topic: str, config: ProducerConfig) -> str:
    return (
        f"topic {topic} did not appear in the metadata within max.block.ms={config.max_block_ms}. Create it, or set "
        "auto.create.topics.enable=true at the brokers"
    )


def missing_topic(topic: str, config: ProducerConfig, reason: str) -> ProduceError:
    """Return the error for a topic that was not in the metadata within `max.block.ms`.

    `reason` says why no broker has answered. It is "" if one has.
    """
    if not reason:
        return UnknownTopicError(_no_topic(topic, config))
    return NoBrokerError(
        f"cannot write topic {topic}: no broker has answered for it within max.block.ms={config.max_block_ms}; last: "
        f"{reason}. Check that the brokers of kafka.bootstrap.servers run, and that the executors reach them"
    )


def late_topic(topic: str, left: float, config: ProducerConfig, reason: str) -> str:
    """Return the warning about a missing topic that the producer gives up in `left` seconds.

    `reason`: see `missing_topic`.
    """
    cause = f"no broker has answered ({reason})" if reason else "the brokers report that it does not exist"
    advice = "Check that the brokers run" if reason else "Create the topic, or correct its name"
    return (
        f"cannot write topic {topic} so far: {cause}. The task waits for it for {left:.0f} more seconds "
        f"(kafka.max.block.ms={config.max_block_ms}) and then fails. {advice}"
    )


def late(batch: ProducerBatch, partitions: int, now: float, config: ProducerConfig, cause: str) -> str:
    """Return the warning about unacknowledged batches of `partitions` partitions. `batch` is the oldest."""
    more = f" and the oldest of {counted(partitions - 1, 'more partition')}" if partitions > 1 else ""
    return (
        f"{counted(batch.count, 'record')} for {batch.partition}{more} were not acknowledged within "
        f"{now - batch.created_at:.0f} s, after {counted(batch.attempts, 'attempt')}; last: {cause}. The task fails if "
        f"they are not acknowledged within kafka.delivery.timeout.ms={config.delivery_timeout_ms}"
    )


def topic_refused(topic: str, code: int, row: CodeReaction, requester: Requester) -> ProduceError:
    """Return the error for a topic whose error `code` in the metadata cannot be resolved by a retry."""
    advice = f". {row.advice}" if row.advice else ""
    if code in RESOURCES:  # brokers do not report whether a topic exists that the user may not see
        command = grant(Resource.TOPIC, Operation.CREATE, topic, requester)
        advice = (
            f". If the topic does not exist and the brokers are to create it, add: `{command}` (brokers before 2.0 "
            "take --cluster in place of the topic)"
        )
    return _error_for(code)(f"cannot write topic {topic}: {_cause(code, topic, requester)}{advice}", code)


def abandoned(batch: ProducerBatch, reason: str) -> ProduceError:
    """Return the error for a batch that the application gives up."""
    return ProduceError(
        f"{_what(batch)}: given up: {reason}{_outcome(batch.maybe_written)}", batch.code, batch.maybe_written
    )


def out_of_reach(batch: ProducerBatch) -> ProduceError:
    """Return the error for a batch that follows a failed batch, if an earlier attempt was not answered."""
    return ProduceError(
        f"{_what(batch)}: earlier records of the partition have failed, and the broker refuses these after them "
        f"({batch.cause}){_outcome(batch.doubtful)}. Write all again",
        batch.code,
        batch.doubtful,
    )


def refused_in_transaction(batch: ProducerBatch, transaction: Transaction) -> ProduceError:
    """Return the error for a batch whose transaction has ended, or never had its partition."""
    return ProduceError(
        f"{_what(batch)} in the transaction of {transaction.id.name!r}: {batch.cause}. The transaction was aborted: "
        "its driver, another run of the query or another query with this id has begun a newer one, or it took longer "
        f"than kafka.transaction.timeout.ms={transaction.id.timeout_ms}. Nothing of the batch is visible. If two "
        "queries have this id, give each its own kafka.transactional.id; if the batch takes so long, raise the "
        "timeout. Then start the query again",
        batch.code,
    )


def out_of_turn(batch: ProducerBatch) -> ProduceError:
    """Return the error for a rejected batch, if the broker has accepted a later batch of its partition."""
    return ProduceError(
        f"{_what(batch)}: the broker rejected them ({batch.cause}), but accepted records that follow them"
        f"{_outcome(batch.doubtful)}. Writing them now would change the order: write all again",
        batch.code,
        batch.doubtful,
    )
