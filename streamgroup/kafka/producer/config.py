"""The configuration of a producer, with the names and defaults of Java's producer."""

from __future__ import annotations

from enum import Enum

from streamgroup.advice import UNKNOWN, Requester
from streamgroup.backoff import Random, backoff_s
from streamgroup.errors import ConfigError
from streamgroup.frozen import frozen
from streamgroup.kafka.wire.messages.produce import ALL_ACKS, LEADER_ACKS, NO_ACKS

MOST_IN_FLIGHT = 5
"""A broker remembers the last five batches of a producer in each partition. It answers a repetition of one of them with
success, and a repetition of an older batch with OUT_OF_ORDER_SEQUENCE_NUMBER."""


class Idempotence(Enum):
    """The values of `enable.idempotence`."""

    OFF = "off"
    PREFERRED = "preferred"
    """If the options and the broker (0.11 and later) allow it: the default."""
    REQUIRED = "required"
    """Fail if the broker does not support it."""


@frozen
class ProducerConfig:
    """The options of a producer: batching, sending and retries. Times are in milliseconds and sizes in bytes.

    Raises ConfigError for a combination that Java's producer rejects too.
    """

    acks: int = ALL_ACKS
    idempotence: Idempotence = Idempotence.PREFERRED
    batch_size: int = 524_288
    linger_ms: int = 5
    buffer_memory: int = 32 * 1024 * 1024
    max_request_size: int = 1024 * 1024
    max_in_flight: int = 5
    """`max.in.flight.requests.per.connection`."""
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    max_block_ms: int = 60_000
    retries: int = 2**31 - 1
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    metadata_max_idle_ms: int = 300_000
    requester: Requester = UNKNOWN
    """The user that authorization errors name."""

    def __post_init__(self) -> None:
        if self.acks not in {NO_ACKS, LEADER_ACKS, ALL_ACKS}:
            raise ConfigError(f"invalid acks {self.acks}: expected 0, 1 or all (-1)")
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            raise ConfigError(
                f"delivery.timeout.ms={self.delivery_timeout_ms} is below linger.ms={self.linger_ms} plus "
                f"request.timeout.ms={self.request_timeout_ms}: increase it, or decrease one of the two"
            )
        if self.idempotence is Idempotence.REQUIRED and not self._allows_idempotence:
            raise ConfigError(
                f"enable.idempotence=true needs acks=all, max.in.flight.requests.per.connection of at most "
                f"{MOST_IN_FLIGHT} and retries of at least 1; here they are {self.acks}, {self.max_in_flight} and "
                f"{self.retries}. Change them, or leave enable.idempotence out"
            )

    @property
    def wants_idempotence(self) -> bool:
        """Whether the producer is idempotent: it requests a producer id.

        As in Java, options that exclude idempotence turn it off if `enable.idempotence` is not set.
        """
        return self.idempotence is not Idempotence.OFF and self._allows_idempotence

    @property
    def _allows_idempotence(self) -> bool:
        return self.acks == ALL_ACKS and 1 <= self.max_in_flight <= MOST_IN_FLIGHT and self.retries > 0

    def backoff_s(self, attempt: int, random: Random) -> float:
        """Return the seconds to wait before retry number `attempt` (the first retry is 1, KIP-580)."""
        return backoff_s(attempt, self.retry_backoff_ms, self.retry_backoff_max_ms, random)
