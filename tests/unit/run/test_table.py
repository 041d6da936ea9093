"""The states of a run: the table is complete, and holds no dead end."""

from __future__ import annotations

import pytest

from streamgroup.run.table import TABLE, RunCue, RunState


@pytest.mark.parametrize("state", RunState)
def test_a_run_that_is_stopped_or_drained_in_any_state_comes_to_its_end(state: RunState) -> None:
    for way in (RunCue.STOP, RunCue.DRAIN):
        now = state
        for cue in (way, RunCue.STOP, RunCue.LEFT):
            if now in {RunState.LEAVING, RunState.STOPPED} and cue is RunCue.STOP:
                continue  # `Shutdown.stop` waits for the one that leaves
            now = now if now is RunState.STOPPED else TABLE.next_state(now, cue)
        assert now is RunState.STOPPED


@pytest.mark.parametrize(
    ("state", "cue"),
    [
        (RunState.NEW, RunCue.JOIN),
        (RunState.OPENING, RunCue.PAUSE),
        (RunState.RUNNING, RunCue.CALL),
        (RunState.LEAVING, RunCue.RESUME),
        (RunState.STOPPED, RunCue.JOIN),
    ],
)
def test_an_illegal_transition_raises(state: RunState, cue: RunCue) -> None:
    with pytest.raises(ValueError, match=f"a run that is {state.value} cannot take"):
        TABLE.next_state(state, cue)
