"""The membership machine as a table: in which state what is heard, what is done about it, and where that may lead.

`Membership` looks every event up here and has a method for each `does`; docs/group.md has the picture drawn from it.
Two things are left out of it: every row may lead to FATAL, and answers to requests that were given up are not looked up
at all (R18).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from streamgroup.group import events as ev
from streamgroup.group.exchange import Purpose, Timer


class State(Enum):
    """Where the member stands."""

    UNJOINED = "unjoined"
    """Not started."""
    FINDING = "finding"
    """Wants the coordinator's address. Here, and until it is STABLE, an eager member holds nothing."""
    JOINING = "joining"
    """JoinGroup is out or waits for its backoff."""
    SYNCING = "syncing"
    """In the new generation; SyncGroup is out, or the leader waits for metadata to assign."""
    STABLE = "stable"
    """Holds an assignment."""
    LEAVING = "leaving"
    """LeaveGroup is out."""
    LEFT = "left"
    """No member any more."""
    FATAL = "fatal"
    """The query has failed; `Stop` still leaves the group."""


Heard = type[ev.Event] | tuple[Purpose, type[ev.Answered] | type[ev.Failed]] | Timer
"""An event, an answer to one's own request or its failure, or the machine's own time."""


@dataclass(frozen=True, slots=True)
class Row:
    """In `state`, `heard` is answered by the method `does`, which may lead to one of `to` (or stay, or fail)."""

    state: State
    heard: Heard
    does: str
    to: tuple[State, ...] = ()


def name_of(heard: Heard) -> str:
    """What was heard, in words: `JoinGroup answered`."""
    if isinstance(heard, tuple):
        return f"{heard[0].api.NAME} {heard[1].__name__.lower()}"
    return heard.value if isinstance(heard, Timer) else heard.__name__


_UNJOINED, _FINDING, _JOINING, _SYNCING = State.UNJOINED, State.FINDING, State.JOINING, State.SYNCING
_STABLE, _LEAVING, _LEFT, _FATAL = State.STABLE, State.LEAVING, State.LEFT, State.FATAL
_AGAIN = (_FINDING, _JOINING)

_ROWS = (
    Row(_UNJOINED, ev.Start, "start", (_FINDING,)),
    Row(_LEFT, ev.Start, "start", (_FINDING,)),  # back after a silence of Spark, as a new member (R27)
    Row(_FINDING, (Purpose.FIND, ev.Answered), "found", (_JOINING,)),
    Row(_FINDING, (Purpose.FIND, ev.Failed), "find_failed"),
    Row(_FINDING, Timer.RETRY, "find"),
    Row(_JOINING, (Purpose.JOIN, ev.Answered), "join_answered", (_SYNCING, _FINDING)),
    Row(_JOINING, (Purpose.JOIN, ev.Failed), "request_failed", (_FINDING,)),
    Row(_JOINING, Timer.RETRY, "join"),
    # Asked in the generation that is kept meanwhile (R25), before the JoinGroup.
    Row(_JOINING, (Purpose.HEARTBEAT, ev.Answered), "late_heartbeat_answered"),
    Row(_JOINING, (Purpose.HEARTBEAT, ev.Failed), "ignore"),
    Row(_SYNCING, ev.TopicsKnown, "assign"),
    Row(_SYNCING, Timer.TOPICS, "topics_overdue"),
    Row(_SYNCING, (Purpose.SYNC, ev.Answered), "sync_answered", (_STABLE, *_AGAIN)),
    Row(_SYNCING, (Purpose.SYNC, ev.Failed), "request_failed", (_FINDING,)),
    Row(_SYNCING, Timer.HEARTBEAT, "heartbeat"),
    Row(_SYNCING, (Purpose.HEARTBEAT, ev.Answered), "early_heartbeat_answered", _AGAIN),
    Row(_SYNCING, (Purpose.HEARTBEAT, ev.Failed), "request_failed", (_FINDING,)),
    Row(_SYNCING, ev.CoordinatorGone, "coordinator_gone", (_FINDING,)),
    Row(_STABLE, Timer.HEARTBEAT, "heartbeat"),
    Row(_STABLE, (Purpose.HEARTBEAT, ev.Answered), "heartbeat_answered", _AGAIN),
    Row(_STABLE, (Purpose.HEARTBEAT, ev.Failed), "request_failed"),
    Row(_STABLE, Timer.SESSION, "session_over", _AGAIN),
    Row(_STABLE, ev.CommitAccepted, "commit_accepted"),
    Row(_STABLE, ev.CommitRefused, "commit_refused", _AGAIN),
    Row(_STABLE, ev.CoordinatorGone, "coordinator_gone"),
    Row(_STABLE, Timer.RETRY, "find"),
    Row(_STABLE, (Purpose.FIND, ev.Answered), "found_again"),
    Row(_STABLE, (Purpose.FIND, ev.Failed), "find_failed"),
    Row(_STABLE, ev.Asked, "asked"),
    Row(_STABLE, ev.Idle, "idle", _AGAIN),
    Row(_STABLE, ev.Released, "released", _AGAIN),
    Row(_STABLE, ev.Settled, "settled", _AGAIN),
    Row(_STABLE, Timer.REJOIN, "waited_enough", _AGAIN),
    Row(_STABLE, ev.TopicsKnown, "counted", _AGAIN),
    Row(_STABLE, ev.Subscribed, "resubscribed", _AGAIN),
    Row(_LEAVING, (Purpose.LEAVE, ev.Answered), "leave_answered", (_LEFT,)),
    Row(_LEAVING, (Purpose.LEAVE, ev.Failed), "leave_failed", (_LEFT,)),
)

