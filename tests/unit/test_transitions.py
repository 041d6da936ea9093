"""A table of transitions: where a cue leads, and what it refuses."""

from __future__ import annotations

from enum import Enum

import pytest

from streamgroup.transitions import Transition, TransitionTable


class Door(Enum):
    OPEN = "open"
    SHUT = "shut"
    BROKEN = "broken"


class Cue(Enum):
    PUSH = "somebody pushes"
    PULL = "somebody pulls"


ROWS = (
    Transition(Door.OPEN, Cue.PUSH, Door.SHUT),
    Transition(Door.SHUT, Cue.PUSH, Door.SHUT),
    Transition(Door.SHUT, Cue.PULL, Door.BROKEN),
)


def test_a_cue_leads_to_the_state_of_its_row() -> None:
    table = TransitionTable("door", {Door.OPEN: ""}, ROWS)
    assert [table.next_state(row.state, row.cue) for row in table.rows] == [Door.SHUT, Door.SHUT, Door.BROKEN]


def test_a_cue_without_a_row_raises() -> None:
    table = TransitionTable("door", {Door.OPEN: ""}, ROWS)
    with pytest.raises(ValueError, match="a door in state open cannot handle 'somebody pulls'"):
        table.next_state(Door.OPEN, Cue.PULL)


def test_a_cue_has_one_row_in_each_state() -> None:
    with pytest.raises(ValueError, match="a door has two rows for 'somebody pushes' in state open"):
        TransitionTable("door", {Door.OPEN: ""}, (*ROWS, Transition(Door.OPEN, Cue.PUSH, Door.BROKEN)))
