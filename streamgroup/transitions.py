"""The states of a machine and the transitions between them as a table. A leaf module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

S = TypeVar("S", bound=Enum)
C = TypeVar("C", bound=Enum)


@dataclass(frozen=True, slots=True)
class Transition(Generic[S, C]):
    """In `state`, `cue` leads to `to`, which may be the same state."""

    state: S
    cue: C
    to: S


class TransitionTable(Generic[S, C]):
    """The legal transitions of one kind of machine, with the states `S` and the causes `C`."""

    def __init__(self, machine: str, starts: Mapping[S, str], rows: tuple[Transition[S, C], ...]) -> None:
        """`machine` names it in errors. A machine begins in one of `starts`, each with the reason, or "".

        Raises ValueError where two rows are for the same cue in the same state.
        """
        self.rows = rows
        self.starts = starts
        self._machine = machine
        self._next = {(row.state, row.cue): row.to for row in rows}
        if len(self._next) != len(rows):
            raise ValueError(f"a {machine} takes a cue in two ways in one state. Remove one of the two rows")

    def next_state(self, state: S, cue: C) -> S:
        """Return the state that `cue` leads to. Raises ValueError if the table lacks the row: a defect."""
        if (state, cue) not in self._next:
            raise ValueError(f"a {self._machine} that is {state.value} cannot take {cue.value!r}")
        return self._next[state, cue]
