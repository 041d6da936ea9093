"""The new offsets of `--reset-offsets`: the offset for each partition, by a way or from a file. Pure.

The ways, their limits and the format of files are the same as in kafka-consumer-groups.sh.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from datetime import UTC, datetime, timedelta
from enum import Enum

from streamgroup.cli._click import Column
from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.frozen import frozen
from streamgroup.kafka.cluster.requests import NO_OFFSET
from streamgroup.logformat import KAFKA_LOG, LogFormat
from streamgroup.model import CommittedOffset, TopicPartition
from streamgroup.text import MOST_NAMED, first_of

_EPOCH = datetime.fromtimestamp(0, UTC)
_DURATION = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?\d+)D)?"
    r"(?P<time>T(?:(?P<hours>[-+]?\d+)H)?(?:(?P<minutes>[-+]?\d+)M)?"
    r"(?:(?P<seconds>[-+]?\d+(?:[.,]\d{0,9})?)S)?)?",
    re.IGNORECASE | re.ASCII,
)


class CannotResetError(StreamGroupError):
    """The offsets of a group cannot be set to the values that the command line requests."""


class Way(Enum):
    """A way to choose new offsets. The value is the option of the command."""

    EARLIEST = "--to-earliest"
    LATEST = "--to-latest"
    CURRENT = "--to-current"
    OFFSET = "--to-offset"
    SHIFT = "--shift-by"
    DATETIME = "--to-datetime"
    DURATION = "--by-duration"
    FILE = "--from-file"


@frozen
class Reset:
    """A way and its value: an offset, a number of offsets, or a time (ms since 1970), as `way` says."""

    way: Way
    value: int = 0

    @property
    def is_by_time(self) -> bool:
        return self.way in (Way.DATETIME, Way.DURATION)


@frozen
class LogOffsets:
    """The offsets that logs hold, and those at the time of the reset (NO_OFFSET: no record so late)."""

    earliest: Mapping[TopicPartition, int]
    latest: Mapping[TopicPartition, int]
    at_time: Mapping[TopicPartition, int] = field(default_factory=dict)
    log_format: LogFormat = KAFKA_LOG


@frozen
class ResetRow:
    """The new offset of one partition; `committed` is the current one, None without a commit."""

    group: str
    partition: TopicPartition
    name: int | str
    """The name of the partition, as the cluster's tools show it."""
    committed: int | None
    new_offset: int


def new_offsets(
    reset: Reset,
    partitions: Collection[TopicPartition],
    committed: Mapping[TopicPartition, CommittedOffset],
    logs: LogOffsets,
    from_file: Mapping[TopicPartition, int] | None = None,
) -> tuple[dict[TopicPartition, int], list[str]]:
    """Return the new offset of each partition, and warnings for offsets outside the log.

    An offset beyond an end of the log becomes that end. `logs` may lack logs whose ends the way does not need: then an
    offset is only not negative. `from_file` has the offsets of `--from-file`. Raises
    CannotResetError where an offset to shift is not committed.
    """
    warnings: list[str] = []
    if reset.way is Way.SHIFT:
        lacking = [logs.log_format.name(tp) for tp in sorted(partitions) if tp not in committed]
        if lacking:
            raise CannotResetError(
                f"cannot shift the offsets of {first_of(lacking, MOST_NAMED, 'partition')}: the group has no committed "
                "offset there. Choose the partitions by --topic TOPIC:PARTITION, or another way such as --to-earliest"
            )
    found = {}
    for tp in sorted(partitions):
        match reset.way:
            case Way.EARLIEST:
                found[tp] = logs.earliest[tp]
            case Way.LATEST:
                found[tp] = logs.latest[tp]
            case Way.CURRENT:
                found[tp] = committed[tp].offset if tp in committed else logs.latest[tp]
            case Way.OFFSET:
                found[tp] = _within(tp, reset.value, logs, warnings)
            case Way.SHIFT:
                found[tp] = _within(tp, committed[tp].offset + reset.value, logs, warnings)
            case Way.FILE:
                found[tp] = _within(tp, (from_file or {})[tp], logs, warnings)
            case Way.DATETIME | Way.DURATION:
                found[tp] = _at_time(tp, logs, warnings)
    return found, warnings


def _within(tp: TopicPartition, offset: int, logs: LogOffsets, warnings: list[str]) -> int:
    name, noun = logs.log_format.name(tp), logs.log_format.offset_noun
    earliest, latest = logs.earliest.get(tp, 0), logs.latest.get(tp, offset)
    if offset > latest:
        warnings.append(f"new {noun} {offset} of {name} is higher than the latest one: it is set to {latest}")
        return latest
    if offset < earliest:
        warnings.append(f"new {noun} {offset} of {name} is lower than the earliest one: it is set to {earliest}")
        return earliest
    return offset


def _at_time(tp: TopicPartition, logs: LogOffsets, warnings: list[str]) -> int:
    offset = logs.at_time[tp]
    if offset != NO_OFFSET:
        return offset
    latest = logs.latest[tp]
    warnings.append(
        f"{logs.log_format.name(tp)} has no record of this time or later: it is set to the latest, {latest}"
    )
    return latest


# -- the values of the options -----------------------------------------------------------------------------------------


