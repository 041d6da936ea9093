"""Creates a query's objects that deal with its group: the backend, the ledger, the member and its state machine."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from concurrent.futures import Future

from streamgroup.backoff import Backoff
from streamgroup.coordinator.run.interface import RunConfig, everything
from streamgroup.coordinator.threads.group_backend import Committed, GroupBackend, RunInbox, Wanted
from streamgroup.coordinator.threads.group_thread import GroupThread
from streamgroup.coordinator.threads.log_watcher import LogWatcher
from streamgroup.group.consumer_membership import ConsumerMembership
from streamgroup.group.ledger import Ledger
from streamgroup.group.member import Machine, Member
from streamgroup.group.membership import Membership
from streamgroup.group.offsets.both import store_at
from streamgroup.group.offsets.table import TableOffsetStore
from streamgroup.group.offsets.table_rows import Claimant
from streamgroup.group.offsets.transaction import TransactionOffsetStore
from streamgroup.group.registry.nodes import GroupPaths
from streamgroup.group.standalone import StandaloneMember
from streamgroup.group.timing import MemberConfig
from streamgroup.kafka.cluster.admin import committed, describe_any_group
from streamgroup.kafka.cluster.interface import kafka_of
from streamgroup.kafka.net.requester import requester_of
from streamgroup.model import Dialect, GroupDescription, TopicPartition
from streamgroup.options.types import GroupMode, GroupOptions, GroupProtocol, OffsetsStorage, SourceOptions

log = logging.getLogger("streamgroup")


class BrokerBackend:
    """The backend of a query whose group is coordinated by a broker, or that has no group."""

    def __init__(
        self,
        options: SourceOptions,
        group: GroupOptions,
        member: Member,
        *,
        inbox: RunInbox,
        watcher: LogWatcher,
    ) -> None:
        self._options = options
        self._group = group
        self._watcher = watcher
        self.member = member
        self.thread = GroupThread(inbox, options.client, group.group_id, lambda: watcher.snapshot)

    def opened(self, dialect: Dialect) -> None:
        """Choose the protocol of the group if the options leave that to the cluster. Raises TransportError.

        A cluster with the consumer protocol may refuse it for this group. The member then uses the classic one.
        """
        if not self._group.is_member or self._group.protocol is not GroupProtocol.AUTO:
            return
        timeout_s = self._options.client.default_api_timeout_ms / 1000
        if self._watcher.ask(lambda cluster, until: kafka_of(cluster, until).has_consumer_protocol(until), timeout_s):
            config = member_config(self._options, self._group)
            self.member.try_protocol(ConsumerMembership(config, random.Random()))
            unused = "kafka.partition.assignment.strategy and kafka.heartbeat.interval.ms have"
            log.info("group %s: tries the consumer protocol, under which %s no effect", self._group.group_id, unused)
        elif self._group.remote_assignor is not None:
            unused = "kafka.group.remote.assignor has"
            log.info("group %s: uses the classic protocol; %s no effect", self._group.group_id, unused)

    def committed(self, timeout: float, wanted: Wanted = everything) -> Committed:
        """Return the group's committed offsets; empty without a group."""
        if self._group.mode is GroupMode.OFF:
            return {}
        name, where = self._group.group_id, in_zookeeper(self._group)
        return self._watcher.ask(
            lambda cluster, until: committed(kafka_of(cluster, until), name, until, in_zookeeper=where), timeout
        )

    def described(self, timeout: float) -> Future[GroupDescription]:
        """Have the group coordinator describe the group, whatever its protocol is."""
        name = self._group.group_id
        return self._watcher.post(
            lambda cluster, until: describe_any_group(kafka_of(cluster, until), name, until), timeout
        )


def backend_of(
    options: SourceOptions,
    group: GroupOptions,
    ledger: Ledger,
    *,
    rng: random.Random,
    inbox: RunInbox,
    watcher: LogWatcher,
    is_missed: Callable[[TopicPartition], bool],
) -> GroupBackend:
    """Return the backend of one query. `is_missed` is passed to `StandaloneMember`."""
    registry = options.client.zookeeper
    kept_there = group.is_member or group.offsets_storage is OffsetsStorage.ZOOKEEPER
    if registry is None or group.mode is GroupMode.OFF or not kept_there:
        machine = machine_of(options, group, rng, is_missed)
        member = member_of(options, group, ledger, machine, rng=rng)
        return BrokerBackend(options, group, member, inbox=inbox, watcher=watcher)
    # Few groups are kept by ZooKeeper, and all other queries start without loading its client.
    from streamgroup.coordinator.threads.registry_thread import RegistryBackend  # noqa: PLC0415

    return RegistryBackend(options, group, ledger, registry, rng=rng, inbox=inbox, watcher=watcher, is_missed=is_missed)


def ledger_of(group: GroupOptions, run: str, new_lineage: str) -> Ledger:
    """Return the ledger of one query. `new_lineage` becomes its lineage if the checkpoint has none."""
    return Ledger(
        group.group_id,
        run,
        new_lineage,
        alone=not group.is_member,
        in_table=bool(group.store_url),
        in_transaction=group.in_transaction,
    )


