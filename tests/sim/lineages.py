"""Members with one lineage (R28): what DescribeGroup answers, and when a run must be refused, or must not be."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING

from streamgroup.coordinator.run import interface as io
from streamgroup.coordinator.run.lineage import DESCRIBE_TIMEOUT_S, LOOK_AGAIN_S, identity_of
from streamgroup.errors import ConfigError, TransportError
from streamgroup.kafka.wire.consumer import decode_subscription
from streamgroup.model import GroupDescription, MemberDescription
from tests.fakes.consumer_group import ConsumerGroup
from tests.fakes.group import Group, GroupState
from tests.sim.lines import GroupLines
from tests.sim.settings import GROUP_ID, Settings

if TYPE_CHECKING:
    from tests.sim.broker import SimBroker
    from tests.sim.process import Process
    from tests.sim.world import World

LOOK_EVERY_S = 1.0
JITTER_S = 0.5
"""A tick of ZooKeeper, and what messages are under way."""
RETRY_S = 0.2
GRACE_S = 2 * DESCRIBE_TIMEOUT_S + LOOK_AGAIN_S + LOOK_EVERY_S
"""A description may take so long, and a refused run so long to fail."""


def with_lineages(settings: Settings, chance: random.Random) -> Settings:
    """Let runs describe their group in most worlds, without a change to what else their seeds draw.

    In the others they are not authorized to. Then queries on copies of one checkpoint go on beside each other.
    """
    return replace(settings, describes_groups=chance.random() < 0.6)


def is_refusal(error: BaseException | None) -> bool:
    """Whether a run was refused because of another member with its lineage."""
    return isinstance(error, ConfigError) and "uses a copy of this query's checkpoint" in str(error)


def describe(group: Group | ConsumerGroup) -> GroupDescription:
    """The answer to DescribeGroups: what members have said is in it only while the group is stable.

    That to ConsumerGroupDescribe always has the members' ids.
    """
    if isinstance(group, ConsumerGroup):
        consumers = tuple(
            MemberDescription(member_id, host=member_id, instance_id=member.instance_id, epoch=member.epoch)
            for member_id, member in group.members.items()
        )
        return GroupDescription(GROUP_ID, group.described_consumers(GROUP_ID).group_state, "consumer", "", consumers)
    stable = group.state is GroupState.STABLE
    members = tuple(
        MemberDescription(
            member_id,
            host=member_id,
            instance_id=member.instance_id,
            user_data=bytes(decode_subscription(member.metadata(group.protocol)).user_data or b"") if stable else b"",
        )
        for member_id, member in group.members.items()
    )
    return GroupDescription(GROUP_ID, group.state.value, "consumer", members=members)


class Lineages:
    """Answers the runs of one world, and knows which of their members have one lineage."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._clock = world.clock
        self.processes: list[Process] = []
        """Of all runs, also of those that are over."""
        self._rivals: dict[Process, list[str]] = {}
        """By process: the live members of its lineage that go before it, as it was last told of them."""
        self._waits_since: dict[Process, dict[str, float]] = {}
        """By process: when it was first told of each member of its lineage that goes before it, since no description
        has failed."""
        self._first_told_at: dict[Process, float] = {}
        """By process: when its group was first described, since no description has failed."""
        self._newest: dict[Process, int] = {}
        """The background task of each run that asked last; its earlier tasks are abandoned."""
        self._uninformed: set[Process] = set()
        """Whose group could not be described since its newest assignment."""
        self._together: dict[tuple[Process, Process], float] = {}
        """Since when two members of one lineage have been in the group beside each other."""
        self._generation_at = -1e9
        """When a member last had an assignment. With a generation of Kafka all sessions begin anew."""
        if world.settings.describes_groups:
            self._clock.after(LOOK_EVERY_S, self._look)

    @property
    def _is_kafkas(self) -> bool:
        """Whether a broker coordinates the group."""
        return self._world.settings.registry is None

    # -- describing the group -----------------------------------------------------------------------------------------

    def ask(self, process: Process, task: int) -> None:
        """The run asks for a description: of the coordinator, on another connection, or of ZooKeeper."""
        self._newest[process] = task
        until = self._clock.now + DESCRIBE_TIMEOUT_S
        if self._is_kafkas:
            broker = self._world.broker
            self._clock.after(3 * process.network.latency(), partial(self._ask_broker, broker, process, task, until))
        else:
            assert not isinstance(process.lines, GroupLines), "its group is in ZooKeeper"
            process.lines.describe(until, partial(self._answered_by_nodes, process, task))

    def _ask_broker(self, broker: SimBroker, process: Process, task: int, until: float) -> None:
        now = self._clock.now
        if now >= until:
            process.hear(partial(self._failed, process, task, "no answer in time"))
        elif now < max(broker.loaded_at, process.network.cut_until) or broker.node in broker.crashed:
            self._clock.after(RETRY_S, partial(self._ask_broker, broker, process, task, until))
        else:
            group = describe(broker.group)
            rivals = self._rivals_in(group, process)
            process.later(process.network.latency(), partial(self._answered, process, task, group, rivals))

    def _answered_by_nodes(self, process: Process, task: int, group: GroupDescription | None) -> None:
        if group is None:
            self._failed(process, task, "ZooKeeper did not answer")
        else:
            self._answered(process, task, group, self._rivals_in(group, process))

    def _answered(self, process: Process, task: int, group: GroupDescription, rivals: dict[str, bool]) -> None:
        alive = [run for run, has_lived in rivals.items() if has_lived]
        if process.failure is None:  # a refused run describes the group again until Spark calls
            self._rivals[process] = alive
        if group.shows_members:
            self._first_told_at.setdefault(process, self._clock.now)
        since = self._waits_since.setdefault(process, {})
        for rival in rivals:
            since.setdefault(rival, self._clock.now)
        if alive:
            self._clock.note(process.name, f"sees members of its lineage: {', '.join(alive)}")
        process.post(io.QuestionAnswered(task, group))

    def _failed(self, process: Process, task: int, reason: str) -> None:
        if task == self._newest.get(process) and process.failure is None:
            self._uninformed.add(process)
            self._waits_since.pop(process, None)
            self._first_told_at.pop(process, None)
            # An assignment before the next look may discard it from the uninformed: its wait is new all the same.
            self._together = {pair: since for pair, since in self._together.items() if process not in pair}
        process.post(io.QuestionFailed(task, TransportError(reason)))

    def _rivals_in(self, group: GroupDescription, process: Process) -> dict[str, bool]:
        """The runs that go before this one; True: it lives, or has lived within the last session, and was not refused
        because of this one.

        A dead one counts from the first description that has it: no process sees that its session began anew. One that
        was refused because of a third run is a member until Spark calls, so this one may be refused because of it.
        """
        ledger, rivals = process.ledger, {}
        own = [m for m in group.members if (identity := identity_of(m)) and identity.run == ledger.run]
        registered_at = max((m.registered_at for m in own if m.registered_at is not None), default=None)
        for member in group.members:
            other = identity_of(member)
            if other is None or other.lineage != ledger.lineage or other.run == ledger.run:
                continue
            if member.registered_at is not None:
                goes_before = registered_at is None or member.registered_at < registered_at
            else:
                goes_before = other.admitted is not False or other.run < ledger.run
            if goes_before:
                rivals[other.run] = self._has_lived(other.run, process)
        return rivals

    def _has_lived(self, run: str, process: Process) -> bool:
        since = self._clock.now - self._world.settings.session_s - JITTER_S
        is_new = self._sessions_renewed_at >= since
        return any(
            p.ledger.run == run
            and (p.alive or is_new or max(p.died_at, self._late_at(p)) >= since)
            and not (is_refusal(p.failure) and f"run {process.ledger.run};" in str(p.failure))
            for p in self.processes
        )

    def _late_at(self, process: Process) -> float:
        """When a packet that its system had yet to send renewed its session: no member can see that it is dead."""
        return -1e9 if self._is_kafkas else self._world.registry.zookeeper.late_at.get(process, -1e9)

    @property
    def _sessions_renewed_at(self) -> float:
        """When all sessions began anew, also of dead members: the servers were away, others took over, or a rebalance
        was over that the dead member had still rejoined in."""
        world = self._world
        if not self._is_kafkas:
            return min(world.registry.zookeeper.renewed_at, self._clock.now)
        return max(min(world.broker.loaded_at, self._clock.now), self._generation_at)

    # -- what the checker asks ----------------------------------------------------------------------------------------

    def assigned(self, process: Process) -> None:
        """A member has an assignment: its run describes the group anew, unless it is admitted."""
        self._uninformed.discard(process)
        self._generation_at = self._clock.now

    def may_refuse(self, process: Process | None) -> bool:
        """Whether live members go before this run, and have done so for a session timeout when it is refused.

        A member of the first description may be dead, so the time that it was there counts for that member alone.
        """
        if process is None or not self._rivals.get(process):
            return False
        since, until = self._waits_since[process], self._clock.now - self._world.settings.dead_member_s + JITTER_S
        joined_later = [at for at in since.values() if at > self._first_told_at[process]]
        return any(
            since[rival] <= until or (since[rival] in joined_later and min(joined_later) <= until)
            for rival in self._rivals[process]
        )

    def _look(self) -> None:
        now = self._clock.now
        steady = list(self._steady())
        beside = {}
        for pair in combinations(steady, 2):
            if pair[0].ledger.lineage == pair[1].ledger.lineage:
                beside[pair] = since = self._together.get(pair, now)
                patience = self._world.settings.dead_member_s * (2 if self._world.settings.consumers else 1)
                if now - since > patience + GRACE_S:
                    self._world.checker.has_twins(*pair)
        self._together = beside
        self._clock.after(LOOK_EVERY_S, self._look)

    def _steady(self) -> Iterator[Process]:
        """The members that nothing keeps from a decision."""
        keeper = self._world.keeper
        if self._is_kafkas and self._world.broker.group.state is not GroupState.STABLE:
            return
        for process in self.processes:
            if not process.alive or process.run.shutdown.wanted or process.failure is not None:
                continue
            is_cut = self._clock.now < process.network.cut_until
            if process.query.is_paused or is_cut or process in self._uninformed or keeper.is_put_out(process):
                continue
            yield process
