"""Bugs to plant where offsets are the byte positions of Kafka 0.7. See `bugs.py`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from streamgroup.coordinator.planning import batch, limits
from streamgroup.coordinator.planning.limits import Boundaries, MessageAlignedLimits
from streamgroup.coordinator.threads.boundaries import BoundaryScans
from tests.sim import checker as words
from tests.sim.bugs import Bug, replace
from tests.sim.settings import Kind


def end_at_the_limit(stack: ExitStack) -> None:
    """A batch ends where its limit says, in the middle of a message."""

    def whole_messages(backlog: Any, until: Mapping[Any, int], known: Boundaries) -> MessageAlignedLimits:
        return MessageAlignedLimits(dict(until), ())

    replace(stack, batch, "whole_messages", whole_messages)


def cut_a_large_message(stack: ExitStack) -> None:
    """The first message of a batch is not taken whole where it is larger than the limit."""
    real = limits.whole_messages

    def whole_messages(backlog: Any, until: Mapping[Any, int], known: Boundaries) -> MessageAlignedLimits:
        whole = real(backlog, until, known)
        return dataclasses.replace(whole, until={tp: min(end, until[tp]) for tp, end in whole.until.items()})

    replace(stack, batch, "whole_messages", whole_messages)


def count_segments_from_the_log_start(stack: ExitStack) -> None:
    """The starts of segments are taken as distances from the start of the log, which retention has moved."""
    real = BoundaryScans.known

    def known(self: BoundaryScans, logs: Any) -> Boundaries:
        found = real(self, logs)
        first = {tp: log.earliest for tp, log in logs.items()}
        starts = {tp: [start - first[tp] for start in each] for tp, each in found.segment_starts.items()}
        return dataclasses.replace(found, segment_starts=starts)

    replace(stack, BoundaryScans, "known", known)


_ZOOKEEPER = Kind.ZOOKEEPER

BOUNDARY_BUGS: Mapping[str, Bug] = {
    "r34-limit": Bug(
        "R34",
        "a batch ends at its limit, inside of a message",
        end_at_the_limit,
        frozenset({words.INSIDE}),
        known=(0, 1),
        kind=_ZOOKEEPER,
    ),
    "r34-large-message": Bug(
        "R34",
        "a first message larger than the limit is cut",
        cut_a_large_message,
        frozenset({words.INSIDE}),
        known=(0, 1, 4),
        kind=_ZOOKEEPER,
    ),
    "r34-relative-segments": Bug(
        "R34",
        "the starts of segments are counted from the start of the log",
        count_segments_from_the_log_start,
        frozenset({words.INSIDE}),
        known=(4, 19, 25),
        kind=_ZOOKEEPER,
    ),
}
