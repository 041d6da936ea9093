"""The states of a run: the table is complete, holds no dead end, and is the picture in the docs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streamgroup.run.table import TABLE, Cue, RunState, next_state, picture

DOCS = Path(__file__).parents[3] / "docs" / "run.md"


def test_the_picture_in_the_docs_is_drawn_from_the_table() -> None:
    pictures = re.findall(r"```mermaid\n(.*?)```", DOCS.read_text(), re.DOTALL)
    drawn = "\n".join(picture()) + "\n"
    assert pictures == [drawn], f"put this into {DOCS.name}:\n{drawn}"


def test_no_state_takes_one_cue_in_two_ways() -> None:
    assert len({(row.state, row.cue) for row in TABLE}) == len(TABLE)


@pytest.mark.parametrize("state", RunState)
def test_a_run_that_is_stopped_or_drained_in_any_state_comes_to_its_end(state: RunState) -> None:
    for way in (Cue.STOP, Cue.DRAIN):
        now = state
        for cue in (way, Cue.STOP, Cue.LEFT):
            if now in {RunState.LEAVING, RunState.STOPPED} and cue is Cue.STOP:
                continue  # `Shutdown.stop` waits for the one that leaves
            now = now if now is RunState.STOPPED else next_state(now, cue)
        assert now is RunState.STOPPED


@pytest.mark.parametrize(
    ("state", "cue"),
    [
        (RunState.NEW, Cue.JOIN),
        (RunState.OPENING, Cue.PAUSE),
        (RunState.RUNNING, Cue.CALL),
        (RunState.LEAVING, Cue.RESUME),
        (RunState.STOPPED, Cue.JOIN),
    ],
)
def test_an_illegal_transition_raises(state: RunState, cue: Cue) -> None:
    with pytest.raises(ValueError, match=f"a run that is {state.value} cannot take"):
        next_state(state, cue)
