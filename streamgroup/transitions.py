"""Tables of transitions: the row of each cue in each state of a machine. A leaf module.

A cue causes a transition: an event, a request's answer, a timer. `TransitionTable` is for machines whose rows name the
next state. The members of a group have rows with methods (`group/state_machine.py`), in a plain `CueTable`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar


class CueRow(Protocol):
    """What a machine does about `cue` in `state`."""

    @property
    def state(self) -> Any:
        """A member of an enum."""

    @property
    def cue(self) -> Any:
        """See `name_of`."""


S = TypeVar("S")
C = TypeVar("C")
R = TypeVar("R", bound=CueRow)


def name_of(cue: Any) -> str:
    """Return the name of a cue: a member of an enum, a class of events, or a request's purpose with such a class."""
    if isinstance(cue, tuple):
        return f"{cue[0]} {cue[1].__name__.removeprefix('Request').lower()}"
    return str(cue.value) if isinstance(cue, Enum) else str(cue.__name__)


class CueTable(dict[tuple[S, C], R]):
    """The rows of one kind of machine by state and cue."""

    def __init__(self, machine: str, rows: Iterable[R]) -> None:
        """`machine` names it in errors. Raises ValueError if two rows are for the same cue in the same state."""
        super().__init__()
        self._machine = machine
        for row in rows:
            if (row.state, row.cue) in self:
                raise ValueError(
                    f"a {machine} has two rows for {name_of(row.cue)!r} in state {row.state.value}. Remove one of them"
                )
            self[row.state, row.cue] = row


@dataclass(frozen=True, slots=True)
class Transition(Generic[S, C]):
    """In `state`, `cue` leads to `to`, which may be the same state."""

    state: S
    cue: C
    to: S


class TransitionTable(CueTable[S, C, Transition[S, C]]):
    """The legal transitions of one kind of machine, with the states `S` and the causes `C`."""

    def __init__(self, machine: str, starts: Mapping[S, str], rows: tuple[Transition[S, C], ...]) -> None:
        """A machine starts in one of `starts`, each with the reason, or ""."""
        super().__init__(machine, rows)
        self.rows = rows
        self.starts = starts

    def next_state(self, state: S, cue: C) -> S:
        """Return the state that `cue` leads to. Raises ValueError if the table lacks the row: a defect."""
        row = self.get((state, cue))
        if row is None:
            raise ValueError(f"a {self._machine} that is {getattr(state, 'value', state)} cannot take {name_of(cue)!r}")
        return row.to
