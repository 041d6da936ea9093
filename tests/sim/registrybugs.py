"""Bugs to plant where the group is in ZooKeeper. See `bugs.py`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from streamgroup.group import rejoining
from streamgroup.group.member import Member, MemberAction
from streamgroup.group.offsets.store import FetchOffsets, Outcome
from streamgroup.group.offsets.zookeeper import FIRST_TOKEN, ZooKeeperOffsetStore, _NodesFetch
from streamgroup.group.registry import events as rv
from streamgroup.group.registry import nodes as stored
from streamgroup.group.registry.membership import RegistryMembership
from streamgroup.group.registry.nodes import committed_subtrees
from streamgroup.group.registry.registration import RegistryPurpose, Seen
from streamgroup.group.registry.work import RegistryWork
from streamgroup.group.state_machine import State
from streamgroup.model import CommittedOffset, TopicPartition
from streamgroup.znodes import Check, Operation, Subtree, ZNode
from streamgroup.zookeeper.session import Watches
from tests.sim import checker as words
from tests.sim.boundarybugs import BOUNDARY_BUGS
from tests.sim.bugs import BUGS, Bug, replace
from tests.sim.consumerbugs import CONSUMER_BUGS
from tests.sim.lonebugs import LONE_BUGS
from tests.sim.offsetbugs import OFFSET_BUGS
from tests.sim.runbugs import RUN_BUGS
from tests.sim.settings import Kind
from tests.sim.tablebugs import TABLE_BUGS
from tests.sim.transactionbugs import TRANSACTION_BUGS


def _replace_method(stack: ExitStack, method: Callable[..., None], planted: Callable[..., None]) -> None:
    """Plant `planted` in every row of the table that calls `method`."""
    rows = {
        key: dataclasses.replace(row, does=planted)
        for key, row in RegistryMembership.TABLE.items()
        if row.does is method
    }
    stack.enter_context(patch.dict(RegistryMembership.TABLE, rows))


# -- committing --------------------------------------------------------------------------------------------------------


def go_on_in_a_new_session(stack: ExitStack) -> None:
    """kazoo's client as it comes: what waits for a connection is carried out in whatever session follows."""
    real_over, real_next = RegistryWork._over, RegistryWork.next_step
    waiting: set[RegistryWork[Any]] = set()

    def over(self: RegistryWork[Any], event: rv.Expired, now: float, **session: bool) -> Sequence[Any]:
        commits = [action for action in self._work if _is_commit(action)]
        done = real_over(self, event, now, **session)
        self._work.extend(commits)
        return done

    def next_step(self: RegistryWork[Any], now: float, *, is_connected: bool) -> Any:
        if self._work and _is_commit(self._work[0]) and not is_connected:
            waiting.add(self)
            return None
        waiting.discard(self)
        return real_next(self, now, is_connected=is_connected)

    replace(stack, RegistryWork, "_over", over)
    replace(stack, RegistryWork, "next_step", next_step)
    replace(stack, RegistryWork, "has_work", property(lambda self: bool(self._work) and self not in waiting))


def _is_commit(action: Any) -> bool:
    return isinstance(action, rv.Transact) and action.token >= FIRST_TOKEN


def fence_by_the_owner_nodes(stack: ExitStack) -> None:
    """A commit asks whether the partitions are owned, not by whom; and the client goes on in a new session."""
    go_on_in_a_new_session(stack)
    real = ZooKeeperOffsetStore._operations

    def operations(self: ZooKeeperOffsetStore, job: Any) -> tuple[tuple[Operation, ...], tuple[str, ...]]:
        written, ensured = real(self, job)
        owners = tuple(Check(self._paths.owner(tp)) for tp in job.chunk)
        return (*owners, *(each for each in written if not isinstance(each, Check))), ensured

    replace(stack, ZooKeeperOffsetStore, "_operations", operations)


