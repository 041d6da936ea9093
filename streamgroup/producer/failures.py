"""The typed errors of a producer: which records failed where, why, and what to do next."""

from __future__ import annotations

from streamgroup.authorization import RESOURCES, UNKNOWN, Operation, Requester, Resource, grant, missing_right
from streamgroup.counting import counted
from streamgroup.errors import (
    DeliveryTimeoutError,
    ErrorCode,
    NoBrokerError,
    ProduceAuthorizationError,
    ProduceError,
    RecordTooLargeError,
    UnknownTopicError,
    error_of,
)
from streamgroup.model import TopicInfo
from streamgroup.producer.batch import ProducerBatch
from streamgroup.producer.config import ProducerConfig
from streamgroup.producer.reactions import CodeReaction, ProduceReaction, reaction_to
from streamgroup.wire.messages.produce import PartitionProduceResponse

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
    """Return the error for a batch that a broker has refused for good with `code`."""
    detail = _detail(answer) if answer is not None else ""
    advice = f". {row.advice}" if row.advice else ""
    cause = _cause(code, batch.partition.topic, requester)
    return _error_for(code)(f"{_what(batch)}: {cause}{detail}{_outcome(batch.doubtful)}{advice}", code, batch.doubtful)


def _error_for(code: int) -> type[ProduceError]:
    return ProduceAuthorizationError if code in RESOURCES else ProduceError


def _cause(code: int, topic: str, requester: Requester) -> str:
    """Return the code and its meaning: of a refusal of the authorizer, who lacks which right."""
    error = error_of(code)
    kind = RESOURCES.get(code)
    text = error.text
    if kind is not None:
        operation = Operation.IDEMPOTENT_WRITE if kind is Resource.CLUSTER else Operation.WRITE
        text = missing_right(code, operation, topic if kind is Resource.TOPIC else "", requester)
    return f"{error.name} ({code}): {text}"


def _detail(answer: PartitionProduceResponse) -> str:
    """Return the broker's own words, which name the records from v8 on (KIP-467)."""
    words = [answer.error_message] if answer.error_message else []
    words += [
        f"record {each.batch_index} of the batch: {each.batch_index_error_message or 'rejected'}"
        for each in answer.record_errors[:_MOST_RECORDS_NAMED]
    ]
    more = len(answer.record_errors) - _MOST_RECORDS_NAMED
    return "".join(f"; {word}" for word in words) + (f"; and {counted(more, 'more record')}" if more > 0 else "")


def no_producer_id(code: int, reason: str, row: CodeReaction, requester: Requester) -> ProduceError:
    """Return the error for a producer that does not get an id. `reason` may be empty."""
    return _fatal("could not get a producer id", code, row, requester, reason)


def producer_refused(node: int, code: int, row: CodeReaction, requester: Requester) -> ProduceError:
    """Return the error for a producer that broker `node` refuses as a whole."""
    return _fatal(f"broker {node} refuses this producer", code, row, requester)


def _fatal(context: str, code: int, row: CodeReaction, requester: Requester, reason: str = "") -> ProduceError:
    reason = f" ({reason})" if reason else ""
    message = f"{context}{reason}: {_cause(code, '', requester)}. {row.advice}"
    return _error_for(code)(message.rstrip(". "), code)


def too_large(batch: ProducerBatch, row: CodeReaction, limit: int | None) -> RecordTooLargeError:
    """Return the error for a single record above `limit` (max.request.size), or above a limit of the broker."""
    outcome = _outcome(batch.doubtful)
    if limit is None:
        error = error_of(batch.code)
        text = f"{_what(batch)}: {error.name} ({batch.code}): {error.text}{outcome}. {row.advice}"
        return RecordTooLargeError(text, batch.code, batch.doubtful)
    cause = f"the record is larger than max.request.size={limit}{outcome}. Raise kafka.max.request.size"
    return RecordTooLargeError(f"{_what(batch)}: {cause}", batch.code, batch.doubtful)


def too_large_unheard(batch: ProducerBatch, size: int, limit: int) -> RecordTooLargeError:
    """Return the error for a batch of `size` bytes that the broker would drop without a sign, as acks=0 has it."""
    row = reaction_to(ErrorCode.MESSAGE_TOO_LARGE)
    return RecordTooLargeError(
        f"could not write {counted(batch.count, 'record')} to {batch.partition}: a batch of {size} bytes is larger "
        f"than max.message.bytes={limit} of the topic. {row.advice}",
        ErrorCode.MESSAGE_TOO_LARGE,
    )


def timed_out(batch: ProducerBatch, config: ProducerConfig, waits_for: str) -> DeliveryTimeoutError:
    """Return the error for a batch whose delivery.timeout.ms has passed; `waits_for` is the cause if it knows none."""
    cause = batch.cause or waits_for
    message = (
        f"{_what(batch)}: not acknowledged within delivery.timeout.ms={config.delivery_timeout_ms} after "
        f"{counted(batch.attempts, 'attempt')}; last: {cause}{_outcome(batch.maybe_written)}. {_timeout_advice(batch)}"
    )
    return DeliveryTimeoutError(message, batch.code, batch.maybe_written)


