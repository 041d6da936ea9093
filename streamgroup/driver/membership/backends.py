"""The choice of a run's backend.

| `group.mode` | `zookeeper.connect` | the group is kept by | backend | actions carried out by |
|---|---|---|---|---|
| `member` | no | its coordinator | `BrokerBackend` | `GroupThread` |
| `member` | yes | ZooKeeper | `RegistryBackend` | `RegistryThread` |
| `commit` | yes, with the offsets there | ZooKeeper | `RegistryBackend` | `RegistryThread` |
| `commit` | in all other cases | its coordinator | `BrokerBackend` | `GroupThread` |
| `off` | either | none | `BrokerBackend` | `GroupThread`; the offsets are in memory |
"""

from __future__ import annotations

import random
from collections.abc import Callable

from streamgroup.driver.logs.watcher import LogWatcher
from streamgroup.driver.membership.broker_backend import BrokerBackend
from streamgroup.driver.membership.executor import RunInbox
from streamgroup.driver.membership.group_backend import GroupBackend
from streamgroup.driver.membership.modes import machine_of, member_of
from streamgroup.group.ledger import Ledger
from streamgroup.model import TopicPartition
from streamgroup.options.types import GroupMode, GroupOptions, OffsetsStorage, SourceOptions


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
    """Return one run's backend. `is_missed` goes to `StandaloneMember`."""
    registry = options.client.zookeeper
    kept_there = group.is_member or group.offsets_storage is OffsetsStorage.ZOOKEEPER
    if registry is None or group.mode is GroupMode.OFF or not kept_there:
        machine = machine_of(options, group, rng, is_missed)
        member = member_of(options, group, ledger, machine, rng=rng)
        return BrokerBackend(options, group, member, inbox=inbox, watcher=watcher)
    # Few groups are kept by ZooKeeper, and the others start without loading its client.
    from streamgroup.driver.membership.registry_backend import RegistryBackend  # noqa: PLC0415

    return RegistryBackend(options, group, ledger, registry, rng=rng, inbox=inbox, watcher=watcher, is_missed=is_missed)