def parse_datetime(text: str) -> int:
    """Return the time of `2026-11-21T08:30:00.000` in ms since 1970; in UTC unless the text has an offset.

    Raises ValueError.
    """
    try:
        found = datetime.fromisoformat(text) if "T" in text else None
    except ValueError:
        found = None
    if found is None:
        raise ValueError(
            f"invalid time {text!r}: expected YYYY-MM-DDThh:mm:ss.sss with an optional offset such as +02:00 (UTC "
            "without one)"
        )
    aware = found.replace(tzinfo=UTC) if found.tzinfo is None else found
    return (aware - _EPOCH) // timedelta(milliseconds=1)


def parse_duration(text: str) -> int:
    """Return the milliseconds of a duration such as `P1DT2H30M` or `PT15M`. Raises ValueError."""
    found = _DURATION.fullmatch(text)
    if (
        found is None
        or not any(found[part] for part in ("days", "hours", "minutes", "seconds"))
        or found["time"] == "T"
    ):
        raise ValueError(f"invalid duration {text!r}: expected PnDTnHnMnS, for example P1D or PT2H30M")
    numbers = {part: float((found[part] or "0").replace(",", ".")) for part in ("days", "hours", "minutes", "seconds")}
    try:
        milliseconds = timedelta(**numbers) // timedelta(milliseconds=1)
    except (OverflowError, ValueError):  # timedelta takes fewer than 10**9 days, and no infinity
        raise ValueError(f"invalid duration {text!r}: it is longer than any log") from None
    return -milliseconds if found["sign"] == "-" else milliseconds


@frozen
class TopicScope:
    """A topic of the command line, and the names of the partitions; empty: all of them."""

    topic: str
    partitions: tuple[str, ...] = ()


def parse_topic(text: str) -> TopicScope:
    """Parse `orders` or `orders:0,1`. Raises ValueError."""
    topic, colon, names = text.partition(":")
    partitions = tuple(name.strip() for name in names.split(",")) if colon else ()
    if not topic or (colon and not all(partitions)):
        raise ValueError(f"invalid topic {text!r}: expected TOPIC or TOPIC:PARTITION,PARTITION...")
    return TopicScope(topic, partitions)


class NoSuchGroup(StreamGroupError):
    """A group of the command line does not exist."""


class NotChangedError(StreamGroupError):
    """Some groups or partitions of the command line were not changed."""


RESET: tuple[Column[ResetRow], ...] = (
    Column("GROUP", "group", lambda row: row.group),
    Column("TOPIC", "topic", lambda row: row.partition.topic),
    Column("PARTITION", "partition", lambda row: row.name),
    Column("CURRENT-OFFSET", "current_offset", lambda row: row.committed, verbose=True),
    Column("NEW-OFFSET", "new_offset", lambda row: row.new_offset),
)


# --- files of offsets -------------------------------------------------------------------------------------------------

_COLUMNS = "GROUP,TOPIC,PARTITION,OFFSET, or TOPIC,PARTITION,OFFSET with one --group"
_LARGEST = 2**63 - 1


@frozen
class OffsetLine:
    """The offset of one partition of one group."""

    group: str
    topic: str
    partition: int | str
    """The name of the partition, as the cluster's tools show it."""
    offset: int


def write_csv(lines: Iterable[OffsetLine], *, with_group: bool) -> str:
    """Return the rows without a header, as `--from-file` reads them; Kafka's tool leaves the group out if there is one.

    The text ends without a newline.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for line in lines:
        writer.writerow([*([line.group] if with_group else []), line.topic, line.partition, line.offset])
    return out.getvalue().rstrip("\n")


def read_csv(text: str, groups: Collection[str], log_format: LogFormat) -> dict[str, dict[TopicPartition, int]]:
    """Return the offsets of `groups` in the rows of `--from-file`; rows of other groups are left out.

    Raises ConfigError, which names the line.
    """
    found: dict[str, dict[TopicPartition, int]] = {group: {} for group in groups}
    (only,) = groups if len(groups) == 1 else (None,)
    reader = csv.reader(io.StringIO(text))
    for row in reader:
        if not row:
            continue
        cells = [cell.strip() for cell in row]
        if len(cells) == 3 and only is not None:
            cells = [only, *cells]
        if len(cells) != 4:
            raise _invalid(reader.line_num, f"it has {len(row)} columns: expected {_COLUMNS}")
        group, topic, partition, offset = cells
        if group not in found:
            continue
        try:
            tp = TopicPartition(topic, log_format.partition_number(partition))
        except ValueError as error:
            raise _invalid(reader.line_num, f"invalid partition {partition!r}: {error}") from None
        if not (offset.isascii() and offset.isdigit()) or int(offset) > _LARGEST:
            raise _invalid(reader.line_num, f"invalid offset {offset!r}: expected a number of at least 0")
        if tp in found[group]:
            raise _invalid(reader.line_num, f"{log_format.name(tp)} of group {group!r} is on an earlier line already")
        found[group][tp] = int(offset)
    if lacking := sorted(group for group, offsets in found.items() if not offsets):
        names = first_of(list(map(repr, lacking)), MOST_NAMED, "group")
        raise ConfigError(f"the file of --from-file has no line for group {names}")
    return found


def _invalid(line: int, reason: str) -> ConfigError:
    return ConfigError(f"cannot read line {line} of the file of --from-file: {reason}")