def _timeout_advice(batch: ProducerBatch) -> str:
    row = reaction_to(batch.code)
    known = "" if row.reaction is ProduceReaction.OUT_OF_ORDER else row.advice  # it only waited for another batch
    return known or "Look whether the partition's leader is up and keeps up, or raise kafka.delivery.timeout.ms"


def unknown_partition(
    batch: ProducerBatch, config: ProducerConfig, topic: TopicInfo | None, *, is_new: bool = False
) -> UnknownTopicError:
    """Return the error for a partition that `topic` does not have, None without the topic.

    `is_new`: the topic was deleted and created again. Otherwise the producer has waited for the partition.
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
    """Return the error for a batch that a broker may have, in a partition that the metadata of its topic now lack."""
    topic, partition = batch.partition
    return UnknownTopicError(
        f"{_what(batch)}: the metadata of topic {topic} have lacked partition {partition} for "
        f"max.block.ms={config.max_block_ms}, although no topic loses a partition. Look whether the metadata of some "
        f"broker are old{_outcome(True)}",
        maybe_written=True,
    )


def _no_topic(topic: str, config: ProducerConfig) -> str:
    return (
        f"topic {topic} did not appear in the metadata within max.block.ms={config.max_block_ms}. Create it, or set "
        "auto.create.topics.enable=true at the brokers"
    )


def missing_topic(topic: str, config: ProducerConfig, reason: str) -> ProduceError:
    """Return the error for a topic that did not appear. `reason`: why no broker answers; empty if one does."""
    if not reason:
        return UnknownTopicError(_no_topic(topic, config))
    return NoBrokerError(
        f"cannot write topic {topic}: no broker has answered for it within max.block.ms={config.max_block_ms}; last: "
        f"{reason}. Look whether the brokers of kafka.bootstrap.servers are up, and can be reached from the executors"
    )


def late_topic(topic: str, left: float, config: ProducerConfig, reason: str) -> str:
    """Return the warning about a topic that the producer looks for, for `left` more seconds. `reason` as above."""
    cause = f"no broker has answered ({reason})" if reason else "the brokers report that it does not exist"
    advice = "Look whether the brokers are up" if reason else "Create the topic, or correct its name"
    return (
        f"cannot write topic {topic} so far: {cause}. The task waits for it for {left:.0f} more seconds "
        f"(kafka.max.block.ms={config.max_block_ms}) and then fails. {advice}"
    )


def late(batch: ProducerBatch, partitions: int, now: float, config: ProducerConfig, cause: str) -> str:
    """Return the warning about batches that wait in so many partitions, of which `batch` is the oldest."""
    more = f" and the oldest of {counted(partitions - 1, 'more partition')}" if partitions > 1 else ""
    return (
        f"{counted(batch.count, 'record')} for {batch.partition}{more} were not acknowledged within "
        f"{now - batch.created_at:.0f} s, after {counted(batch.attempts, 'attempt')}; last: {cause}. The task fails if "
        f"they are not acknowledged within kafka.delivery.timeout.ms={config.delivery_timeout_ms}"
    )


def topic_refused(topic: str, code: int, row: CodeReaction, requester: Requester) -> ProduceError:
    """Return the error for a topic that the metadata refuse for good."""
    advice = f". {row.advice}" if row.advice else ""
    if code in RESOURCES:  # the brokers tell nothing about a topic that the user may not see
        command = grant(Resource.TOPIC, Operation.CREATE, topic, requester)
        advice = (
            f". If the topic does not exist and the brokers are to create it, add: `{command}` (brokers before 2.0 "
            "take --cluster in place of the topic)"
        )
    return _error_for(code)(f"cannot write topic {topic}: {_cause(code, topic, requester)}{advice}", code)


def abandoned(batch: ProducerBatch, reason: str) -> ProduceError:
    """Return the error for a batch that the application has given up."""
    return ProduceError(
        f"{_what(batch)}: given up: {reason}{_outcome(batch.maybe_written)}", batch.code, batch.maybe_written
    )


def out_of_reach(batch: ProducerBatch) -> ProduceError:
    """Return the error for a batch behind a failed one, of which an earlier attempt has no answer."""
    return ProduceError(
        f"{_what(batch)}: earlier records of the partition have failed, and the broker refuses these behind them "
        f"({batch.cause}){_outcome(batch.doubtful)}. Write all again",
        batch.code,
        batch.doubtful,
    )


def out_of_turn(batch: ProducerBatch) -> ProduceError:
    """Return the error for a refused batch that a later batch of its partition has overtaken."""
    return ProduceError(
        f"{_what(batch)}: the broker rejected them ({batch.cause}), but accepted records that follow them"
        f"{_outcome(batch.doubtful)}. Writing them now would change the order: write all again",
        batch.code,
        batch.doubtful,
    )