_MEMBER = (_FINDING, _JOINING, _SYNCING, _STABLE)
_OVER = (_LEAVING, _LEFT, _FATAL)

_IN_MANY = (
    # Spark's calls and the cluster's news come when they come: before the member has joined, and after it has lost.
    # One that has left may come back, and must know then whether a batch is in flight.
    *(Row(state, ev.Planned, "planned") for state in (_UNJOINED, *_MEMBER, *_OVER)),
    *(Row(state, ev.Asked, "asked") for state in (_UNJOINED, *_MEMBER[:-1], *_OVER)),
    *(Row(state, ev.Idle, "idle") for state in (_UNJOINED, *_MEMBER[:-1], *_OVER)),
    *(Row(state, ev.Subscribed, "subscribed") for state in (_UNJOINED, *_MEMBER[:-1])),
    *(Row(state, ev.Stop, "stop", (_LEFT,)) for state in (_UNJOINED, _FINDING)),
    *(Row(state, ev.Stop, "stop", (_LEAVING, _LEFT)) for state in (_JOINING, _SYNCING, _STABLE, _FATAL)),
    *(Row(state, ev.Stop, "ignore") for state in (_LEAVING, _LEFT)),
    *(Row(state, ev.Tick, "ignore") for state in State),  # each step looks at the time
    *(Row(state, ev.Identified, "identified") for state in State),
    *(Row(state, ev.TopicsKnown, "ignore") for state in (_UNJOINED, *_MEMBER[:2])),
    # A JoinGroup that waits has a connection of its own, which tells its own fate.
    *(Row(state, ev.CoordinatorGone, "ignore") for state in (_UNJOINED, *_MEMBER[:2])),
    # Commits of a generation that is kept (R25) or given up (R18). What a refusal means, the JoinGroup will tell.
    *(Row(state, ev.CommitAccepted, "late_commit_accepted") for state in _MEMBER[:-1]),
    *(Row(state, ev.CommitRefused, "ignore") for state in _MEMBER[:-1]),
    *(Row(_UNJOINED, commit, "ignore") for commit in (ev.CommitAccepted, ev.CommitRefused)),
    # Where the group rebalances again, the next assignment says anew what is to be given up.
    *(Row(state, ev.Released, "ignore") for state in State if state is not _STABLE),
    *(Row(state, ev.Settled, "ignore") for state in State if state is not _STABLE),
    *(
        Row(state, event, "ignore")
        for state in _OVER
        for event in (
            ev.Subscribed,
            ev.TopicsKnown,
            ev.CoordinatorGone,
            ev.CommitAccepted,
            ev.CommitRefused,
        )
    ),
)

TABLE = {(row.state, row.heard): row for row in (*_ROWS, *_IN_MANY)}
assert len(TABLE) == len(_ROWS) + len(_IN_MANY), "a state hears a thing twice"


def diagram() -> Iterator[str]:
    """The rows that change the state, as the lines of a Mermaid state diagram."""
    yield "stateDiagram-v2"
    yield f"    [*] --> {_UNJOINED.name}"
    arrows: dict[tuple[State, State], list[str]] = {}
    for row in TABLE.values():
        for target in row.to:
            arrows.setdefault((row.state, target), []).append(name_of(row.heard))
    for (source, target), heard in sorted(arrows.items(), key=lambda arrow: [s.name for s in arrow[0]]):
        yield f"    {source.name} --> {target.name}: {', '.join(sorted(heard))}"
    yield f"    {_LEFT.name} --> [*]"
