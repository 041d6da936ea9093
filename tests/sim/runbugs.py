"""Bugs to plant in what a run decides by itself (R27, R28); see `bugs.py`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from streamgroup.coordinator.run import lifecycle, lineage
from streamgroup.coordinator.run.lifecycle import Shutdown, TriggerWatchdog
from streamgroup.coordinator.run.lineage import DuplicateLineageCheck
from streamgroup.coordinator.run.steps import NOW, Steps
from streamgroup.group.state_machine import StateMachine
from streamgroup.group.user_data import RunIdentity
from tests.sim import checker as words
from tests.sim.bugs import Bug, replace


def never_leave(stack: ExitStack) -> None:
    """The silence of Spark leads to nothing."""
    replace(stack, TriggerWatchdog, "look", lambda self, now, *, jvm_is_stopped: lifecycle._NOTHING)


def never_come_back(stack: ExitStack) -> None:
    """Spark calls again, and the member does not join."""

    def resume(self: Shutdown) -> Steps[bool]:
        yield NOW
        return False

    replace(stack, Shutdown, "resume", resume)


def let_copies_in(stack: ExitStack) -> None:
    replace(stack, lineage, "find_duplicates", lambda group, me, member_id: {})


def refuse_at_once(stack: ExitStack) -> None:
    """A run's own predecessor, whose session is not over yet, is taken for a second query."""
    real = DuplicateLineageCheck.__init__

    def init(
        self: DuplicateLineageCheck, group: str, me: RunIdentity, session_timeout_s: float, **others: bool
    ) -> None:
        real(self, group, me, 0.0, **others)

    replace(stack, DuplicateLineageCheck, "__init__", init)


def still_admitted(stack: ExitStack) -> None:
    """A member that joins again sends the admission of its earlier membership."""
    replace(stack, StateMachine, "_forget_identity", lambda self: None)


def time_without_answers_counts(stack: ExitStack) -> None:
    """The wait for a duplicate goes on while nobody can tell whether it is still there."""
    real = DuplicateLineageCheck.unanswered

    def unanswered(self: DuplicateLineageCheck, now: float) -> None:
        since = self._waiting_since
        real(self, now)
        self._waiting_since = since

    replace(stack, DuplicateLineageCheck, "unanswered", unanswered)


RUN_BUGS: Mapping[str, Bug] = {
    "r27-stays": Bug(
        "R27",
        "a member stays however long Spark is silent",
        never_leave,
        frozenset({words.SILENT}),
        scenario="driver-hangs",
    ),
    "r27-never-back": Bug(
        "R27",
        "a member that has left does not join again",
        never_come_back,
        frozenset({words.STUCK, words.LOST}),
        scenario="jvm-stopped",
    ),
    "r28-let-in": Bug(
        "R28",
        "a query on a copied checkpoint is let in",
        let_copies_in,
        frozenset({words.TWINS}),
        scenario="copied-checkpoint",
    ),
    "r28-at-once": Bug(
        "R28",
        "a run's own predecessor is taken for a second query",
        refuse_at_once,
        frozenset({words.FAILED}),
        scenario="predecessor",
    ),
    "r28-still-admitted": Bug(
        "R28",
        "a member that joins again sends its old admission",
        still_admitted,
        frozenset({words.FAILED}),
        scenario="comes-back",
    ),
    "r28-away": Bug(
        "R28",
        "the wait for a duplicate goes on while the servers are away",
        time_without_answers_counts,
        frozenset({words.FAILED}),
        scenario="predecessor-outage",
    ),
}
