"""Transition tables of state machines. A leaf module.

A table has a row for each state and each cue that the state accepts. A cue is the cause of a transition: an event, the
response to a request, or a timer. `TransitionTable` is for machines whose rows name the next state. The machines of
`group/` use a `CueTable` whose rows name methods (`group/state_machine.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from streamgroup.frozen import frozen


class CueRow(Protocol):
    """One row of a `CueTable`: the reaction of a state machine to `cue` in `state`."""

    @property
    def state(self) -> Any:
        """The state, a member of an enum."""

    @property
    def cue(self) -> Any:
        """The cause of the transition: one of the types that `name_of` accepts."""


S = TypeVar("S")
C = TypeVar("C")
R = TypeVar("R", bound=CueRow)


def name_of(cue: Any) -> str:
    """Return the name of a cue for messages.

    A cue is a member of an enum, a class of events, or a pair: the purpose of a request, and the class of its outcome.
    """
    if isinstance(cue, tuple):
        return f"{cue[0]} {cue[1].__name__.removeprefix('Request').lower()}"
    return str(cue.value) if isinstance(cue, Enum) else str(cue.__name__)


class CueTable(dict[tuple[S, C], R]):
    """A dictionary from (state, cue) to the row of one kind of state machine."""

    def __init__(self, machine: str, rows: Iterable[R]) -> None:
        """Index `rows`. `machine` is the machine's name in errors.

        Raises ValueError if two rows have the same state and cue.
        """
        super().__init__()
        self._machine = machine
        for row in rows:
            if (row.state, row.cue) in self:
                raise ValueError(
                    f"a {machine} has two rows for {name_of(row.cue)!r} in state {row.state.value}. Remove one of them"
                )
            self[row.state, row.cue] = row


@frozen
class Transition(Generic[S, C]):
    """In `state`, `cue` leads to `to`, which may be the same state."""

    state: S
    cue: C
    to: S


class TransitionTable(CueTable[S, C, Transition[S, C]]):
    """The allowed transitions of one kind of state machine. `S` is the type of states, `C` the type of cues."""

    def __init__(self, machine: str, starts: Mapping[S, str], rows: tuple[Transition[S, C], ...]) -> None:
        """Index `rows`. `starts` has the start states of the machine, each with the reason for it, or ""."""
        super().__init__(machine, rows)
        self.rows = rows
        self.starts = starts

    def next_state(self, state: S, cue: C) -> S:
        """Return the state that `cue` leads to from `state`.

        Raises ValueError if the table has no such row, which is a defect of the machine.
        """
        row = self.get((state, cue))
        if row is None:
            raise ValueError(
                f"a {self._machine} in state {getattr(state, 'value', state)} cannot handle {name_of(cue)!r}"
            )
        return row.to
