"""Bugs to plant where the group is in ZooKeeper and Kafka has its offsets. See `bugs.py`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from streamgroup.coordinator.threads.registry_thread import OffsetsThread
from streamgroup.group.offsets import both
from streamgroup.group.offsets.both import AskKafka, DualOffsetStore, RegisteredKafkaStore
from streamgroup.group.offsets.store import CommitOffsets, OffsetsCommitted, Outcome
from tests.sim import checker as words
from tests.sim.bugs import Bug, replace
from tests.sim.settings import Kind


def commit_to_kafka_alone(stack: ExitStack) -> None:
    """The commit of a group with two stores goes to Kafka, and ZooKeeper is not asked."""

    def commit(self: DualOffsetStore, request: CommitOffsets, now: float) -> Outcome:
        return Outcome((AskKafka(request),))

    replace(stack, DualOffsetStore, "commit", commit)


def commit_to_zookeeper_alone(stack: ExitStack) -> None:
    """The commit of a group with two stores is done once ZooKeeper has it."""
    real = DualOffsetStore._passed_on

    def passed_on(self: DualOffsetStore, outcome: Outcome) -> Outcome:
        for answer in outcome.answers:
            if isinstance(answer, OffsetsCommitted):
                self._asked.pop(answer.token, None)
        return real(self, outcome)

    replace(stack, DualOffsetStore, "_passed_on", passed_on)


def take_zookeepers_offset(stack: ExitStack) -> None:
    """A fetch takes ZooKeeper's offset where there is one, also where Kafka's is newer."""

    def larger(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> dict[Any, Any]:
        return {**one, **other}

    replace(stack, both, "larger", larger)


def commit_without_a_look(stack: ExitStack) -> None:
    """A commit goes to Kafka, whether its member is still registered or not."""

    def commit(self: RegisteredKafkaStore, request: CommitOffsets, now: float) -> Outcome:
        return Outcome((AskKafka(request),))

    replace(stack, RegisteredKafkaStore, "commit", commit)


def send_what_was_withdrawn(stack: ExitStack) -> None:
    """The thread sends what it has taken, also of an epoch that is over."""
    replace(stack, OffsetsThread, "withdraw", lambda self: None)


_ZOOKEEPER = Kind.ZOOKEEPER

OFFSET_BUGS: Mapping[str, Bug] = {
    "r35-kafka-alone": Bug(
        "R35",
        "a commit to both stores goes to Kafka alone",
        commit_to_kafka_alone,
        frozenset({words.TWO_OWNERS}),
        known=(7, 11),
        kind=_ZOOKEEPER,
    ),
    "r35-zookeeper-alone": Bug(
        "R35",
        "a commit to both stores goes to ZooKeeper alone",
        commit_to_zookeeper_alone,
        frozenset({words.STUCK, words.DUPLICATE, words.NON_MONOTONIC}),
        known=(15, 20, 7),
        kind=_ZOOKEEPER,
    ),
    "r35-zookeepers-taken": Bug(
        "R35",
        "a fetch takes ZooKeeper's offset, also where Kafka's is newer",
        take_zookeepers_offset,
        frozenset({words.DUPLICATE, words.NON_MONOTONIC}),
        known=(11, 43, 51),
        kind=_ZOOKEEPER,
    ),
    "r35-no-look": Bug(
        "R35",
        "a commit goes to Kafka without a look at the registration",
        commit_without_a_look,
        frozenset({words.TWO_OWNERS}),
        known=(38, 45, 52),
        kind=_ZOOKEEPER,
    ),
    "r35-withdrawn": Bug(
        "R35",
        "a commit of an epoch that is over goes to Kafka",
        send_what_was_withdrawn,
        frozenset({words.TWO_OWNERS}),
        known=(268,),
        kind=_ZOOKEEPER,
    ),
}
