"""Helpers for the tests of several commands: a cluster, a partition, the rows of a table, and all commands."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import click

from streamgroup.model import Broker, Dialect, PartitionInfo, TopicInfo, TopicPartition
from tests.fakes.cluster import FakeCluster, Logs


def orders(partition: int) -> TopicPartition:
    """A partition of the topic that the tests use."""
    return TopicPartition("orders", partition)


def cells(text: str) -> list[str]:
    """Return the rows of a printed table, with one space between two cells."""
    return [" ".join(line.split()) for line in text.splitlines()]


def commands(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield each command that can be run, by the words that run it."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for word in command.list_commands(context):
        found = command.get_command(context, word)
        assert found is not None, word
        yield from commands(found, f"{name} {word}".strip())


BROKERS = {1: Broker(1, "one", 9092), 2: Broker(2, "two", 9093)}


def orders_cluster(dialect: Dialect = Dialect.KAFKA, more: Collection[str] = ()) -> FakeCluster:
    """`orders` with four partitions on two brokers, the last of which has no leader; and topics of the names in `more`.

    Logs hold [10, 100).
    """
    numbers = (10000, 10001, 20000, 30000) if dialect is Dialect.KAFKA07 else range(4)
    leaders = (1, 1, 2, 3)
    partitions = tuple(
        PartitionInfo(number, leader, 5, (leader, 1), (leader,))
        for number, leader in zip(numbers, leaders, strict=True)
    )
    orders = [TopicPartition("orders", number) for number in numbers]
    topics = (
        TopicInfo("orders", partitions, "id-1"),
        *(TopicInfo(name, partitions[:1], internal=True) for name in ("__own", *more)),
    )
    return FakeCluster(
        Logs(
            nodes=BROKERS,
            described={topic.name: topic for topic in topics},
            starts=dict.fromkeys(orders, 10),
            ends=dict.fromkeys(orders, 100),
            leaderless={orders[-1]},
            dialect=dialect,
        )
    )
