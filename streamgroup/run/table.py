"""The states of a run and the transitions between them, as a table.

A batch in flight is not a state, since the ledger knows it. A failure is not a state either: a run that has failed
raises its error to Spark and must still commit and leave.
"""

from __future__ import annotations

from enum import Enum

from streamgroup.transitions import Transition, TransitionTable


class RunState(Enum):
    """The states of a run."""

    NEW = "new"
    """Spark has not called yet. Nothing is connected."""
    OPENING = "opening"
    """Spark's first call resolves the subscription; the member is not started."""
    RUNNING = "running"
    """The member is started: batches are planned."""
    PAUSED = "paused"
    """The member leaves or has left, since Spark is silent (R27)."""
    DRAINING = "draining"
    """Nothing more is planned. The run waits until the batch in flight has sunk and its offsets are committed (R30)."""
    LEAVING = "leaving"
    """The member makes its last commit and leaves the group (R29)."""
    STOPPED = "stopped"
    """The member has left for good, or was never started."""


class RunCue(Enum):
    """The causes of transitions."""

    CALL = "Spark's first call"
    JOIN = "member started"
    PAUSE = "Spark is silent"
    RESUME = "Spark is back"
    DRAIN = "drain"
    STOP = "stop, or drained"
    LEFT = "member has left"


_NEW, _OPENING, _RUNNING, _PAUSED = RunState.NEW, RunState.OPENING, RunState.RUNNING, RunState.PAUSED
_DRAINING, _LEAVING, _STOPPED = RunState.DRAINING, RunState.LEAVING, RunState.STOPPED

TABLE = TransitionTable(
    "run",
    {RunState.NEW: ""},
    (
        Transition(_NEW, RunCue.CALL, _OPENING),
        Transition(_NEW, RunCue.DRAIN, _STOPPED),
        Transition(_NEW, RunCue.STOP, _STOPPED),
        Transition(_OPENING, RunCue.JOIN, _RUNNING),
        Transition(_OPENING, RunCue.DRAIN, _DRAINING),
        Transition(_OPENING, RunCue.STOP, _LEAVING),
        Transition(_RUNNING, RunCue.PAUSE, _PAUSED),
        Transition(_RUNNING, RunCue.DRAIN, _DRAINING),
        Transition(_RUNNING, RunCue.STOP, _LEAVING),
        Transition(_PAUSED, RunCue.RESUME, _RUNNING),
        Transition(_PAUSED, RunCue.DRAIN, _DRAINING),
        Transition(_PAUSED, RunCue.STOP, _LEAVING),
        # A drain waits for a call of Spark that is under way: the batch that it replays must sink, too.
        Transition(_DRAINING, RunCue.JOIN, _DRAINING),
        # A batch that has sunk while the member was out is committed by a member that joins again.
        Transition(_DRAINING, RunCue.RESUME, _DRAINING),
        Transition(_DRAINING, RunCue.DRAIN, _DRAINING),
        Transition(_DRAINING, RunCue.STOP, _LEAVING),
        Transition(_LEAVING, RunCue.DRAIN, _LEAVING),
        Transition(_LEAVING, RunCue.LEFT, _STOPPED),
        Transition(_STOPPED, RunCue.DRAIN, _STOPPED),
    ),
)
