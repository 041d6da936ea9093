"""`docs/options.md`, written from the tables: `python -m streamgroup.options.docs > docs/options.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import MISSING
from enum import Enum

from streamgroup.options.kafka import KAFKA
from streamgroup.options.rows import Effect, Option, default_of
from streamgroup.options.source import SOURCE
from streamgroup.options.zookeeper import ZOOKEEPER

_INTRODUCTION = """\
# Options

Written from the tables in `streamgroup/options/` by `python -m streamgroup.options.docs`; edit those.

Names are those of Spark's Kafka source and of Kafka's Java consumer, in any case; so are defaults and meanings. Options
of streamgroup's own begin with `group.`. An option that nobody knows is an error that suggests the nearest one, so is
a value that means nothing; all problems are told of together. What is given and has no effect is said once in the log.
Passwords, keys and tokens stand in no message and no log.

Starts and ends that are listed by partition list all partitions that are read, as with Spark's own source; a member of
a group fails only where one that it holds is missing. Of three options for a start, or an end, the first that is given
counts alone.

`group.mode` says how a stream stands to its group:

- `member` reads the partitions that the group assigns to it and commits as a member. After a restart it goes on at the
  group's commit, or at its checkpoint where that is known to be ahead.
- `commit` reads all partitions and commits without joining; the group must have no members. After a restart it goes on
  at its checkpoint; without one, and where no query has made it (an operator's reset), at the group's commit.
- `off` reads all partitions and commits nothing. After a restart it goes on at its checkpoint.

`startingOffsets` is for a group without commits, in mode `off` for a query without a checkpoint, and for what there is
when the query starts: partitions that come to be later are read from their earliest offset.

Partitions of Kafka 0.7, which are numbered within each broker, are written as there, in quotes: partition 2 of broker 1
is `"1-2"` in `assign` and in starts and ends by partition. In rows and in messages it is the number 10002: the broker's
times 10000, plus the partition's. Offsets are byte positions there: limits and sizes that count offsets count bytes,
batches end only where messages do (a partition's first message is always taken, however large), and large ranges are
split where segments of the log start. What is given by hand must be where a message begins: anything else is an error
that names it. A timestamp means the start of the newest segment that was last written to at or before it, and where
there is none the earliest offset: no later message is missed, and earlier ones are read, too.

`subscribePattern` is matched by Python's `re.fullmatch`. Java's syntax means the same for what topics are named by:
literals, classes, groups, alternatives, quantifiers, possessive ones too. What Python lacks, such as Java's `\\p{…}`
and `[a-z&&[^b]]`, is refused.
"""


def render() -> str:
    """The text of docs/options.md."""
    source = [o for o in SOURCE if not o.name.startswith("group.")]
    return "\n".join(
        (
            _INTRODUCTION,
            _used("Spark's options", source),
            _used("streamgroup's own options", [o for o in SOURCE if o.name.startswith("group.")]),
            _used("ZooKeeper's options", ZOOKEEPER),
            _used("Kafka's properties", KAFKA),
            _by_reason("Refused", [*SOURCE, *KAFKA], Effect.REFUSED),
            _by_reason("Without effect", [*SOURCE, *KAFKA], Effect.WITHOUT_EFFECT),
        )
    )


def _used(title: str, options: Iterable[Option]) -> str:
    rows = [
        f"| `{o.name}` | {o.kind.name} | {_default(o)} | {_where(o)} | {o.doc} |"
        for o in options
        if Effect.USED in (o.stream, o.batch)
    ]
    return "\n".join(
        (f"## {title}", "", "| option | type | default | for | what it does |", "|---|---|---|---|---|", *rows, "")
    )


def _by_reason(title: str, options: Iterable[Option], effect: Effect) -> str:
    reasons: dict[str, list[str]] = {}
    for option in options:
        everywhere = option.stream is option.batch and not option.why_batch
        for streaming, where in ((True, " (streams)"), (False, " (batch reads)")):
            if option.effect(streaming=streaming) is effect and not (everywhere and not streaming):
                name = f"`{option.name}`" + ("" if everywhere else where)
                reasons.setdefault(option.reason(streaming=streaming), []).append(name)
    rows = [f"| {', '.join(names)} | {why} |" for why, names in reasons.items()]
    return "\n".join((f"## {title}", "", "| options | why |", "|---|---|", *rows, ""))


def _where(option: Option) -> str:
    if option.stream is option.batch:
        return "both"
    return "streams" if option.stream is Effect.USED else "batch reads"


def _default(option: Option) -> str:
    if option.default:
        return option.default
    value = default_of(option)
    if value is MISSING or value is None:
        return "none"
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, tuple):
        value = ",".join(value)
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    sys.stdout.write(render())
