"""The tasks of one worker process remember which followers leaders have named, and which ones cannot be reached."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamgroup.executor.cursor import Cursor
from streamgroup.executor.replica_memory import REPLICAS, ReplicaChoice, ReplicaMemory, memory_of
from streamgroup.options.types import ClientOptions
from tests.unit.executor.lookups import FOLLOWER, OTHER, cursor

CLIENT = ClientOptions(bootstrap_servers=())


def of_topic(topic_id: str, partition: int = 0) -> Cursor:
    each = cursor(partition)
    each.topic_id = topic_id
    return each


@pytest.mark.parametrize(("now", "is_kept"), [(0.0, True), (9.9, True), (10.0, False), (11.0, False)])
def test_a_choice_holds_until_its_time(now: float, is_kept: bool) -> None:
    memory = ReplicaMemory()
    choice = ReplicaChoice(FOLLOWER, 10.0)
    memory.keep(cursor(), choice)
    assert memory.choice(cursor(), now) == (choice if is_kept else None)


def test_a_choice_is_for_one_partition_of_one_topic_id() -> None:
    """A topic that was deleted and created again has other replicas."""
    memory = ReplicaMemory()
    memory.keep(of_topic("old"), ReplicaChoice(FOLLOWER, 10.0))
    assert memory.choice(of_topic("new"), 0.0) is None
    assert memory.choice(of_topic("old", partition=1), 0.0) is None


def test_the_newest_choice_counts_also_where_it_is_the_leader() -> None:
    memory = ReplicaMemory()
    memory.keep(cursor(), ReplicaChoice(FOLLOWER, 10.0))
    memory.keep(cursor(), ReplicaChoice(None, 5.0))
    assert memory.choice(cursor(), 4.0) == ReplicaChoice(None, 5.0)
    assert memory.choice(cursor(), 6.0) is None


def test_an_unreachable_replica_is_avoided_until_its_time() -> None:
    memory = ReplicaMemory()
    memory.avoid(FOLLOWER, 10.0)
    assert [memory.avoided_until(FOLLOWER, now) for now in (0.0, 9.9, 10.0)] == [10.0, 10.0, None]
    assert memory.avoided_until(OTHER, 0.0) is None


def test_forgetting_one_partition_keeps_the_choices_of_others_and_gives_every_replica_another_chance() -> None:
    memory = ReplicaMemory()
    for partition in (0, 1):
        memory.keep(cursor(partition), ReplicaChoice(FOLLOWER, 10.0))
    memory.avoid(OTHER, 10.0)
    memory.forget(cursor(0))
    memory.forget(cursor(0))
    assert memory.choice(cursor(0), 0.0) is None
    assert memory.choice(cursor(1), 0.0) == ReplicaChoice(FOLLOWER, 10.0)
    assert memory.avoided_until(OTHER, 0.0) is None


def test_equal_options_and_rack_share_a_memory_and_others_do_not() -> None:
    memory = memory_of(CLIENT, "a")
    assert memory_of(replace(CLIENT), "a") is memory
    assert memory_of(CLIENT, "b") is not memory
    assert memory_of(replace(CLIENT, client_id="another"), "a") is not memory


def test_a_process_with_ever_new_options_keeps_a_bounded_number_of_memories() -> None:
    sizes = set()
    for number in range(200):
        memory_of(CLIENT, f"rack-{number}")
        sizes.add(len(REPLICAS))
    assert 1 < max(sizes) <= 64


def test_a_process_with_ever_new_partitions_keeps_a_bounded_number_of_choices() -> None:
    """The oldest go, and the newest is always there."""
    memory = ReplicaMemory()
    one, choice = cursor(), ReplicaChoice(FOLLOWER, 10.0)
    for number in range(10_001):
        one.topic_id = str(number)
        memory.keep(one, choice)
        assert memory.choice(one, 0.0) is choice
    assert memory.choice(of_topic("0"), 0.0) is None
