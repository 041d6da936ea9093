"""The plan of a mirror: into which topic and partition the records of each source partition go.

Pure functions of the partitions of both clusters and of the previous plan. A plan is stored, so that a restart never
moves a partition, which would change the order of its records at the destination.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Any

from streamgroup.errors import ConfigError
from streamgroup.frozen import frozen
from streamgroup.jobs.sinkguard import Files
from streamgroup.logformat import LogFormat
from streamgroup.text import MOST_NAMED, counted, first_of

VERSION = 1


class Placement(Enum):
    """How records are placed in the partitions of the destination. The value is the word in the job file."""

    KEEP = "keep"
    """Each source partition has a partition of its own."""
    HASH = "hash"
    """A record goes to the partition of its key. Records without a key stay together by source partition."""
    AUTO = "auto"
    """KEEP if both topics have the same number of partitions when the mirror first sees them, else HASH."""


@frozen
class TopicPlan:
    """Into which destination partitions the records of one topic go. `placement` is never AUTO."""

    source: str
    destination: str
    placement: Placement
    partitions: Mapping[int, int]
    """The destination partition by source partition; with HASH of the records without a key."""

    @property
    def is_identity(self) -> bool:
        return self.placement is Placement.KEEP and all(ours == theirs for ours, theirs in self.partitions.items())


@frozen
class MirrorPlan:
    """The plans of all mirrored topics, by the topic name at the source."""

    topics: Mapping[str, TopicPlan] = field(default_factory=dict)

    def of(self, topics: Iterable[str]) -> MirrorPlan:
        return MirrorPlan({topic: self.topics[topic] for topic in topics})

    def to_json(self) -> str:
        topics = {
            name: {
                "destination": topic.destination,
                "placement": topic.placement.value,
                "partitions": {str(ours): theirs for ours, theirs in sorted(topic.partitions.items())},
            }
            for name, topic in sorted(self.topics.items())
        }
        return json.dumps({"version": VERSION, "topics": topics}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> MirrorPlan:
        """Return the plan of a text. Raises ValueError if it is not a plan of this version."""
        try:
            value = json.loads(text)
            if value["version"] != VERSION:
                raise ValueError(f"its version is {value['version']}, expected {VERSION}")
            return cls({name: _topic_of(name, entry) for name, entry in value["topics"].items()})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it lacks {error}") from None
        except (OverflowError, RecursionError) as error:
            raise ValueError(f"it cannot be read: {error}") from None


def _topic_of(name: str, entry: Mapping[str, Any]) -> TopicPlan:
    partitions = {int(ours): int(theirs) for ours, theirs in entry["partitions"].items()}
    return TopicPlan(name, str(entry["destination"]), Placement(entry["placement"]), partitions)


@frozen
class Side:
    """A topic's name and partitions in one of the two clusters."""

    name: str
    partitions: Sequence[int]
    log_format: LogFormat

    def __str__(self) -> str:
        return f"{self.name!r} ({counted(len(self.partitions), 'partition')})"


def plan_topic(source: Side, destination: Side, wanted: Placement, before: TopicPlan | None = None) -> TopicPlan:
    """Return the plan of one topic.

    Partitions keep their place in `before` unless the job file now has another placement or another topic. Raises
    ConfigError if the partitions cannot be kept.
    """
    if before is not None and before.destination != destination.name:
        before = None
    if wanted is Placement.AUTO:
        same = len(source.partitions) == len(destination.partitions)
        placement = before.placement if before is not None else Placement.KEEP if same else Placement.HASH
    else:
        placement = wanted
    held: Mapping[int, int] = before.partitions if before is not None and before.placement is placement else {}
    partitions = _hashed(source, destination, held) if placement is Placement.HASH else _kept(source, destination, held)
    return TopicPlan(source.name, destination.name, placement, partitions)


def _kept(source: Side, destination: Side, before: Mapping[int, int]) -> dict[int, int]:
    """Return a different destination partition for each source partition."""
    if not (source.log_format.is_broker_bound or destination.log_format.is_broker_bound):
        if missing := sorted(set(source.partitions) - set(destination.partitions)):
            raise _too_few(source, destination, missing)
        return {partition: partition for partition in source.partitions}
    # The numbers of Kafka 0.7 name brokers, so the partitions are numbered in the order in which they appeared.
    kept = dict(before)
    free = sorted(set(destination.partitions) - set(kept.values()))
    for partition in sorted(set(source.partitions) - kept.keys()):
        if not free:
            raise _too_few(source, destination, sorted(set(source.partitions) - kept.keys()))
        kept[partition] = free.pop(0)
    return kept


def _too_few(source: Side, destination: Side, without: Sequence[int]) -> ConfigError:
    names = first_of([source.log_format.partition_name(each) for each in without], MOST_NAMED, "partition")
    return ConfigError(
        f"cannot keep the partitions of topic {source}: {destination} has none for partition {names}. Add partitions "
        f'to {destination.name!r}, or place its records by their keys: [topics] partitions = "hash"'
    )


def _hashed(source: Side, destination: Side, before: Mapping[int, int]) -> dict[int, int]:
    """Return the partitions of records without a key, evenly divided over the destination."""
    if not destination.partitions:
        raise ConfigError(f"cannot mirror into topic {destination}: no broker is there. Start the brokers")
    placed = {ours: theirs for ours, theirs in before.items() if theirs in set(destination.partitions)}
    for partition in sorted(set(source.partitions) - placed.keys()):
        placed[partition] = sorted(destination.partitions)[len(placed) % len(destination.partitions)]
    return placed


_NAME = re.compile(r"(\d{1,9})\.json")


def latest(files: Files, directory: str) -> tuple[int, MirrorPlan]:
    """Return the newest plan and its number, or an empty plan and -1. Raises ConfigError if its file is damaged."""
    numbers = [int(found[1]) for name in files.names(directory) if (found := _NAME.fullmatch(name))]
    if not numbers:
        return -1, MirrorPlan()
    path = f"{directory}/{max(numbers)}.json"
    try:
        return max(numbers), MirrorPlan.from_json(files.read(path) or "")
    except ValueError as error:
        raise ConfigError(
            f"cannot read the plan of the mirror in {path}: {error}. Restore the file, or remove it to go back to the "
            "plan before"
        ) from None


def settle(files: Files, directory: str, make: Callable[[MirrorPlan], MirrorPlan]) -> MirrorPlan:
    """Return the plan that `make` makes of the newest one, after it has been written.

    Members that plan at the same time agree: each number is created once, and the member that comes second plans again
    on top of the other's.
    """
    while True:
        number, before = latest(files, directory)
        plan = make(before)
        if plan == before or files.create(f"{directory}/{number + 1}.json", plan.to_json()):
            return plan
