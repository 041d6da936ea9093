"""`streamgroup resume`: a query on this machine reads its paused partitions again."""

from __future__ import annotations

import click

from streamgroup.cli._help import SectionedCommand, json_option
from streamgroup.cli._partition_names import partitions_option
from streamgroup.cli._pausing import run
from streamgroup.cli._running import query_options
from streamgroup.model import TopicPartition


@click.command(
    cls=SectionedCommand,
    examples={
        "streamgroup resume --list": "the queries on this machine and what they have paused; none is resumed",
        "streamgroup resume --group orders-ingest": "everything that the query has paused",
    },
)
@query_options
@partitions_option("A paused partition, such as orders-0; repeat it for several. The default is all that are paused.")
@json_option("Print the query and its paused partitions as JSON.")
def resume(
    *,
    groups: tuple[str, ...],
    member: str | None,
    pid: int | None,
    lists: bool,
    partitions: tuple[TopicPartition, ...],
    as_json: bool,
) -> None:
    """Let a query on this machine read the partitions again that `streamgroup pause` has paused.

    Run it on the machine of Spark's driver, as the driver's user. Reading goes on at the position of each partition.
    """
    run(is_paused=False, groups=groups, member=member, pid=pid, lists=lists, partitions=partitions, as_json=as_json)
