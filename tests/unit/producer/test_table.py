"""The states of a producer: the table is whole, and is the picture in the docs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streamgroup.producer.table import TABLE, Cue, ProducerState, next_state, picture

DOCS = Path(__file__).parents[3] / "docs" / "producer.md"


def test_the_picture_in_the_docs_is_drawn_from_the_table() -> None:
    pictures = re.findall(r"```mermaid\n(.*?)```", DOCS.read_text(), re.DOTALL)
    drawn = "\n".join(picture()) + "\n"
    assert pictures == [drawn], f"put this into {DOCS.name}:\n{drawn}"


def test_no_state_takes_one_cue_in_two_ways() -> None:
    assert len({(row.state, row.cue) for row in TABLE}) == len(TABLE)


def test_every_state_is_reached_and_only_a_failure_is_the_end() -> None:
    assert {row.to for row in TABLE} | {ProducerState.NO_ID} == set(ProducerState)
    assert set(ProducerState) - {row.state for row in TABLE} == {ProducerState.FAILED}
    assert {row.cue for row in TABLE} == set(Cue)


@pytest.mark.parametrize(
    ("state", "cue"),
    [
        (ProducerState.NO_ID, Cue.ID_GIVEN),
        (ProducerState.READY, Cue.ID_SPENT),
        (ProducerState.WITHOUT_ID, Cue.BROKEN),
        (ProducerState.FAILED, Cue.FATAL),
    ],
)
def test_an_illegal_transition_raises(state: ProducerState, cue: Cue) -> None:
    with pytest.raises(ValueError, match=f"a producer that is {state.value} cannot take"):
        next_state(state, cue)
