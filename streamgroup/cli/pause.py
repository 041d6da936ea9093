"""`streamgroup pause`: stop reading some or all partitions of a query on this machine. `resume` shares its parts."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from streamgroup.cli._click import Column, SectionedCommand, json_option, json_rows, partitions_option, table
from streamgroup.cli._running import COLUMNS, Running, choose, find, print_list, query_options, select
from streamgroup.coordinator.control import channel
from streamgroup.errors import StreamGroupError
from streamgroup.model import TopicPartition
from streamgroup.text import MOST_NAMED, first_of


@dataclass(frozen=True, slots=True)
class PauseRequest:
    """The query that the command line chooses, and its partitions; no partitions mean the whole query."""

    groups: tuple[str, ...]
    member: str | None
    pid: int | None
    lists: bool
    partitions: tuple[TopicPartition, ...]
    as_json: bool


def pause_options(partitions_help: str) -> Callable[[Any], Any]:
    """Add the options to a command, which gets them as `request`. `--topic-partition` has the given help."""

    def add(command: Any) -> Any:
        @functools.wraps(command)
        def with_request(**options: Any) -> Any:
            return command(PauseRequest(**options))

        with_json = json_option("Print the query and its paused partitions as JSON.")(with_request)
        return query_options(partitions_option(partitions_help)(with_json))

    return add


class NotHeldError(StreamGroupError):
    """No source of the query holds a partition that the command names."""


def _paused(row: Running) -> str | None:
    return ", ".join(row.status.get("paused", ())) or ("all" if row.status.get("paused_whole") else None)


PAUSES: tuple[Column[Running], ...] = (*COLUMNS, Column("PAUSED", "paused", _paused))


def run(request: PauseRequest, *, is_paused: bool) -> None:
    """List the queries, or pause or resume one. Raises NotChosen, NotHeldError, and the error of a coordinator."""
    running = find()
    if request.lists:
        listed = select(running, request.groups, request.member, request.pid)
        print_list(listed, as_json=request.as_json, columns=PAUSES)
        return
    chosen = choose(running, request.groups, request.member, request.pid)
    for one, names in _shares(chosen, request.partitions):
        channel.ask(one.pid, one.run, "pause", partitions=names, paused=is_paused)
    runs = {one.run for one in chosen}
    rows = [one for one in find() if one.run in runs]
    click.echo(json.dumps(json_rows(PAUSES, rows), indent=2) if request.as_json else table(PAUSES, rows))


def _shares(chosen: Sequence[Running], partitions: Sequence[TopicPartition]) -> list[tuple[Running, list[str] | None]]:
    """Return each coordinator with its share of the partitions; all of them with None if no partition is named.

    Raises NotHeldError before any request is sent: the command pauses all partitions or none.
    """
    if not partitions:
        return [(one, None) for one in chosen]
    held = {name: one for one in chosen for name in one.status.get("positions", {})}
    if strange := [str(tp) for tp in partitions if str(tp) not in held]:
        lacking, has = (first_of(names, MOST_NAMED, "partition") for names in (strange, sorted(held)))
        raise NotHeldError(
            f"the query does not hold {lacking} now. It holds {has or 'nothing'}. "
            "Another member of the group may: run the command on its machine"
        )
    return [
        (one, names)
        for one in chosen
        if (names := sorted({str(tp) for tp in partitions if held[str(tp)].run == one.run}))
    ]


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
