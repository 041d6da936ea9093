"""The differences between the logs of Kafka and the logs of Kafka 0.7: offsets and the names of partitions.

Kafka 0.7 differs in four facts. Planning, messages and the command line read these from a `LogFormat`, and do not
compare releases:

- An offset is a byte position. Only positions where a message begins can be read from (R34).
- Each broker numbers its own partitions. `2-17` is partition 17 of broker 2. Rows have an int column, so its
  number is 20017.
- A partition exists only while its broker is registered in ZooKeeper.
- The messages of one compressed set have the same offset.

A leaf module. `streamgroup.executor.read.read_format` contains the code that reads the bytes of each log format in
tasks. `streamgroup.kafka.net.link` uses the protocol of the brokers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from streamgroup.model import TopicPartition

PARTITIONS_PER_BROKER = 10_000
"""Kafka 0.7 numbers partitions within each broker. Its `2-17` (broker 2, partition 17) is the number 20017 here."""
_MAX_PARTITION = 2**31 - 1
_DIGITS = "(?:0|[1-9][0-9]{0,9})"
"""A number without leading zeros: else `00` and `0` would name the same partition."""


def partition_number(broker: int, partition: int) -> int:
    """Return the number (int) of partition `partition` of `broker` in Kafka 0.7: 20017 for `2-17`.

    Raises ValueError if it does not fit into an int column.
    """
    number = broker * PARTITIONS_PER_BROKER + partition
    if broker < 0 or not 0 <= partition < PARTITIONS_PER_BROKER or number > _MAX_PARTITION:
        raise ValueError(f"partition {broker}-{partition} has no number: broker ids up to 214747, partitions to 9999")
    return number


def broker_partition(number: int) -> tuple[int, int]:
    """Return the broker id and the partition on that broker for a Kafka 0.7 partition: (2, 17) for 20017."""
    return divmod(number, PARTITIONS_PER_BROKER)


@dataclass(frozen=True, eq=False)
class LogFormat:
    """The properties of the logs of Kafka (`KAFKA_LOG`) or of Kafka 0.7 (`KAFKA07_LOG`)."""

    offset_noun: str = "offset"
    """The word for the place of a record in errors and log lines: an offset, or a byte position."""
    unit: str = "offsets"
    """The unit of the difference of two offsets."""
    content: str = "records"
    """What is between two offsets, at most one per offset."""
    log_unit: str | None = None
    """The field `unit` of a log line, which only lines that count bytes have."""
    has_boundaries: bool = False
    """Whether reading can start only at some offsets, so a range must begin and end where a message does (R34)."""
    is_broker_bound: bool = False
    """Whether a partition exists only while its broker is registered, so that its absence is not a deletion."""
    has_shared_offsets: bool = False
    """Whether the messages of a compressed set have one offset, and differ by their index in it."""

    def partition_name(self, number: int) -> str:
        """Return the name of partition `number` in ZooKeeper and in the cluster's own tools."""
        return str(number)

    def partition_label(self, number: int) -> int | str:
        """Return partition `number` for a table or for JSON: a number, or a name such as `2-17` in Kafka 0.7."""
        return number

    def partition_number(self, name: str) -> int:
        """Return the number of the partition that is called `name`. Raises ValueError with the reason."""
        if re.fullmatch(_DIGITS, name) is None:
            raise ValueError("expected a partition number")
        if int(name) > _MAX_PARTITION:
            raise ValueError(f"expected a partition number up to {_MAX_PARTITION}")
        return int(name)

    def name(self, tp: TopicPartition) -> str:
        """Return the name of `tp` in messages: `orders-0`, or `events 1-2` in Kafka 0.7."""
        return str(tp)

    def broker_of(self, number: int) -> int | None:
        """Return the id of the only broker that can have partition `number`; None if any broker can lead it."""
        return None

    def describe_range(self, tp: TopicPartition, start: int, until: int) -> str:
        """Return the offsets `[start, until)` of `tp` as text for messages."""
        return f"{self.name(tp)}: the offsets [{start}, {until})"


class _Kafka07LogFormat(LogFormat):
    def partition_name(self, number: int) -> str:
        return "{}-{}".format(*broker_partition(number))

    def partition_label(self, number: int) -> int | str:
        return self.partition_name(number)

    def partition_number(self, name: str) -> int:
        found = re.fullmatch(f"({_DIGITS})-({_DIGITS})", name)
        if found is None:
            raise ValueError("expected <broker>-<partition>")
        return partition_number(int(found[1]), int(found[2]))

    def name(self, tp: TopicPartition) -> str:
        return f"{tp.topic} {self.partition_name(tp.partition)}"

    def broker_of(self, number: int) -> int | None:
        return broker_partition(number)[0]

    def describe_range(self, tp: TopicPartition, start: int, until: int) -> str:
        return f"{self.name(tp)}: {until - start} bytes at the positions [{start}, {until})"


KAFKA_LOG: Final = LogFormat()
"""Kafka 0.8 and everything after it: offsets count records, and the cluster numbers the partitions of a topic."""
KAFKA07_LOG: Final[LogFormat] = _Kafka07LogFormat(
    offset_noun="position",
    unit="bytes",
    content="bytes",
    log_unit="bytes",
    has_boundaries=True,
    is_broker_bound=True,
    has_shared_offsets=True,
)
"""Kafka 0.7: see the module."""
