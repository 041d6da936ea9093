"""The log line of an assignment tells what a member gained, as far as the group's leader told it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from streamgroup.group import events as ev
from streamgroup.model import TopicPartition

A, B, C = (TopicPartition("orders", number) for number in range(3))


def assigned(*partitions: TopicPartition, members: int | None = None, total: int | None = None, **more: Any) -> str:
    """The line of group `g` about generation 4."""
    kept = more.pop("kept", frozenset())
    event = ev.Assigned(4, "m", partitions, kept, "range", leader=False, members=members, total=total, **more)
    return event.line("g")


@pytest.mark.parametrize(
    ("partitions", "members", "total", "line"),
    [
        ((), None, None, "joined g, generation 4, 0 partitions"),
        ((A,), None, None, "joined g, generation 4, 1 partition"),
        ((A, B), None, 6, "joined g, generation 4, 2 of 6 partitions"),
        ((A,), 1, 1, "joined g, generation 4, 1 of 1 partition, 0 other members"),
        ((A,), 2, None, "joined g, generation 4, 1 partition, 1 other member"),
        ((A, B, C), 4, 12, "joined g, generation 4, 3 of 12 partitions, 3 other members"),
    ],
)
def test_an_eager_members_line_counts_its_partitions_and_what_the_leader_told(
    partitions: tuple[TopicPartition, ...], members: int | None, total: int | None, line: str
) -> None:
    assert assigned(*partitions, members=members, total=total) == line


def test_a_group_in_zookeeper_is_named_by_its_keeper_and_without_a_generation() -> None:
    line = assigned(A, members=2, total=3, keeper="ZooKeeper")
    assert line == "joined g through ZooKeeper, 1 of 3 partitions, 1 other member"


@pytest.mark.parametrize(
    ("kept", "revoked", "changes"),
    [
        (frozenset(), frozenset(), ": keeps 0, gains 2"),
        (frozenset({A}), frozenset(), ": keeps 1, gains 1"),
        (frozenset({A, B}), frozenset({C}), ": keeps 2, gains 0, gives up 1 after its batch"),
    ],
)
def test_a_cooperative_members_line_tells_what_it_keeps_gains_and_gives_up(
    kept: frozenset[TopicPartition], revoked: frozenset[TopicPartition], changes: str
) -> None:
    line = assigned(A, B, members=1, total=2, cooperative=True, kept=kept, revoked=revoked)
    assert line == "joined g, generation 4, 2 of 2 partitions, 0 other members" + changes


@pytest.mark.parametrize(
    ("level", "name"),
    [(ev.DEBUG, "DEBUG"), (ev.INFO, "INFO"), (ev.WARNING, "WARNING"), (ev.ERROR, "ERROR")],
)
def test_the_level_of_a_note_is_the_one_of_the_standard_library(level: int, name: str) -> None:
    assert logging.getLevelName(level) == name


def test_each_cause_of_a_rejoin_is_a_word_that_a_metric_can_carry() -> None:
    words = [f"{cause}" for cause in ev.JoinCause]
    assert len(set(words)) == len(words)
    assert all(word.isascii() and word.isalpha() and word.islower() for word in words)
