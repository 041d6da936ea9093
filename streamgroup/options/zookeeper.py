"""The table of ZooKeeper's options (`zookeeper.*`), and what they mean together with those of groups.

Names and defaults are those of Kafka's old consumers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from streamgroup.options import kinds
from streamgroup.options.rows import Option
from streamgroup.options.types import GroupOptions, OffsetsStorage, ZooKeeperOptions

CONNECT = "zookeeper.connect"
PREFIX = "zookeeper."

ZOOKEEPER: tuple[Option, ...] = (
    Option(
        CONNECT,
        "The ZooKeeper of brokers that register there, and of groups of old consumers, whatever the broker: "
        "`zk1:2181,zk2:2181/kafka`, with the chroot that the brokers have, if they have one. Brokers are found there, "
        "so `kafka.bootstrap.servers` may be left out; a member joins its group there.",
        kinds.ZOOKEEPER,
        default="none; the port: 2181",
    ),
    Option(
        "zookeeper.session.timeout.ms",
        "How long ZooKeeper waits for a sign of life until a member's partitions move. ZooKeeper grants 2 to 20 of its "
        "ticks (up to 40 s as it comes), whatever is asked for: a warning names what it grants, where that is less.",
        kinds.POSITIVE,
        "zookeeper.session_timeout_ms",
    ),
    Option(
        "zookeeper.connection.timeout.ms",
        "How long the first connection to ZooKeeper may take.",
        kinds.POSITIVE,
        "zookeeper.connection_timeout_ms",
        default="`zookeeper.session.timeout.ms`",
    ),
    Option(
        "zookeeper.username", "Whom to be there, by digest authentication.", kinds.TEXT, "zookeeper.username", "none"
    ),
    Option(
        "zookeeper.password",
        "The password, better a reference to it: `env:NAME` or `file:/path`, which the driver follows, so that the "
        "password itself never stands in a plan.",
        kinds.SECRET,
        "zookeeper.password",
    ),
    Option(
        "zookeeper.acl",
        "Who may write the nodes that are made: everybody (`open`), or `zookeeper.username` alone (`creator`; all may "
        "read). The other consumers of the group need the same user then.",
        kinds.ACL,
        "zookeeper.creator_only",
        "`open`",
    ),
)


def section(values: Mapping[str, Any], given: Collection[str], problems: list[str]) -> ZooKeeperOptions | None:
    """The section of what was given, None without `zookeeper.connect`. `values` are parsed, by the option's name."""
    if CONNECT not in values:
        named = [name for name in sorted(given) if name.startswith(PREFIX) and name != CONNECT]
        if named and CONNECT not in given:
            problems.append(f"{', '.join(named)}: {CONNECT} is not given: which ZooKeeper is meant?")
        return None
    servers, chroot = values[CONNECT]
    rest = {o.target.partition(".")[2]: values[o.name] for o in ZOOKEEPER if o.target and o.name in values}
    options = ZooKeeperOptions(servers, chroot, **rest)
    if "connection_timeout_ms" not in rest:  # as in Kafka
        options = dataclasses.replace(options, connection_timeout_ms=options.session_timeout_ms)
    if bool(options.username) != (options.password is not None):
        problems.append("zookeeper.username and zookeeper.password belong together: only one of them is given")
    if options.creator_only and not options.username:
        problems.append("zookeeper.acl=creator needs zookeeper.username and zookeeper.password: who is the creator?")
    return options


def registered(
    group: GroupOptions, zookeeper: ZooKeeperOptions, given: Collection[str], problems: list[str]
) -> tuple[GroupOptions, dict[str, str]]:
    """A member whose group is registered in ZooKeeper: its options, and those without effect there, with the reason."""
    if "kafka.partition.assignment.strategy" in given and "range" not in group.strategies:
        problems.append(
            "kafka.partition.assignment.strategy: in a group registered in ZooKeeper all members compute Java's range: "
            "name 'range', or leave the option out"
        )
    changed = dataclasses.replace(
        group,
        session_timeout_ms=zookeeper.session_timeout_ms,
        heartbeat_interval_ms=min(group.heartbeat_interval_ms, max(1, zookeeper.session_timeout_ms // 3)),
        strategies=("range",),
        instance_id=None,
    )
    return changed, {name: why for name, why in _NOT_IN_ZOOKEEPER.items() if name in given}


def stored(
    group: GroupOptions, zookeeper: ZooKeeperOptions | None, given: Collection[str], problems: list[str]
) -> tuple[GroupOptions, dict[str, str]]:
    """Where the group's commits go, and which options about it are without effect, with the reason."""
    if zookeeper is None:
        if group.offsets_storage is OffsetsStorage.ZOOKEEPER:
            problems.append(f"kafka.offsets.storage=zookeeper: {CONNECT} is not given: which ZooKeeper is meant?")
        idle = {_DUAL: f"without {CONNECT} there is one place for offsets"} if _DUAL in given else {}
        return dataclasses.replace(group, dual_commit=False), idle
    if group.offsets_storage is OffsetsStorage.KAFKA:
        # Java's default: who moves offsets out of ZooKeeper has consumers that still look there.
        return dataclasses.replace(group, dual_commit=group.dual_commit if _DUAL in given else True), {}
    idle = {_DUAL: "kafka.offsets.storage is zookeeper: there is one place for offsets"} if _DUAL in given else {}
    return dataclasses.replace(group, offsets_storage=OffsetsStorage.ZOOKEEPER, dual_commit=False), idle


_DUAL = "kafka.dual.commit.enabled"
_NOT_IN_ZOOKEEPER = {
    "kafka.group.instance.id": "no static members in a group registered in ZooKeeper: nothing waits there for a return",
    "kafka.session.timeout.ms": "of a group registered in ZooKeeper 'zookeeper.session.timeout.ms' says it",
}
