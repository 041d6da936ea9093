"""`streamgroup consume`: print the records of topics, with kcat's options."""

from __future__ import annotations

import sys

import click

from streamgroup.cli._cluster import ClusterAddress, cluster_options
from streamgroup.cli._consume_options import (
    GROUP_ID,
    Bounds,
    StartKind,
    group_start,
    parse_bounds,
    parse_properties,
    parse_topics,
    source_options,
)
from streamgroup.cli._kcat import KcatCommand, notice_options, parsed
from streamgroup.cli._output import Notices, RecordPrinter, StopSignals, quiet_when_closed


@click.command(cls=KcatCommand)
@cluster_options
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:PARTITION]",
    help="Topic to read, or one partition of it; repeatable. With -G topics may also follow all options.",
)
@click.argument("more_topics", metavar="[TOPIC]...", nargs=-1)
@click.option(
    "-p",
    "--partition",
    metavar="PARTITION",
    help="Partition to read of every topic without one of its own; `1-2` in Kafka 0.7.  [default: all]",
)
@click.option(
    "-o",
    "--offset",
    "offsets",
    multiple=True,
    metavar="OFFSET",
    help="Where to start: `beginning`, `end`, `stored` (where the group of -X group.id has committed), N (an offset), "
    "-N (N offsets before the end), s@MS (a timestamp). Or e@MS: stop before this timestamp. With -G it is where "
    "partitions without a committed offset start.  [default: beginning; with -G: end]",
)
@click.option("-c", "--count", type=click.IntRange(1), help="Exit after this many records.")
@click.option("-e", "--exit", "until_ends", is_flag=True, help="Exit at the end of all partitions.")
@click.option(
    "-f",
    "--format",
    "template",
    metavar="FORMAT",
    help=r"Print each record in this format: %s value, %k key, %t topic, %p partition, %o offset, %T timestamp (ms), "
    r"%h headers, %S and %K lengths of value and key (-1: null), %R length of the value as 4 bytes, %%; \n, \t, \r, "
    r"\xNN. Takes precedence over -D and -K.",
)
@click.option("-K", "--key-delimiter", metavar="TEXT", help="Print the key, then this text, then the value.")
@click.option("-D", "--delimiter", default="\\n", metavar="TEXT", help="Text behind each record.  [default: \\n]")
@click.option("-J", "--json", "as_json", is_flag=True, help="Print each record as a JSON object.")
@click.option("-Z", "--show-null", is_flag=True, help="Print null keys and values as NULL; JSON has null anyway.")
@click.option("-G", "--group", metavar="GROUP", help="Join this consumer group, and commit what is printed.")
@click.option(
    "-X",
    "--property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="Property of a Kafka consumer, with or without `kafka.` before it, or failOnDataLoss; repeatable.",
)
@notice_options
@click.option(
    "--timeout",
    type=click.IntRange(1),
    default=60_000,
    show_default=True,
    help="Milliseconds to wait for brokers that do not answer.",
)
def consume(
    *,
    where: ClusterAddress,
    topics: tuple[str, ...],
    more_topics: tuple[str, ...],
    partition: str | None,
    offsets: tuple[str, ...],
    count: int | None,
    until_ends: bool,
    template: str | None,
    key_delimiter: str | None,
    delimiter: str,
    as_json: bool,
    show_null: bool,
    group: str | None,
    properties: tuple[str, ...],
    notices: Notices,
    timeout: int,
) -> None:
    """Print the records of topics to standard output, and wait for more.

    The cluster may run any Kafka from 0.7 on. The options are kcat's.
    """
    from streamgroup.cli._record_format import record_format  # noqa: PLC0415  (loads Arrow, which no help text needs)

    if more_topics and group is None:
        raise click.UsageError(f"unexpected argument {more_topics[0]!r}: without -G a topic is given by -t")
    if not topics and not more_topics:
        raise click.UsageError("name a topic with -t")
    wanted = parsed("-t", lambda: parse_topics((*topics, *more_topics), partition))
    bounds = parsed("-o", lambda: parse_bounds(offsets))
    given = parsed("-X", lambda: parse_properties(properties))
    printed = parsed(
        "-f, -K or -D",
        lambda: record_format(template, key_delimiter, delimiter, as_json=as_json, show_null=show_null),
    )
    stored = None if group is not None else _stored_group(bounds, given)
    if group is not None:
        if GROUP_ID in given or any(one.partition is not None for one in wanted):
            raise click.UsageError("with -G, group.id and partitions cannot be given: the group assigns the partitions")
        given |= {GROUP_ID: group, **parsed("-o", lambda: group_start(bounds))}
    names = dict.fromkeys(one.topic for one in wanted)
    options = source_options(where, names, given, timeout, include_headers=printed.needs_headers)
    stream = sys.stdout.buffer
    with notices.logging(), StopSignals() as signals, quiet_when_closed(stream):
        for note in options.notes:
            notices.say(note)
        printer = RecordPrinter(stream, printed, count)
        if group is not None:
            from streamgroup.cli._group_reading import GroupReading  # noqa: PLC0415  (loads the coordinator)

            GroupReading(options, until_ends=until_ends, notices=notices).run(printer, signals)
            return
        from streamgroup.cli._log_reading import opened_reading  # noqa: PLC0415  (loads the fetcher)

        with (
            signals.waiting(),
            opened_reading(
                options, wanted, bounds, stored_group=stored, until_ends=until_ends, notices=notices
            ) as reading,
        ):
            reading.run(printer, signals)


def _stored_group(bounds: Bounds, properties: dict[str, str]) -> str | None:
    """Take the group of `-o stored` out of `properties`; None if the start is another. Raises UsageError."""
    group = properties.pop(GROUP_ID, None)
    is_stored = bounds.start is not None and bounds.start.kind is StartKind.STORED
    if is_stored and not group:
        raise click.UsageError(
            "-o stored needs the group that has committed: -X group.id=GROUP. To join it, give -G GROUP"
        )
    if group and not is_stored:
        raise click.UsageError("group.id needs -o stored. To join the group, give -G GROUP")
    return group
