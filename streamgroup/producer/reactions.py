"""The producer's reaction to each error code of Produce, Metadata and InitProducerId: one table for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from streamgroup.errors import ErrorCode, Refresh, error_of, is_unexpected

UNEXPECTED_ATTEMPTS = 10
"""After so many attempts a batch fails on an unexpected failure of the broker: after 7 s with the default backoff."""


class ProduceReaction(Enum):
    """The reaction to an error code of one partition."""

    DELIVERED = "delivered"
    """The broker has the batch."""
    RETRY = "retry"
    """Send the batch again after a backoff, with the same sequence."""
    METADATA = "metadata"
    """As RETRY, to the leader that the answer names, or by fresh metadata."""
    UNEXPECTED = "unexpected"
    """As RETRY, `UNEXPECTED_ATTEMPTS` times at most: the broker failed for unknown reasons."""
    SPLIT = "split"
    """Send the batch in parts; a batch of one record fails."""
    OUT_OF_ORDER = "out of order"
    """Retry behind the batch that is missing. Where none is missing, the broker has forgotten the batch, or has lost
    acknowledged records: fail, unless it accepts a later batch and so has this one."""
    NEW_EPOCH = "new epoch"
    """The broker has forgotten the producer: start again at sequence 0 under a higher epoch (KIP-360)."""
    NEW_ID = "new id"
    """Another producer uses the id: start again at sequence 0 under another id."""
    FAIL = "fail"
    """Fail the batch: the same records would fail again."""
    FATAL = "fatal"
    """Fail the producer with all its batches."""


class Appended(Enum):
    """Whether a leader that answers with the code has the batch in its log."""

    NO = "no"
    MAYBE = "maybe"
    YES = "yes"


@dataclass(frozen=True, slots=True)
class CodeReaction:
    """The reaction to a code, whether the batch was appended, and the next step for the user if the batch fails."""

    reaction: ProduceReaction
    appended: Appended
    advice: str = ""


_NO, _MAYBE, _YES = Appended.NO, Appended.MAYBE, Appended.YES

_SMALLER = "Raise max.message.bytes of the topic (message.max.bytes of the broker), or write smaller records"
_FORMAT = "Raise the topic's message.format.version, or write without headers, timestamps and idempotence"
_REPLICAS = "Look for brokers that are down, or lower min.insync.replicas of the topic"
_LOST = (
    "The broker does not have the records before these, which it had acknowledged: look for an unclean leader "
    "election, or a topic that was deleted and created again, then write again"
)

PRODUCE: Mapping[int, CodeReaction] = {
    ErrorCode.NONE: CodeReaction(ProduceReaction.DELIVERED, _YES),
    # A repetition whose first attempt was appended. Brokers that remember the batch answer it with NONE.
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: CodeReaction(ProduceReaction.DELIVERED, _YES),
    ErrorCode.CORRUPT_MESSAGE: CodeReaction(
        ProduceReaction.RETRY,
        _NO,
        "If records lack a key and the topic is compacted, give them keys; else look for a network that damages data",
    ),
    # The leader appends first and then waits for the other replicas. While it waits it may lose the leadership, the
    # partition or its disk, and answers so although the next leader may have the records.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: CodeReaction(
        ProduceReaction.METADATA, _MAYBE, "Look whether the topic was deleted"
    ),
    # The topic with this id was deleted, with all that was appended to it, or the broker has not heard of it yet.
    ErrorCode.UNKNOWN_TOPIC_ID: CodeReaction(ProduceReaction.METADATA, _NO, "Look whether the topic was deleted"),
    ErrorCode.INCONSISTENT_TOPIC_ID: CodeReaction(ProduceReaction.METADATA, _MAYBE),
    ErrorCode.LEADER_NOT_AVAILABLE: CodeReaction(ProduceReaction.METADATA, _MAYBE),
    ErrorCode.NOT_LEADER_OR_FOLLOWER: CodeReaction(ProduceReaction.METADATA, _MAYBE),
    ErrorCode.REPLICA_NOT_AVAILABLE: CodeReaction(ProduceReaction.METADATA, _MAYBE),
    ErrorCode.FENCED_LEADER_EPOCH: CodeReaction(ProduceReaction.METADATA, _MAYBE),
    ErrorCode.UNKNOWN_LEADER_EPOCH: CodeReaction(ProduceReaction.METADATA, _MAYBE),
    ErrorCode.KAFKA_STORAGE_ERROR: CodeReaction(ProduceReaction.METADATA, _MAYBE, "Look at the disks of the broker"),
    ErrorCode.REQUEST_TIMED_OUT: CodeReaction(ProduceReaction.RETRY, _MAYBE, "Look for replicas that are slow or down"),
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
    ErrorCode.POLICY_VIOLATION: CodeReaction(
        ProduceReaction.FAIL, _NO, "Ask the operator of the cluster for its policies"
    ),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: CodeReaction(
        ProduceReaction.FATAL,
        _NO,
        "Without the right, set kafka.enable.idempotence=false",
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

_UNEXPECTED_ADVICE = "Look into the log of the broker, then write again"

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
    """Return the row of `code` in an answer to Produce.

    A code without a row is retried where the table of errors calls it retriable, and fails the batch otherwise.
    """
    return PRODUCE.get(code) or _by_the_table(code)


def reaction_to_metadata(code: int) -> CodeReaction:
    """Return the row of a topic's `code` in an answer to Metadata. The producer waits on with every other code."""
    return _METADATA.get(code) or CodeReaction(ProduceReaction.RETRY, _NO)


def reaction_to_producer_id(code: int) -> CodeReaction:
    """Return the row of `code` in an answer to InitProducerId."""
    row = _PRODUCER_ID.get(code) or _by_the_table(code)
    if row.reaction in {ProduceReaction.UNEXPECTED, ProduceReaction.METADATA}:
        # delivery.timeout.ms of the batches that wait bounds the retries.
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
