"""The plan of a backfill: the offsets to read, divided into steps. Pure functions of values.

A plan is made once, with the offsets that the logs have then, and outlives the run that made it. So a restart reads
the same records, whatever has been written or deleted since.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streamgroup.model import OffsetRange, TopicPartition

VERSION = 1

Offsets = dict[str, dict[str, int]]
"""Offsets by topic and partition, as the options of Spark's source have them."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step: the ranges that one Spark job reads and writes. `number` counts from 0."""

    number: int
    ranges: tuple[OffsetRange, ...]

    def __len__(self) -> int:
        return sum(map(len, self.ranges))

    def options(self) -> dict[str, str]:
        """Return the options of a batch read of exactly these ranges."""
        partitions: dict[str, list[int]] = {}
        starts: Offsets = {}
        ends: Offsets = {}
        for range_ in self.ranges:
            topic, partition = range_.partition
            partitions.setdefault(topic, []).append(partition)
            starts.setdefault(topic, {})[str(partition)] = range_.start
            ends.setdefault(topic, {})[str(partition)] = range_.until
        return {
            "assign": json.dumps(partitions),
            "startingOffsets": json.dumps(starts),
            "endingOffsets": json.dumps(ends),
        }


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """The ranges of all partitions, and the purpose that they were planned for.

    `purpose` holds what must not change between two runs of one backfill, such as the topics and the sink.
    """

    ranges: tuple[OffsetRange, ...]
    offsets_per_step: int
    purpose: Mapping[str, str]

    def __len__(self) -> int:
        return sum(map(len, self.ranges))

    @property
    def step_count(self) -> int:
        """Return the number of steps."""
        return -(-len(self) // self.offsets_per_step)

    def steps(self, after: int = 0) -> Iterator[Step]:
        """Yield the steps from number `after` on. Each takes the same share of every partition."""
        count = self.step_count
        for number in range(after, count):
            ranges = (_share(range_, number, count) for range_ in self.ranges)
            yield Step(number, tuple(range_ for range_ in ranges if len(range_)))

    def to_json(self) -> str:
        """Return the plan as text, from which `from_json` reads it."""
        ranges = [[*range_.partition, range_.start, range_.until] for range_ in self.ranges]
        value = {
            "version": VERSION,
            "offsets_per_step": self.offsets_per_step,
            "purpose": dict(self.purpose),
            "ranges": ranges,
        }
        return json.dumps(value, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> BackfillPlan:
        """Return the plan of a text. Raises ValueError if it is not a plan of this version."""
        try:
            value = json.loads(text)
            if value["version"] != VERSION:
                raise ValueError(f"its version is {value['version']}, expected {VERSION}")
            offsets_per_step = int(value["offsets_per_step"])
            if offsets_per_step < 1:
                raise ValueError(f"its steps have {offsets_per_step} offsets")
            purpose = {str(name): str(text) for name, text in value["purpose"].items()}
            return cls(tuple(_range_of(*entry) for entry in value["ranges"]), offsets_per_step, purpose)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it lacks {error}") from None
        except (OverflowError, RecursionError) as error:
            raise ValueError(f"it cannot be read: {error}") from None


def plan_of(ranges: Iterable[OffsetRange], offsets_per_step: int, purpose: Mapping[str, str]) -> BackfillPlan:
    """Return the plan of ranges, of which several may follow one another in a partition."""
    whole: dict[TopicPartition, OffsetRange] = {}
    for range_ in ranges:
        before = whole.get(range_.partition, range_)
        start, until = min(before.start, range_.start), max(before.until, range_.until)
        whole[range_.partition] = OffsetRange(range_.partition, start, until)
    return BackfillPlan(tuple(whole[partition] for partition in sorted(whole)), offsets_per_step, purpose)


def _share(range_: OffsetRange, number: int, count: int) -> OffsetRange:
    start, until = (range_.start + len(range_) * share // count for share in (number, number + 1))
    return OffsetRange(range_.partition, start, until)


def _range_of(topic: Any, partition: Any, start: Any, until: Any) -> OffsetRange:
    return OffsetRange(TopicPartition(str(topic), int(partition)), int(start), int(until))
