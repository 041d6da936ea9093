"""The state machines, each drawn from its own table of transitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from streamgroup.coordinator.run.lifecycle import TABLE as RUN
from streamgroup.group.consumer_membership import ConsumerMembership
from streamgroup.group.membership import Membership
from streamgroup.group.registry.membership import RegistryMembership
from streamgroup.group.state_machine import MemberCue, State, Table
from streamgroup.kafka.producer.bookkeeping import TABLE as PRODUCER
from streamgroup.transitions import TransitionTable, name_of
from tools.pictures.ladder import Arrow, Band, Ladder, draw

Arrows = Mapping[tuple[Enum, Enum], Iterable[str]]
_FIRM = "\N{NO-BREAK SPACE}"
"""Keeps the name of a cue in one line."""
MOST_REQUESTS = 4
"""Names of requests of one kind in a label; more are counted."""


def run() -> str:
    """Return the states of a run."""
    return _of_table("The states of a run, and what leads from one to another", RUN)


def producer() -> str:
    """Return the states of a producer."""
    return _of_table("The states of a producer, and what leads from one to another", PRODUCER)


def member() -> str:
    """Return the states of a member of a Kafka group."""
    return _of_member("The states of a member of a Kafka group, and what leads from one to another", Membership.TABLE)


def consumer_member() -> str:
    """Return the states of a member of a Kafka group under the consumer protocol."""
    title = "The states of a member under the consumer protocol, and what leads from one to another"
    return _of_member(title, ConsumerMembership.TABLE)


def registered_member() -> str:
    """Return the states of a member of a group in ZooKeeper."""
    title = "The states of a member of a group in ZooKeeper, and what leads from one to another"
    return _of_member(title, RegistryMembership.TABLE)


def _of_table(title: str, table: TransitionTable[Any, Any]) -> str:
    arrows: dict[tuple[Enum, Enum], list[str]] = {}
    for row in table.rows:
        if row.to is not row.state:
            arrows.setdefault((row.state, row.to), []).append(row.cue.value)
    ends = {target for _, target in arrows} - {source for source, _ in arrows}
    return _draw(title, arrows, table.starts, ends)


def _of_member(title: str, table: Table) -> str:
    cues: dict[tuple[Enum, Enum], list[MemberCue]] = {}
    for row in table.values():
        for target in row.to:
            if target is not row.state:
                cues.setdefault((row.state, target), []).append(row.cue)
    arrows = {states: _labels(of) for states, of in cues.items()}
    return _draw(title, arrows, {State.UNJOINED: ""}, {State.LEFT})


def _labels(cues: list[MemberCue]) -> list[str]:
    """The names of `cues`. Answers to many requests, as ZooKeeper's, are named by what they say."""
    answers = [cue for cue in cues if isinstance(cue, tuple)]
    if len({cue[0] for cue in answers}) <= MOST_REQUESTS:
        return sorted(map(name_of, cues))
    others = sorted(name_of(cue) for cue in cues if not isinstance(cue, tuple))
    return [*others, f"answers to {len({cue[0] for cue in answers})} kinds of requests"]


def _draw(title: str, arrows: Arrows, starts: Mapping[Any, str], ends: set[Any]) -> str:
    used = {state for states in arrows for state in states}
    states = [state for state in type(next(iter(used))) if state in used]
    bands = []
    for source in states:
        rows = tuple(
            Arrow(
                states.index(source),
                states.index(target),
                f"{_FIRM}· ".join(label.replace(" ", _FIRM) for label in arrows[source, target]),
            )
            for target in states
            if (source, target) in arrows
        )
        if rows:
            bands.append(Band(source.name, rows))
    at = {states.index(state): reason for state, reason in starts.items()}
    names = tuple(state.name for state in states)
    return draw(Ladder(title, names, tuple(bands), starts=at, ends=frozenset(map(states.index, ends))))
