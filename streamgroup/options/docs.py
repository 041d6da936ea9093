"""Write the pages of options from the tables: `python -m streamgroup.options.docs options.md`, or `make docs`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import MISSING
from enum import Enum

from streamgroup.options.kafka import KAFKA
from streamgroup.options.producer import PRODUCER
from streamgroup.options.rows import FOR_CONSUMERS, FOR_PRODUCERS, FOR_READS, Effect, Option, Scope, default_of
from streamgroup.options.sink import SINK, SINK_ZOOKEEPER
from streamgroup.options.source import OWN, SOURCE, SPARK
from streamgroup.options.zookeeper import ZOOKEEPER

_INTRODUCTION = """\
# Options

This page is the reference of all options of `format("streamgroup")` in a read, for authors of queries and
job files. Options of a write: [write-options.md](write-options.md). `make docs` writes both.

## How options are read

- Names, defaults and meanings are the same as in Spark's Kafka source and Kafka's Java consumer. Our own options
  begin with `group.`. Names may be written in any case.
- An invalid value or a misspelled option fails the query, with one error for all problems.
- Any other unknown option has no effect, as in Spark's source, and the log warns of it. So has a property of Kafka
  without `kafka.`. `strict=true` makes them errors. An unknown name that begins with `group.` or `zookeeper.` is one.
