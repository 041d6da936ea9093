"""The typed errors of a producer of Kafka 0.7: which records failed where, why, and what to do next."""

from __future__ import annotations

from streamgroup.counting import counted
from streamgroup.errors import DeliveryTimeoutError, ProduceError
from streamgroup.logformat import KAFKA07_LOG
from streamgroup.producer.kafka07 import Kafka07Config
from streamgroup.producer.kafka07_events import MessageSet, MessageSetState

_AGAIN = ". The broker may have the records: writing them again may duplicate them"


def _what(each: MessageSet) -> str:
    return f"could not write {counted(each.count, 'record')} ({each.size} bytes) to {KAFKA07_LOG.name(each.partition)}"


def unconfirmed(each: MessageSet) -> ProduceError:
    """Return the error for a set whose connection was lost before the broker had handled it."""
    return ProduceError(
        f"{_what(each)}: the connection was lost after they were sent: {each.cause}. Kafka 0.7 acknowledges nothing, "
        f"so nobody can tell whether the broker has them{_AGAIN}. With verify=true the log is read back, and only what "
        "is missing is sent again",
        maybe_written=True,
    )


def refused(each: MessageSet) -> ProduceError:
    """Return the error for a set of a partition that the broker hangs up on again and again."""
    return ProduceError(
        f"{_what(each)}: the broker hangs up on every request for this partition: {each.cause}. Check the number of "
        "partitions of the topic at this broker (num.partitions), and the name of the topic",
        maybe_written=each.attempts > 0,
    )


def missing(each: MessageSet, start: int, end: int) -> ProduceError:
    """Return the error for a set that the log does not have. It was read up to `end`, of which `start` was the rest."""
    return ProduceError(
        f"{_what(each)}: expected {each.size} bytes from position {start} on, and the log ends at {end}: they are not "
        f"there after {counted(each.attempts, 'attempt')}. A broker drops messages above its max.message.size without "
        "a sign: lower kafka.max.request.size to that. Or it flushes too rarely: see log.default.flush.interval.ms"
    )


def log_lost(each: MessageSet, position: int | None) -> ProduceError:
    """Return the error for a log that ends before, or begins behind, the position that was reached."""
    return ProduceError(
        f"{_what(each)}: the log no longer has position {position}, which it had before: the broker has lost the end "
        "of the log, or removed it (retention). Look at the broker's log, then write the records again",
        maybe_written=True,
    )


def unreadable(each: MessageSet, position: int | None) -> ProduceError:
    """Return the error for a log that cannot be read back."""
    return ProduceError(
        f"{_what(each)}: cannot verify them: the broker refuses to send its log from position {position} on{_AGAIN}",
        maybe_written=True,
    )


def damaged(each: MessageSet, cause: str) -> ProduceError:
    """Return the error for a log with bytes that are not messages."""
    return ProduceError(f"{_what(each)}: cannot verify them: the log is damaged: {cause}{_AGAIN}", maybe_written=True)


def timed_out(each: MessageSet, config: Kafka07Config, waits_for: str) -> DeliveryTimeoutError:
    """Return the error for a set whose delivery.timeout.ms has passed."""
    maybe = each.state is not MessageSetState.QUEUED
    moved = "" if each.movable else ". Records with a key, or with a partition, cannot go to another broker"
    return DeliveryTimeoutError(
        f"{_what(each)}: not delivered within delivery.timeout.ms={config.delivery_timeout_ms}: {waits_for}{moved}"
        f"{_AGAIN if maybe else ''}. Start the broker, or raise kafka.delivery.timeout.ms",
        maybe_written=maybe,
    )


def abandoned(each: MessageSet, reason: str) -> ProduceError:
    """Return the error for a set that the application has given up."""
    maybe = each.state is not MessageSetState.QUEUED
    return ProduceError(f"{_what(each)}: given up: {reason}{_AGAIN if maybe else ''}", maybe_written=maybe)