def member_of(
    options: SourceOptions,
    group: GroupOptions,
    ledger: Ledger,
    machine: Machine,
    *,
    paths: GroupPaths | None = None,
    rng: random.Random,
) -> Member:
    """Return the member of one query around its state machine. `paths` is set for a group in ZooKeeper."""
    store = store_at(group.offset_location, paths)
    if group.store_url:
        store = TableOffsetStore(store, lambda: Claimant(ledger.lineage, ledger.run))
    if group.in_transaction:
        store = TransactionOffsetStore(store)
    return Member(
        machine,
        ledger,
        store,
        instance_id=group.instance_id if group.is_member else None,
        session_timeout_s=member_config(options, group).shortest_session_ms / 1000,
        request_timeout_ms=options.client.request_timeout_ms,
        backoff=Backoff(options.client.retry_backoff_ms, options.client.retry_backoff_max_ms, rng),
        requester=requester_of(options.client),
    )


def machine_of(
    options: SourceOptions, group: GroupOptions, rng: random.Random, is_missed: Callable[[TopicPartition], bool]
) -> Machine:
    """Return the state machine of a query whose group is coordinated by a broker, or that has no group.

    `is_missed` is passed to `StandaloneMember`.
    """
    if group.is_member and group.protocol is GroupProtocol.CONSUMER:
        return ConsumerMembership(member_config(options, group), rng)
    if group.is_member:
        return Membership(member_config(options, group), rng)
    return standalone_of(options, group, rng, is_missed, through_brokers=in_zookeeper(group))


def standalone_of(
    options: SourceOptions,
    group: GroupOptions,
    rng: random.Random,
    is_missed: Callable[[TopicPartition], bool],
    *,
    through_brokers: bool | None,
    session: bool = False,
) -> StandaloneMember:
    """Return the state machine of a query that is not a group member.

    `through_brokers`: whether brokers store its commits in ZooKeeper (see `in_zookeeper`). `session`: whether it
    commits to ZooKeeper in its own session.
    """
    return StandaloneMember(
        member_config(options, group),
        rng,
        assigned=options.subscription.assign,
        members_timeout_s=group.join_timeout_ms / 1000,
        is_missed=is_missed,
        in_zookeeper=through_brokers,
        session=session,
        stored_in=group.offset_location.stored_in,
    )


def in_zookeeper(group: GroupOptions) -> bool | None:
    """Return whether brokers store the group's offsets in ZooKeeper. None: only if they cannot store them in Kafka."""
    if group.is_member:  # brokers that coordinate members keep offsets in Kafka
        return False
    return None if group.offsets_storage is None else group.offsets_storage is OffsetsStorage.ZOOKEEPER


def member_config(options: SourceOptions, group: GroupOptions) -> MemberConfig:
    """Return the options of the group's machines."""
    return MemberConfig(
        group_id=group.group_id,
        instance_id=group.instance_id,
        session_timeout_ms=group.session_timeout_ms,
        heartbeat_interval_ms=group.heartbeat_interval_ms,
        max_poll_interval_ms=group.max_poll_interval_ms,
        rebalance_wait_ms=group.rebalance_wait_ms,
        request_timeout_ms=options.client.request_timeout_ms,
        retry_backoff_ms=options.client.retry_backoff_ms,
        retry_backoff_max_ms=options.client.retry_backoff_max_ms,
        strategies=group.strategies,
        weight=group.weight,
        remote_assignor=group.remote_assignor,
        dead_member_s=_dead_member_s(group),
        requester=requester_of(options.client),
    )


LEAST_SESSION_S = 45.0
"""The default of `group.consumer.session.timeout.ms`. A query does not know the broker's setting."""
_MARGIN_S = 15.0
"""How much later than its session timeout the broker may remove a dead member of the consumer protocol.

A live member whose session has expired while it slept may be back before the copy of its query that waits for it sees
that it was away. This time lets it be refused before the other one (R28).
"""


def _dead_member_s(group: GroupOptions) -> float:
    """Return how long a dead member may stay in the group, in seconds."""
    session_s = group.session_timeout_ms / 1000
    if group.protocol is GroupProtocol.CLASSIC:
        return session_s
    return max(session_s, LEAST_SESSION_S) + _MARGIN_S


def run_config(options: SourceOptions, group: GroupOptions) -> RunConfig:
    """Return the options of the run as plain values."""
    return RunConfig(
        group_id=group.group_id,
        is_member=group.is_member,
        weight=group.weight,
        location=group.offset_location,
        subscription=options.subscription,
        starting=options.starting,
        join_timeout_s=group.join_timeout_ms / 1000,
        session_timeout_s=group.session_timeout_ms / 1000,
        dead_member_s=_dead_member_s(group),
        max_poll_s=group.max_poll_interval_ms / 1000,
        max_silence_s=None if group.max_silence_ms is None else group.max_silence_ms / 1000,
        transactional_id=group.transactional_id,
        transaction_timeout_ms=group.transaction_timeout_ms,
        api_timeout_s=options.client.default_api_timeout_ms / 1000,
        fetch_timeout_s=options.fetch.poll_timeout_s,
        fail_on_data_loss=options.fail_on_data_loss,
        target_batch_s=None
        if options.limits.target_batch_duration_ms is None
        else options.limits.target_batch_duration_ms / 1000,
        start_retries=options.fetch_offset_retries,
        start_retry_interval_s=options.fetch_offset_retry_interval_ms / 1000,
    )