def believe_old_metadata(stack: ExitStack) -> None:
    """Our metadata beside an offset counts, even if another client has written the offset since."""

    def read_committed(path: str, offset: ZNode, metadata: ZNode | None) -> CommittedOffset:
        text = "" if metadata is None else json.dumps(json.loads(metadata.data)["commit"], separators=(",", ":"))
        return CommittedOffset(int(offset.data), text)

    replace(stack, stored, "read_committed", read_committed)


def read_offsets_before_the_claim(stack: ExitStack) -> None:
    """The real consumers' order: they read them when they compute their share, and claim when others have released."""
    real_look, real_step = RegistryMembership._look, Member.step
    real_fetch = ZooKeeperOffsetStore.fetch
    known: dict[Member, Mapping[str, ZNode]] = {}
    stepping: list[Member] = []

    def look(self: RegistryMembership, purpose: Any, nodes: Iterable[Subtree], *, watch: bool = True) -> None:
        offsets = committed_subtrees(self._paths, None) if purpose is RegistryPurpose.LOOK else ()
        real_look(self, purpose, (*nodes, *offsets), watch=watch)

    def step(self: Member, event: Any, now: float) -> list[MemberAction]:
        machine = self.membership
        if (
            isinstance(event, rv.SubtreesRead)
            and isinstance(machine, RegistryMembership)
            and machine._paths.ids in event.nodes
            and not self.store.takes(event)
        ):
            known[self] = event.nodes
        stepping.append(self)
        try:
            return real_step(self, event, now)
        finally:
            stepping.pop()

    def fetch(self: ZooKeeperOffsetStore, request: FetchOffsets, now: float) -> Outcome:
        nodes = known.pop(stepping[-1], None) if stepping else None
        if nodes is None:
            return real_fetch(self, request, now)
        job = _NodesFetch(now, request=request)
        self._jobs.append(job)
        self._fetched(job, rv.SubtreesRead(0, nodes))
        return self._outcome()

    replace(stack, RegistryMembership, "_look", look)
    replace(stack, Member, "step", step)
    replace(stack, ZooKeeperOffsetStore, "fetch", fetch)


def commit_after_the_release(stack: ExitStack) -> None:
    """A commit that is under way when partitions are given up is written all the same."""
    replace(stack, ZooKeeperOffsetStore, "_interrupt", lambda self: None)


def commit_while_releasing(stack: ExitStack) -> None:
    """A commit is made while partitions are given up: the fence lets it pass, for the session lives."""

    def may_commit(self: RegistryMembership) -> bool:
        return self._state in {State.JOINING, State.STABLE} and self._lease.connected

    replace(stack, RegistryMembership, "may_commit", property(may_commit))


# -- claiming ----------------------------------------------------------------------------------------------------------


def keep_from_a_waiting_consumer(stack: ExitStack) -> None:
    """A partition for a real consumer is released when its batch is done, and nothing makes the consumer try again."""
    replace(stack, rejoining, "FOREIGN_TIMEOUT_S", 1e9)
    never_force_a_rebalance(stack)


def never_force_a_rebalance(stack: ExitStack) -> None:
    """A real consumer that has given up is left alone."""
    _replace_method(stack, RegistryMembership._rebalance_due, lambda self: None)


def take_what_lingers(stack: ExitStack) -> None:
    """An owner node is deleted, whoever has made it."""
    replace(stack, Seen, "is_free", lambda self, tp: True)


def delete_what_was_released(stack: ExitStack) -> None:
    """A released partition counts as owned until the next look. A member that leaves before deletes another's node."""

    def released(self: Seen, partitions: frozenset[TopicPartition]) -> None:
        owners = self.owners
        real(self, partitions)
        self.owners = owners

    real = Seen.released
    replace(stack, Seen, "released", released)


