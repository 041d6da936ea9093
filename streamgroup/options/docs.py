"""Write `docs/options.md` from the tables: `python -m streamgroup.options.docs > docs/options.md`, or `make docs`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import MISSING
from enum import Enum

from streamgroup.options.kafka import KAFKA
from streamgroup.options.rows import Effect, Option, Scope, default_of
from streamgroup.options.source import SOURCE
from streamgroup.options.zookeeper import ZOOKEEPER

_INTRODUCTION = """\
# Options

This page is the reference of all options of `format("streamgroup")`, for everybody who writes a query or a job file.
`make docs` writes it from the tables in `streamgroup/options/`; change those.

## How options are read

- Names, defaults and meanings are those of Spark's Kafka source and of Kafka's Java consumer. Options of streamgroup's
  own begin with `group.`.
- Names may be written in any case.
- An unknown option fails the query, and the error suggests the most similar name. An invalid value fails it too. One
  error names all problems.
- An option outside its scope (the column "for") is ignored, unless [Refused](#refused) lists it. The log names ignored
  options once.
- No error and no log line shows passwords, keys and tokens.
- A duration is a number of milliseconds, or a number with a unit: `500ms`, `60s`, `2m`, `1h`, `1d`.

The column "for" has these values:

| for | takes effect in |
|---|---|
| all | streams and batch reads |
| batch reads | `spark.read` |
| streams | `spark.readStream`, in any mode |
| groups | streams with `group.mode` `member` or `commit` |
| members | streams with `group.mode` `member` |

## Group modes

`group.mode` says how a stream uses its group.

- `member` reads the partitions that the group assigns to it, and commits as a member. After a restart it continues at
  the group's committed offset, or at its checkpoint if that is known to be ahead.
- `commit` reads all partitions and commits without joining. The group must have no members. After a restart it
  continues at its checkpoint. Without a checkpoint, or after an operator has reset the group's offsets, it continues at
  the committed offset.
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

`subscribePattern` is matched by Python's `re.fullmatch`. Java's syntax has the same meaning for literals, classes,
groups, alternatives and quantifiers, possessive ones too. Syntax that Python lacks, such as `\\p{…}` and
`[a-z&&[^b]]`, fails the query.
"""

_SCOPES = {
    Scope.ALL: "all",
    Scope.BATCH: "batch reads",
    Scope.STREAM: "streams",
    Scope.GROUP: "groups",
    Scope.MEMBER: "members",
}


def render() -> str:
    """Return the text of docs/options.md."""
    options = (*SOURCE, *ZOOKEEPER, *KAFKA)
    return "\n".join(
        (
            _INTRODUCTION,
            _used("Spark's options", [o for o in SOURCE if not o.name.startswith("group.")]),
            _used("streamgroup's own options", [o for o in SOURCE if o.name.startswith("group.")]),
            _used("ZooKeeper's options", ZOOKEEPER),
            _used("Kafka's properties", KAFKA),
            _by_reason("Refused", options, Effect.REFUSED),
            _by_reason("Ignored", options, Effect.IGNORED),
        )
    )


def _used(title: str, options: Iterable[Option]) -> str:
    rows = [
        f"| `{o.name}` | {o.kind.name} | {_default(o)} | {_SCOPES[o.scope]} | {o.doc} |" for o in options if o.scope
    ]
    return "\n".join(
        (f"## {title}", "", "| option | type | default | for | what it does |", "|---|---|---|---|---|", *rows, "")
    )


def _by_reason(title: str, options: Iterable[Option], effect: Effect) -> str:
    """Return the table of the options with this effect outside their scope, for which a row gives the reason.

    The reason of all others is their scope, which the tables of used options show.
    """
    reasons: dict[str, list[str]] = {}
    for option in options:
        if option.elsewhere is effect and option.why:
            reasons.setdefault(option.why, []).append(f"`{option.name}`{_outside(option.scope)}")
    rows = [f"| {', '.join(names)} | {why} |" for why, names in reasons.items()]
    return "\n".join((f"## {title}", "", "| options | why |", "|---|---|", *rows, ""))


def _outside(scope: Scope) -> str:
    if scope is Scope.NONE:
        return ""
    return " (batch reads)" if scope is Scope.STREAM else " (streams)"


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
