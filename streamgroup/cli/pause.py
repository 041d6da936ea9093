"""`streamgroup pause`: stop reading some or all partitions of a query on this machine."""

from __future__ import annotations

import click

from streamgroup.cli._click import SectionedCommand
from streamgroup.cli._running import (
    PauseRequest,
    pause_options,
    run,
)


@click.command(
    cls=SectionedCommand,
    examples={
        "streamgroup pause --list": "the queries on this machine and what they have paused; none is paused",
        "streamgroup pause --group orders-ingest --topic-partition orders-3": "one partition; the others continue",
        "streamgroup pause --group orders-ingest": "the whole query, also partitions that it gains",
    },
)
@pause_options(
    "A partition that the query holds, such as orders-0; repeat it for several. The default is the whole query."
)
def pause(request: PauseRequest) -> None:
    """Stop a query on this machine from reading partitions, without leaving its group.

    Run it on the machine of Spark's driver, as the driver's user. The batch in flight continues. Later batches leave
    the partitions out. The query keeps them, their positions and their commits. A pause ends with `streamgroup resume`,
    when the partition moves to another member, and when the query is started again.
    """
    run(request, is_paused=True)
