"""Bugs to plant where the members use the consumer protocol (R39). See `bugs.py`."""

from __future__ import annotations

from contextlib import ExitStack

from streamgroup.coordinator.run.lineage import DuplicateLineageCheck
from streamgroup.group.consumer_membership import ConsumerMembership
from tests.fakes.consumer_group import ConsumerGroup
from tests.sim import checker as words
from tests.sim.bugs import Bug, replace
from tests.sim.settings import Kind


def release_at_once(stack: ExitStack) -> None:
    """The member gives up revoked partitions with the next heartbeat, even if their batch is not committed."""
    real = ConsumerMembership._reconcile

    def reconcile(self: ConsumerMembership) -> None:
        real(self)
        if self._leaving:
            self._give_up_revoked()

    replace(stack, ConsumerMembership, "_reconcile", reconcile)


def revoke_unsettled(stack: ExitStack) -> None:
    """Partitions are revoked though their starts are not committed yet."""
    real = ConsumerMembership._reconcile

    def reconcile(self: ConsumerMembership) -> None:
        self._wait.settling = False
        real(self)

    replace(stack, ConsumerMembership, "_reconcile", reconcile)


def refuse_the_one_that_waits_longer(stack: ExitStack) -> None:
    """Of two copies of a checkpoint that join at once both wait for one session, and both are refused."""
    replace(stack, DuplicateLineageCheck, "patience", lambda self, duplicate: self._session_timeout_s)


def accept_every_epoch(stack: ExitStack) -> None:
    """The broker asks only who commits, not in which epoch."""
    replace(stack, ConsumerGroup, "refusal_of_commit", lambda self, member_id, instance_id, epoch: 0)
    replace(stack, ConsumerGroup, "refusal_of_partition", lambda self, member_id, epoch, tp: 0)


_CONSUMERS = Kind.CONSUMERS

CONSUMER_BUGS = {
    "r39-released-early": Bug(
        "R39",
        "gives up what is revoked before its batch has sunk",
        release_at_once,
        frozenset({words.DUPLICATE}),
        known=(13, 8, 0),
        kind=_CONSUMERS,
    ),
    "r39-unsettled": Bug(
        "R39",
        "gives up a start that is not committed",
        revoke_unsettled,
        frozenset({words.UNASKED}),
        known=(12, 34, 43),
        kind=_CONSUMERS,
    ),
    "r39-both-refused": Bug(
        "R28",
        "of two copies that join at once both are refused",
        refuse_the_one_that_waits_longer,
        frozenset({words.FAILED}),
        scenario="copies-at-once",
        kind=_CONSUMERS,
    ),
    "old-epoch": Bug(
        "C3",
        "a commit of an old epoch is accepted",
        accept_every_epoch,
        frozenset({words.TWO_OWNERS}),
        known=(334, 255, 243),
        kind=_CONSUMERS,
    ),
}
