"""The transition table of a state machine: state x event -> method, and the states that the method may lead to.

`StateMachine` looks every event up in its table, and enforces the states at run time. The machines are `Membership`,
`StandaloneMember` and `RegistryMembership`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any


class State(Enum):
    """The state of a member."""

    UNJOINED = "unjoined"
    """Not started."""
    FINDING = "finding"
    """Looks for the group: its coordinator, a session in ZooKeeper, or the partitions. An eager member holds nothing
    from here until it is STABLE."""
    JOINING = "joining"
    """JoinGroup is pending or waits for its backoff. In ZooKeeper: registers, looks, releases and claims."""
    SYNCING = "syncing"
    """In the new generation: SyncGroup is pending, or the leader waits for metadata to assign partitions."""
    STABLE = "stable"
    """Holds an assignment."""
    LEAVING = "leaving"
    """LeaveGroup is pending, or the deletion of its nodes."""
    LEFT = "left"
    """Not a member any more."""
    FATAL = "fatal"
    """The query has failed; `Stop` still leaves the group."""


MemberCue = type[Any] | tuple[Enum, type[Any]] | Enum
"""A class of events; a request's purpose with the class of its answer; a timer."""


@dataclass(frozen=True, slots=True)
class MemberTransition:
    """In `state` the machine calls the method `does` for `cue`.

    The method stays in `state`, fails the query (FATAL), or leads to one of `to`. Its arguments after the machine are
    the event, for an answer also the pending request, and for a timer nothing.
    """

    state: State
    cue: MemberCue
    does: Callable[..., None]
    to: tuple[State, ...] = ()


Table = Mapping[tuple[State, MemberCue], MemberTransition]


def on(cue: MemberCue, states: Iterable[State], does: Callable[..., None], *to: State) -> Iterator[MemberTransition]:
    """Yield one row for each of `states`."""
    for state in states:
        yield MemberTransition(state, cue, does, to)


def ignore(*_: Any) -> None:
    """Do nothing about an event that is harmless in this state."""


def table_of(rows: Iterable[MemberTransition], *, ignored: Iterable[type[Any]] = ()) -> Table:
    """Return the rows as a table. The events of `ignored` are ignored in the states that have no row for them.

    Raises ValueError where two rows are for the same event in the same state.
    """
    table: dict[tuple[State, MemberCue], MemberTransition] = {}
    for row in rows:
        if (row.state, row.cue) in table:
            raise ValueError(f"two rows for {name_of(row.cue)} in state {row.state.name}")
        table[row.state, row.cue] = row
    for event in ignored:
        for state in State:
            table.setdefault((state, event), MemberTransition(state, event, ignore))
    return table


def name_of(cue: MemberCue) -> str:
    """Return the name of a cue: `JoinGroup answered`."""
    if isinstance(cue, tuple):
        return f"{cue[0]} {cue[1].__name__.removeprefix('Request').lower()}"
    return str(cue.value) if isinstance(cue, Enum) else cue.__name__
