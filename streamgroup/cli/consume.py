"""`streamgroup consume`: print the records of topics, with kcat's options."""

from __future__ import annotations

import sys

import click

from streamgroup.cli._click import CONNECTION, KcatCommand, flag, notice_options, option, parsed, timeout_option
from streamgroup.cli._cluster import ClusterAddress, cluster_options
from streamgroup.cli._kcat_options import (
    GROUP_ID,
    Bounds,
    StartKind,
    group_start,
    parse_bounds,
    parse_consume_properties,
    parse_topics,
    source_options,
)
from streamgroup.cli._output import Notices, RecordPrinter, StopSignals, quiet_when_closed

_WHAT = "What to read"
_PRINT = "How to print"


@click.command(
    cls=KcatCommand,
    short_help="Print the records of topics, with kcat's options.",
    examples={
        "streamgroup consume -b localhost:9092 -t orders": "all records, then wait for more",
        "streamgroup consume -b localhost:9092 -t orders -o -10 -e -J": "the last 10 records of each partition",
        r"streamgroup consume -b localhost:9092 -t orders -e -f '%p %o %k %s\n'": "a format of your own",
        "streamgroup consume -b localhost:9092 -G my-group orders": "as a member of a group, which commits",
    },
)
@option(
    _WHAT,
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:PARTITION]",
    help="Topic, or one partition of it; repeatable. With -G topics may also follow all options.",
)
@click.argument("more_topics", metavar="[TOPIC]...", nargs=-1)
@option(
    _WHAT,
    "-p",
    "--partition",
    metavar="PARTITION",
    help="Partition of every topic that names none; `1-2` in Kafka 0.7.  [default: all]",
)
@option(
    _WHAT,
    "-o",
    "--offset",
    "offsets",
    multiple=True,
    metavar="OFFSET",
    help="Where to start: `beginning`, `end`, N (an offset), -N (N offsets before the end), s@MS (the first record of "
    "this time or later, in milliseconds since 1970), `stored` (where the group of -X group.id=GROUP has committed). "
    "Or where to stop: e@MS (before this time). With -G it is the start of partitions without a committed offset.  "
    "[default: beginning; with -G: end]",
)
@option(_WHAT, "-c", "--count", type=click.IntRange(1), metavar="N", help="Exit after N records.")
@flag(_WHAT, "-e", "--exit", "until_ends", help="Exit at the ends that the logs have when the command starts.")
@option(_WHAT, "-G", "--group", metavar="GROUP", help="Join this consumer group, and commit what is printed.")
@option(
    _PRINT,
    "-f",
    "--format",
    "template",
    metavar="FORMAT",
    help=r"Format of a record: %s value, %k key, %t topic, %p partition, %o offset, %T timestamp (ms), %h headers, "
    r"%S and %K lengths of value and key (-1: null), %R length of the value as 4 bytes, %%; \n, \t, \r, \0, \xNN. "
    r"-D and -K have no effect with it.",
)
@option(_PRINT, "-K", "--key-delimiter", metavar="TEXT", help="Print the key, then this text, then the value.")
@option(_PRINT, "-D", "--delimiter", default="\\n", metavar="TEXT", help="Text after each record.  [default: \\n]")
@flag(_PRINT, "-J", "--json", "as_json", help="Print each record as a JSON object.")
@flag(_PRINT, "-Z", "--show-null", help="Print null keys and values as NULL; with -J they are null anyway.")
@notice_options
@cluster_options
@option(
    CONNECTION,
    "-X",
    "--property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="Property of a Kafka consumer, such as fetch.max.bytes=1048576, or failOnDataLoss; repeatable.",
)
@timeout_option(60_000, "How long brokers may give no answer.")
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
    given = parsed("-X", lambda: parse_consume_properties(properties))
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
            from streamgroup.cli._consume_reading import GroupReader  # noqa: PLC0415  (loads the coordinator)

            GroupReader(options, until_ends=until_ends, notices=notices).run(printer, signals)
            return
        from streamgroup.cli._consume_reading import opened_reading  # noqa: PLC0415  (loads the fetcher)

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
