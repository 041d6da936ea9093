"""The states of a producer: the table is whole."""

from __future__ import annotations

import pytest

from streamgroup.producer.table import TABLE, ProducerCue, ProducerState


def test_every_state_is_reached_and_only_a_failure_is_the_end() -> None:
    assert {row.to for row in TABLE.rows} | {ProducerState.NO_ID} == set(ProducerState)
    assert set(ProducerState) - {row.state for row in TABLE.rows} == {ProducerState.FAILED}
    assert {row.cue for row in TABLE.rows} == set(ProducerCue)


@pytest.mark.parametrize(
    ("state", "cue"),
    [
        (ProducerState.NO_ID, ProducerCue.ID_GIVEN),
        (ProducerState.READY, ProducerCue.ID_SPENT),
        (ProducerState.WITHOUT_ID, ProducerCue.BROKEN),
        (ProducerState.FAILED, ProducerCue.FATAL),
    ],
)
def test_an_illegal_transition_raises(state: ProducerState, cue: ProducerCue) -> None:
    with pytest.raises(ValueError, match=f"a producer that is {state.value} cannot take"):
        TABLE.next_state(state, cue)
