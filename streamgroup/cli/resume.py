"""`streamgroup resume`: a query on this machine reads its paused partitions again."""

from __future__ import annotations

import click

from streamgroup.cli._click import SectionedCommand
from streamgroup.cli._running import PauseRequest, pause_options, run


@click.command(
    cls=SectionedCommand,
    examples={
        "streamgroup resume --list": "the queries on this machine and what they have paused; none is resumed",
        "streamgroup resume --group orders-ingest": "everything that the query has paused",
    },
)
@pause_options("A paused partition, such as orders-0; repeat it for several. The default is all that are paused.")
def resume(request: PauseRequest) -> None:
    """Let a query on this machine read the partitions again that `streamgroup pause` has paused.

    Run it on the machine of Spark's driver, as the driver's user. Reading continues at the position of each partition.
    """
    run(request, is_paused=False)