def believe_in_watches(stack: ExitStack) -> None:
    """A connection that is back is taken to have missed nothing."""

    def resumed(self: RegistryMembership, event: rv.Resumed) -> None:
        stale = self._seen.view_stale
        real(self, event)
        self._seen.view_stale = stale

    real = RegistryMembership._resumed
    _replace_method(stack, real, resumed)
    replace(stack, Watches, "connected", lambda self: None)


def plan_while_suspended(stack: ExitStack) -> None:
    """A member that was registered when the connection was lost is taken to be still, however long ago that was."""

    def may_plan(self: Member, now: float) -> bool:
        return self.membership.can_plan and self.ledger.settled and self.ledger.idle

    replace(stack, Member, "may_plan", may_plan)
    replace(
        stack,
        RegistryMembership,
        "can_plan",
        property(lambda self: self._state is State.STABLE and not self.rebalance_wanted),
    )


_ZOOKEEPER = Kind.ZOOKEEPER

REGISTRY_BUGS: Mapping[str, Bug] = {
    "r31-owner-node": Bug(
        "R31",
        "a commit fenced by the owner nodes only",
        fence_by_the_owner_nodes,
        frozenset({words.TWO_OWNERS}),
        scenario="commit-waits",
    ),
    "r32-version": Bug(
        "R32",
        "metadata believed though the offset was written since",
        believe_old_metadata,
        frozenset({words.BEYOND_SUNK, words.SKIPPED}),
        scenario="consumer-after-reset",
    ),
    "r33-kept": Bug(
        "R33",
        "owner nodes kept from a waiting real consumer",
        keep_from_a_waiting_consumer,
        frozenset({words.LOST}),
        scenario="waiting-consumer",
    ),
    "r33-no-forced-rebalance": Bug(
        "R33",
        "a real consumer that has given up is left alone",
        never_force_a_rebalance,
        frozenset({words.LOST}),
        scenario="consumer-gives-up",
    ),
    "r36-suspended": Bug(
        "R36",
        "plans while suspended, whatever the lease",
        plan_while_suspended,
        frozenset({words.DUPLICATE}),
        known=(87,),
        kind=_ZOOKEEPER,
    ),
    "watches-lost": Bug(
        "R36",
        "a connection that is back is taken to have missed nothing",
        believe_in_watches,
        frozenset({words.LOST, words.STUCK, words.BEYOND_SUNK}),
        known=(26, 37, 46),
        kind=_ZOOKEEPER,
    ),
    "offsets-before-claim": Bug(
        "R5",
        "offsets read before the claim",
        read_offsets_before_the_claim,
        frozenset({words.DUPLICATE, words.NON_MONOTONIC}),
        scenario="waits-for-a-batch",
    ),
    "commit-after-release": Bug(
        "R31",
        "a commit under way is written after the release",
        commit_after_the_release,
        frozenset({words.TWO_OWNERS}),
        known=(515,),
        kind=_ZOOKEEPER,
    ),
    "commit-while-releasing": Bug(
        "R31",
        "commits while partitions are given up",
        commit_while_releasing,
        frozenset({words.TWO_OWNERS}),
        known=(19,),
        kind=_ZOOKEEPER,
    ),
    "lingering-taken": Bug(
        "C3",
        "an owner node deleted, whoever has made it",
        take_what_lingers,
        frozenset({words.TWO_OWNERS, words.NON_MONOTONIC}),
        known=(4,),
        kind=_ZOOKEEPER,
    ),
    "deleted-twice": Bug(
        "R31",
        "who leaves deletes once more what it has just released",
        delete_what_was_released,
        frozenset({words.TWO_OWNERS}),
        scenario="leaves-while-releasing",
    ),
}

ALL_BUGS = {
    **BUGS,
    **RUN_BUGS,
    **CONSUMER_BUGS,
    **REGISTRY_BUGS,
    **OFFSET_BUGS,
    **BOUNDARY_BUGS,
    **LONE_BUGS,
    **TABLE_BUGS,
    **TRANSACTION_BUGS,
}
