"""Bugs to plant where the one query is not a member (`modes.py`)."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from streamgroup.coordinator.run.planner import Planner
from streamgroup.group import ledger as ledger_module
from streamgroup.group import start_positions
from streamgroup.group.holdings import Held
from streamgroup.group.ledger import Ledger
from streamgroup.group.start_positions import StartPosition
from streamgroup.model import Document, TopicPartition
from tests.sim import checker as words
from tests.sim.bugs import Bug, replace
from tests.sim.settings import Kind


def commit_before_checkpoint(stack: ExitStack) -> None:
    """A query that is not a member goes on as a member does: at its commit."""
    real = start_positions.start_of

    def start_of(*args: Any, **kwargs: Any) -> StartPosition:
        return real(*args, **{**kwargs, "alone": False})

    replace(stack, ledger_module, "start_of", start_of)


def start_not_documented(stack: ExitStack) -> None:
    """Mode `off` writes no document for a position alone."""

    def has_new_position(self: Planner, previous: Document) -> bool:
        return False

    replace(stack, Planner, "_has_new_position", has_new_position)


def stop_undoes_reset(stack: ExitStack) -> None:
    """A commit of a position that an operator has set names the query's lineage."""

    def goes_before_the_checkpoint(self: Ledger, tp: TopicPartition, held: Held) -> bool:
        return self._skipped

    replace(stack, Ledger, "_goes_before_the_checkpoint", goes_before_the_checkpoint)


LONE_BUGS = {
    "r5-alone-commit-first": Bug(
        "R5",
        "without a membership the commit goes before the checkpoint",
        commit_before_checkpoint,
        frozenset({words.DUPLICATE, words.SKIPPED}),
        known=(4, 6, 17),
        kind=Kind.ALONE,
    ),
    "r5-stop-undoes-reset": Bug(
        "R5",
        "without a membership a stop commits a reset as the query's own",
        stop_undoes_reset,
        frozenset({words.BEYOND_SUNK, words.NON_MONOTONIC}),
        known=(24, 130, 148),
        kind=Kind.ALONE,
    ),
    "r6-not-documented": Bug(
        "R6",
        "mode `off` does not document a start without records",
        start_not_documented,
        frozenset({words.SKIPPED, words.LOST, words.ENDED_EARLY}),
        known=(30, 68, 84),
        kind=Kind.ALONE,
    ),
}
