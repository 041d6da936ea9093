"""The table of ZooKeeper's options (`zookeeper.*`), and how they change the options of a group.

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
        "Addresses of the ZooKeeper servers, with the brokers' chroot if they have one: `zk1:2181,zk2:2181/kafka`. The "
        "driver finds the brokers there, so `kafka.bootstrap.servers` is optional. A member joins its group there. "
        "Set it for brokers before 0.9 and for groups of old consumers.",
        kinds.ZOOKEEPER,
        default="none; the port: 2181",
    ),
    Option(
        "zookeeper.session.timeout.ms",
        "Milliseconds without a ping after which ZooKeeper expires a session, and other members claim its partitions. "
        "ZooKeeper grants between 2 and 20 of its ticks, by default at most 40 s. A warning in the log names the "
        "granted timeout if it is shorter.",
        kinds.POSITIVE,
        "zookeeper.session_timeout_ms",
    ),
    Option(
        "zookeeper.connection.timeout.ms",
        "Milliseconds that the first connection to ZooKeeper may take.",
        kinds.POSITIVE,
        "zookeeper.connection_timeout_ms",
        default="`zookeeper.session.timeout.ms`",
    ),
    Option(
        "zookeeper.username",
        "User for ZooKeeper's digest authentication. Requires `zookeeper.password`.",
        kinds.TEXT,
        "zookeeper.username",
        "none",
    ),
    Option(
        "zookeeper.password",
        "Password of `zookeeper.username`, or a reference to it: `env:NAME` or `file:/path`. The driver follows the "
        "reference, so Spark's plan never contains the password.",
        kinds.SECRET,
        "zookeeper.password",
    ),
    Option(
        "zookeeper.acl",
        "Write access to the nodes that a member creates: for everybody (`open`), or for the user only (`creator`). "
        "Everybody may read them. With `creator`, all consumers of the group need the same user.",
        kinds.ACL,
        "zookeeper.creator_only",
        "`open`",
    ),
)


def section(values: Mapping[str, Any], given: Collection[str], problems: list[str]) -> ZooKeeperOptions | None:
    """Return the section, or None without `zookeeper.connect`. `values` has the parsed values by option name."""
    if CONNECT not in values:
        named = [name for name in sorted(given) if name.startswith(PREFIX) and name != CONNECT]
        if named and CONNECT not in given:
            problems.append(
                f"cannot use {', '.join(named)}: {CONNECT} is not set. Add option('{CONNECT}', 'host:port')"
            )
        return None
    servers, chroot = values[CONNECT]
    rest = {o.target.partition(".")[2]: values[o.name] for o in ZOOKEEPER if o.target and o.name in values}
    options = ZooKeeperOptions(servers, chroot, **rest)
    if "connection_timeout_ms" not in rest:  # as in Kafka's old consumers
        options = dataclasses.replace(options, connection_timeout_ms=options.session_timeout_ms)
    if bool(options.username) != (options.password is not None):
        problems.append(
            "zookeeper.username and zookeeper.password require each other: only one of them is set. Set both or none"
        )
    if options.creator_only and not options.username:
        problems.append("zookeeper.acl=creator requires a user. Set zookeeper.username and zookeeper.password")
    return options


def registered(
    group: GroupOptions, zookeeper: ZooKeeperOptions, given: Collection[str], problems: list[str]
) -> tuple[GroupOptions, dict[str, str]]:
    """Return the options of a member whose group is registered in ZooKeeper, and why some of them are ignored there."""
    if "kafka.partition.assignment.strategy" in given and "range" not in group.strategies:
        problems.append(
            "invalid value for option kafka.partition.assignment.strategy: all members of a group in ZooKeeper compute "
            "Java's range. Set 'range', or leave the option out"
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
    """Return the options of a group with the storage of its offsets, and why some of them are ignored."""
    if zookeeper is None:
        if group.offsets_storage is OffsetsStorage.ZOOKEEPER:
            problems.append(
                f"cannot use kafka.offsets.storage=zookeeper: {CONNECT} is not set. Add option('{CONNECT}', "
                "'host:port')"
            )
        ignored = {_DUAL: f"without {CONNECT} only the brokers store offsets"} if _DUAL in given else {}
        return dataclasses.replace(group, dual_commit=False), ignored
    if group.offsets_storage is OffsetsStorage.KAFKA:
        # Java's default: during a migration out of ZooKeeper some consumers still read the offsets there.
        return dataclasses.replace(group, dual_commit=group.dual_commit if _DUAL in given else True), {}
    ignored = {_DUAL: "with kafka.offsets.storage=zookeeper only ZooKeeper stores offsets"} if _DUAL in given else {}
    return dataclasses.replace(group, offsets_storage=OffsetsStorage.ZOOKEEPER, dual_commit=False), ignored


_DUAL = "kafka.dual.commit.enabled"
_NOT_IN_ZOOKEEPER = {
    "kafka.group.instance.id": "a group in ZooKeeper has no static members",
    "kafka.session.timeout.ms": "a group in ZooKeeper has the session timeout of 'zookeeper.session.timeout.ms'",
}
