"""Who owns what, as every consumer of a group in ZooKeeper computes it for itself (`range` of Kafka 0.7 and 0.8).

For each topic: its partitions in their order (`view.py`), the threads of the consumers that read it sorted as Java
sorts strings; contiguous chunks, of which the first ones take one more where it does not divide. Threads beyond the
partitions get none. All who have seen the same nodes compute the same, so nobody has to lead.

Consumers of 0.8.2 that are set to `partition.assignment.strategy=roundrobin` compute something else, and no node tells
that they do: in one group with them the partitions that are in dispute stay with who has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamgroup.model import TopicPartition


def share(
    partitions: Mapping[str, Sequence[int]], consumers: Mapping[str, Mapping[str, int]]
) -> dict[TopicPartition, str]:
    """The thread `<consumer>-<number>` to which each partition falls; one that nobody reads is absent.

    `partitions` are the topics' in the real client's order, `consumers` how many streams each has of each topic.
    """
    falls_to: dict[TopicPartition, str] = {}
    for topic, numbers in partitions.items():
        threads = sorted(
            (f"{consumer}-{n}" for consumer, streams in consumers.items() for n in range(streams.get(topic, 0))),
            key=java_order,
        )
        for thread, chunk in _chunks(numbers, threads):
            falls_to |= dict.fromkeys((TopicPartition(topic, number) for number in chunk), thread)
    return falls_to


def _chunks(numbers: Sequence[int], threads: Sequence[str]) -> list[tuple[str, Sequence[int]]]:
    if not threads:
        return []
    each, more = divmod(len(numbers), len(threads))
    starts = [each * i + min(i, more) for i in range(len(threads) + 1)]
    return [(thread, numbers[starts[i] : starts[i + 1]]) for i, thread in enumerate(threads)]


def java_order(text: str) -> bytes:
    """Java compares strings by UTF-16 units, Python by code points: they differ beyond U+FFFF."""
    return text.encode("utf-16-be", errors="surrogatepass")
