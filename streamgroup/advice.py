"""What an operator does to a group's offsets, in the words of where they are kept: no command fits all of Kafka.

| kept | set by |
|---|---|
| in Kafka | `kafka-consumer-groups.sh --reset-offsets` of 0.11 or later, where the brokers are of 0.10 or later |
| in ZooKeeper | the number in the partition's node: members follow it (R32) |
| in both | both, since a start takes the larger |

A leaf: imports nothing of ours, since planning, the driver, the group's machines and the tasks all give such advice.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Keeper(Enum):
    """Who keeps a group's offsets."""

    KAFKA = "kafka"
    BROKERS = "brokers"
    """Kafka; where the brokers are older than 0.8.2 they write them into their ZooKeeper."""
    ZOOKEEPER = "zookeeper"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class KeptOffsets:
    """Whose offsets are kept where; `group` is empty where no group knows of the read."""

    group: str = ""
    keeper: Keeper = Keeper.KAFKA

    def node(self, topic: str = "<topic>", partition: str = "<partition>") -> str:
        """Where ZooKeeper has the offset of a partition, which is called `1-2` in Kafka 0.7 and `2` later."""
        return f"/consumers/{self.group}/offsets/{topic}/{partition}"


NOT_KEPT = KeptOffsets()


def reset(kept: KeptOffsets) -> str:
    """How to set the offsets of a group, whichever they are; one way out of several. Empty without a group."""
    if not kept.group:
        return ""
    tool = f"set the group's offsets (kafka-consumer-groups.sh --group {kept.group} --reset-offsets, {_OF})"
    nodes = f"write the group's offsets into ZooKeeper's nodes {kept.node()} ({_CHROOT}; {_NAMED})"
    return f"stop the query and all members, and {_both_or_one(kept.keeper, tool, nodes)}"


def step_to(kept: KeptOffsets, topic: str, partition: str, offset: int, servers: str) -> str:
    """How to have a group go on at `offset`. `partition` as its Kafka calls it; `servers` as `host:port,host:port`."""
    tool = (
        f"run: kafka-consumer-groups.sh --bootstrap-server {servers} --group {kept.group} --topic {topic}:{partition} "
        f"--reset-offsets --to-offset {offset} --execute ({_OF})"
    )
    node = f"write {offset} into ZooKeeper's node {kept.node(topic, partition)} ({_CHROOT})"
    return f"stop the query and all members, and {_both_or_one(kept.keeper, tool, node)}"


def look(kept: KeptOffsets) -> str:
    """The command that shows where a group is."""
    where = {
        Keeper.KAFKA: "--bootstrap-server",
        Keeper.BROKERS: "--bootstrap-server, or --zookeeper for brokers before 0.9",
        Keeper.ZOOKEEPER: "--zookeeper",
        Keeper.BOTH: "--zookeeper, then --bootstrap-server",
    }
    return f"streamgroup groups --describe --group {kept.group}, with {where[kept.keeper]}"


def _both_or_one(keeper: Keeper, in_kafka: str, in_zookeeper: str) -> str:
    return {
        Keeper.KAFKA: in_kafka,
        Keeper.BROKERS: f"{in_kafka}; where brokers before 0.8.2 keep them, {in_zookeeper}, and {_ANEW}",
        Keeper.ZOOKEEPER: in_zookeeper,
        Keeper.BOTH: f"do both, since the larger offset counts: {in_zookeeper}, and {in_kafka}",
    }[keeper]


_OF = "the tool of Kafka 0.11 or later; brokers before 0.10 need a client of their time that commits"
_ANEW = "start with a new checkpointLocation, since nothing tells a reset from a commit there"
_CHROOT = "below the brokers' chroot, if they have one"
_NAMED = "Kafka 0.7 calls a partition <broker>-<partition>"