- An option outside its scope (the column "for") is ignored, unless [Refused](#refused) lists it. The log names ignored
  options once. No error and no log line shows passwords, keys and tokens.
- A duration is a number of milliseconds, or a number with a unit: `500ms`, `60s`, `2m`, `1h`, `1d`.

| column "for" | takes effect in |
|---|---|
| all | streams and batch reads |
| batch reads | `spark.read` |
| streams | `spark.readStream`, in any mode |
| groups | streams with `group.mode` `member` or `commit` |
| members | streams with `group.mode` `member` |

## Group modes

`group.mode` sets how a stream uses its group. Its default may be `off` ([how](migrate-from-spark.md#choose-the-mode)).

- `member` reads the partitions that the group assigns to it, and commits as a member. After a restart it continues at
  the group's committed offset, or at its checkpoint if that is ahead.
- `commit` reads all partitions and commits without joining. The group must have no members. After a restart it
  continues at its checkpoint; without one, or after a reset of the group's offsets, at the committed offset.
- `off` reads all partitions and commits nothing. After a restart it continues at its checkpoint.

## Starts and ends

- `startingOffsets` applies to a group without commits, and in mode `off` to a query without a checkpoint. It applies
  only to partitions that exist when the query starts. Later ones are read from their earliest offset.
- Of the three options for a start, only the first that is set takes effect: `startingTimestamp`,
  `startingOffsetsByTimestamp`, `startingOffsets`. The same order goes for an end.
- Starts and ends by partition must list all partitions that are read, as in Spark's own source. A member of a group
  fails only if one of its assigned partitions is missing.

## Kafka 0.7

- A partition has a number within its broker. In `assign`, starts and ends, partition 2 of broker 1 is `"1-2"`. In rows
  and messages it is the number 10002: the broker's id times 10000, plus the partition's number.
- Offsets are byte positions, so limits and sizes that count offsets count bytes.
- A batch ends only where a message ends. It always takes the first message of a partition, however large. Large ranges
  are split where segments of the log start.
- A given offset must be where a message begins. Any other offset fails the query with an error that names it.
- A timestamp stands for the start of the newest segment that was last written at or before that time, or else for the
  earliest offset. The query misses no later message, but it reads some earlier ones.

## Patterns

`subscribePattern` has the syntax and the meaning of `java.util.regex` in Java 17, and as in Spark's own source it need
not match the whole name. An expression that this package cannot match as Java would is an error that names the place:
the flags `x` and `U`, `\\b{g}`, `\\G`, `\\N{...}`, a reference to a group that is not before it, and properties of
upper or lower case together with `(?i)`. A search in one name that takes 0.25 s of CPU time is an error, too.
"""

_INTRODUCTION_TO_WRITES = """\
# Options of a write

For users who write into Kafka with `format("streamgroup")`: the columns that a write takes, and the reference of
its options. `make docs` writes this page from the tables in `streamgroup/options/`; change those.

## Columns

| column | type | what it holds |
|---|---|---|
| `key` | string or binary | the key; null or no column: no key |
| `value` | string or binary | the value, required; null: a tombstone |
| `topic` | string | the topic, unless the option `topic` names it |
| `partition` | int | the partition; null or no column: the partitioner chooses |
| `headers` | `array<struct<key:string,value:binary>>` | the headers; null: none |
| `timestamp` | timestamp | the timestamp, with `includeTimestamp` |

- The names are lower case, as in Spark's own sink. Other columns are ignored.
- A wrong type fails the query before it writes. A null topic, a partition that does not exist and a header without a
  key fail the task, with an error that names the row.
- Batch writes and streams have the same options.

## How options are read

- Names, defaults and meanings are the same as in Spark's Kafka sink and Kafka's Java producer.
- Names may be written in any case. A misspelled option or an invalid value fails the query. One error names all
  problems.
- Any other unknown option has no effect, as in Spark's sink, and the log warns of it. So has a property of Kafka
  without `kafka.`. `strict=true` makes them errors.
- The log names ignored options once. No error and no log line shows a password.

## Partitioners

| partitioner | records with a key | records without a key |
|---|---|---|
| `default` | murmur2 | stay with one partition for `kafka.batch.size` bytes (KIP-794) |
| `sticky` | murmur2 | go to another partition with each batch (KIP-480) |
| `round_robin` | like records without a key | take the partitions in turn |
| `random` | like records without a key | go to a random partition |
| `murmur2_random` | murmur2 | go to a random partition |
| `consistent` | CRC-32 | have the partition of an empty key |
| `consistent_random` | CRC-32 | go to a random partition, with an empty key too |
| `hashcode` | Java's `String.hashCode` of the key in UTF-8 | go to a random partition |
| `hashcode_bytes` | Java's `Arrays.hashCode` | go to a random partition |

- A key keeps its partition while the topic keeps its number of partitions. Records without a key avoid partitions
  without a leader.
- `murmur2` gives a key the partition that Java's producer gives it. `hashcode` does so for the producers of Kafka 0.7
  and 0.8.

## Idempotence

- `kafka.enable.idempotence` is on by default. If `kafka.acks` is not `all`, or `kafka.retries` is 0, it is off, and the
  client logs that. If it is set to `true`, the same settings fail the query.
- Brokers before 0.11 do not have it. By default a task writes to them without it; with `true` the task fails.
- More than 5 requests in flight fail the query unless `kafka.enable.idempotence` is `false`.
- It covers the retries of one task. A task that Spark runs again repeats what it had written: at least once.

## Kafka 0.7

- The driver finds the brokers by `zookeeper.connect`. `kafka.bootstrap.servers` must be left out.
- The column `partition` counts as in a read: 10002 is partition 2 of broker 1, the broker's id times 10000 plus the
  partition's number.
- A new topic goes to partition 0 of each live broker. Each broker creates the topic with its first record. The next
  batch uses all its partitions. A row may name another partition of the new topic.
- The codecs are `none`, `gzip` and `snappy`.
- Keys choose partitions and are not written. Nor are timestamps. Headers and null values fail the task.
- `kafka.acks`, `kafka.enable.idempotence`, `kafka.linger.ms` and
  `kafka.partitioner.adaptive.partitioning.enable` have no effect: Kafka 0.7 acknowledges nothing. `verify` reads the
  logs back.
- `kafka.retries` counts how often `verify` sends records again that the log lacks.
"""

_SCOPES = {
    Scope.ALL: "all",
    Scope.BATCH: "batch reads",
    Scope.STREAM: "streams",
    Scope.GROUP: "groups",
    Scope.MEMBER: "members",
}


def render() -> str:
    """Return the text of docs/options.md, which has the options of reads."""
    options = (*SOURCE, *ZOOKEEPER, *KAFKA)
    return "\n".join(
        (
            _INTRODUCTION,
            _used("Spark's options", SPARK),
            _used("streamgroup's own options", OWN),
            _used("ZooKeeper's options", ZOOKEEPER),
            _used("Kafka's properties", KAFKA),
            _by_reason("Refused", options, Effect.REFUSED),
            _by_reason("Ignored", options, Effect.IGNORED),
        )
    )


def render_writes() -> str:
    """Return the text of docs/write-options.md, which has the options of writes."""
    options = (*SINK, *SINK_ZOOKEEPER, *PRODUCER)
    return "\n".join(
        (
            _INTRODUCTION_TO_WRITES,
            _used_in_writes("Spark's options and streamgroup's own", SINK),
            _used_in_writes("ZooKeeper's options", SINK_ZOOKEEPER),
            _used_in_writes("Kafka's properties", PRODUCER),
            _by_reason("Refused", options, Effect.REFUSED),
            _by_reason("Ignored", options, Effect.IGNORED),
        )
    )


_ON_THE_OTHER_PAGE = {
    FOR_READS: "options of [options.md](options.md) that this page does not name",
    FOR_CONSUMERS: "properties of [options.md](options.md) that this page does not name",
    FOR_PRODUCERS: "properties of [write-options.md](write-options.md) that this page does not name",
}
"""What a table says instead of all the names of the other page, by the reason why they are ignored."""

PAGES: dict[str, Callable[[], str]] = {"options.md": render, "write-options.md": render_writes}
"""The pages in docs/ that this module writes."""


def _used(title: str, options: Iterable[Option]) -> str:
    rows = [
        f"| `{o.name}` | {o.kind.name} | {_default(o)} | {_SCOPES[o.scope]} | {o.doc} |" for o in options if o.scope
    ]
    return "\n".join(
        (f"## {title}", "", "| option | type | default | for | what it does |", "|---|---|---|---|---|", *rows, "")
    )


def _used_in_writes(title: str, options: Iterable[Option]) -> str:
    rows = [f"| `{o.name}` | {o.kind.name} | {_default(o)} | {o.doc} |" for o in options if o.scope]
    return "\n".join((f"## {title}", "", "| option | type | default | what it does |", "|---|---|---|---|", *rows, ""))


def _by_reason(title: str, options: Iterable[Option], effect: Effect) -> str:
    """Return the table of the options with this effect outside their scope, for which a row gives the reason.

    The reason of all others is their scope, which the tables of used options show.
    """
    reasons: dict[str, list[str]] = {}
    for option in options:
        if option.elsewhere is effect and option.why:
            reasons.setdefault(option.why, []).append(f"`{option.name}`{_outside(option.scope)}")
    rows = [f"| {_ON_THE_OTHER_PAGE.get(why) or ', '.join(names)} | {why} |" for why, names in reasons.items()]
    return "\n".join((f"## {title}", "", "| options | why |", "|---|---|", *rows, ""))


def _outside(scope: Scope) -> str:
    if scope is Scope.NONE:
        return ""
    return " (batch reads)" if scope is Scope.STREAM else " (streams)"


def _default(option: Option) -> str:
    if option.default_text:
        return option.default_text
    value = default_of(option)
    if value is MISSING or value in (None, ""):
        return "none"
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, tuple):
        value = ",".join(value)
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    sys.stdout.write(PAGES[sys.argv[1]]())
