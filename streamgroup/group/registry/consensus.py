"""The owner of each partition, as every consumer of a group in ZooKeeper computes it (`range` of Kafka 0.7 and 0.8).

Each topic has its partitions in their order (`view.py`), and the threads of the consumers that read it, sorted as Java
sorts strings. The threads get contiguous chunks, of which the first are one longer where it does not divide. Threads
beyond the partitions get none. All consumers that have seen the same nodes compute the same, so the group needs no
leader.

Consumers of 0.8.2 with `partition.assignment.strategy=roundrobin` compute something else, and no node says so. In one
group with them a partition in dispute stays with its owner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamgroup.group.assigning import java_order
from streamgroup.group.assignors import chunks
from streamgroup.model import TopicPartition


def share(
    partitions: Mapping[str, Sequence[int]], consumers: Mapping[str, Mapping[str, int]]
) -> dict[TopicPartition, str]:
    """Return the thread `<consumer>-<number>` to which each partition falls, without partitions that nobody reads.

    `partitions` are the partitions of each topic in the real client's order, `consumers` the number of streams that
    each consumer has of each topic.
    """
    falls_to: dict[TopicPartition, str] = {}
    for topic, numbers in partitions.items():
        threads = sorted(
            (f"{consumer}-{n}" for consumer, streams in consumers.items() for n in range(streams.get(topic, 0))),
            key=java_order,
        )
        for thread, places in zip(threads, chunks(len(numbers), len(threads)), strict=False):
            falls_to |= dict.fromkeys((TopicPartition(topic, numbers[place]) for place in places), thread)
    return falls_to
