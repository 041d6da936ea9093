"""How an operator sets a group's offsets, and gives a group a coordinator.

How to set offsets depends on where they are stored: no command fits all of Kafka.

| stored | set by |
|---|---|
| in Kafka | `streamgroup groups --reset-offsets`, where the brokers are of 0.9 or later |
| in ZooKeeper | the number in the partition's node: members follow it (R32) |
| in both | both, since a start takes the larger |

A leaf: imports nothing of ours, since planning, the driver, the group's machines and the tasks all name these ways out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class StoredIn(Enum):
    """The system that stores a group's offsets."""

    KAFKA = "kafka"
    BROKERS = "brokers"
    """Kafka; where the brokers are older than 0.8.2 they write them into their ZooKeeper."""
    ZOOKEEPER = "zookeeper"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class OffsetLocation:
    """Whose offsets are stored where; `group` is empty where no group knows of the read."""

    group: str = ""
    stored_in: StoredIn = StoredIn.KAFKA

    def node(self, topic: str = "<topic>", partition: str = "<partition>") -> str:
        """Return ZooKeeper's node for the offset of a partition, which is called `1-2` in Kafka 0.7 and `2` later."""
        return f"/consumers/{self.group}/offsets/{topic}/{partition}"


NO_LOCATION = OffsetLocation()

_NO_COORDINATOR = (
    "usually the brokers cannot create the topic __consumer_offsets, because offsets.topic.replication.factor is above "
    "the number of brokers, or a partition of this topic has no leader. Set offsets.topic.replication.factor to the "
    "number of brokers or less and restart them, or start the missing brokers"
)


def with_remedy(cause: str) -> str:
    """Return `cause`, the name of an error code or other words, with the usual reason if a group has no coordinator."""
    return f"{cause} ({_NO_COORDINATOR})" if cause == "COORDINATOR_NOT_AVAILABLE" else cause


def how_to_reset(location: OffsetLocation) -> str:
    """Say how to set the offsets of a group, whichever they are; one way out of several. Empty without a group."""
    if not location.group:
        return ""
    tool = f"set the group's offsets (streamgroup groups --reset-offsets --group {location.group}; {_OR})"
    nodes = f"write the group's offsets into ZooKeeper's nodes {location.node()} ({_CHROOT}; {_NAMED})"
    return f"stop the query and all members, and {_both_or_one(location.stored_in, tool, nodes)}"


def how_to_step_to(location: OffsetLocation, topic: str, partition: str, offset: int, servers: str) -> str:
    """Say how to have a group continue at `offset`.

    `partition` is as its Kafka calls it, `servers` is `host:port,host:port`.
    """
    tool = (
        f"run: streamgroup groups --bootstrap-server {servers} --reset-offsets --group {location.group} "
        f"--topic {topic}:{partition} --to-offset {offset} --execute ({_OR})"
    )
    node = f"write {offset} into ZooKeeper's node {location.node(topic, partition)} ({_CHROOT})"
    return f"stop the query and all members, and {_both_or_one(location.stored_in, tool, node)}"


def how_to_look(location: OffsetLocation) -> str:
    """Return the command that shows where a group is."""
    where = {
        StoredIn.KAFKA: "--bootstrap-server",
        StoredIn.BROKERS: "--bootstrap-server, or --zookeeper for brokers before 0.9",
        StoredIn.ZOOKEEPER: "--zookeeper",
        StoredIn.BOTH: "--zookeeper, then --bootstrap-server",
    }
    return f"streamgroup groups --describe --group {location.group}, with {where[location.stored_in]}"


def _both_or_one(stored_in: StoredIn, in_kafka: str, in_zookeeper: str) -> str:
    return {
        StoredIn.KAFKA: in_kafka,
        StoredIn.BROKERS: f"{in_kafka}; where brokers before 0.8.2 keep them, {in_zookeeper}, and {_ANEW}",
        StoredIn.ZOOKEEPER: in_zookeeper,
        StoredIn.BOTH: f"do both, since the larger offset counts: {in_zookeeper}, and {in_kafka}",
    }[stored_in]


_OR = "kafka-consumer-groups.sh of Kafka 0.11 or later does the same; brokers before 0.9 need a client that commits"
_ANEW = "start with a new checkpointLocation, since nothing tells a reset from a commit there"
_CHROOT = "below the brokers' chroot, if they have one"
_NAMED = "Kafka 0.7 calls a partition <broker>-<partition>"
