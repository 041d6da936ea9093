"""Offsets of groups as text: the CSV of kafka-consumer-groups.sh, and `startingOffsets` of Spark's source. Pure."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from streamgroup.errors import ConfigError
from streamgroup.logformat import LogFormat
from streamgroup.model import EARLIEST, TopicPartition, name_some
from streamgroup.text import MOST_NAMED, first_of

_COLUMNS = "GROUP,TOPIC,PARTITION,OFFSET, or TOPIC,PARTITION,OFFSET with one --group"
_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class OffsetLine:
    """The offset of one partition of one group."""

    group: str
    topic: str
    partition: int | str
    """The partition, as the cluster's tools call it."""
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
    """Return the offsets of `groups` in the rows of `--from-file`; those of other groups are left out.

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
            raise _invalid(reader.line_num, f"{log_format.name(tp)} of group {group!r} has an earlier line already")
        found[group][tp] = int(offset)
    if lacking := sorted(group for group, offsets in found.items() if not offsets):
        names = first_of(list(map(repr, lacking)), MOST_NAMED, "group")
        raise ConfigError(f"the file of --from-file has no line for group {names}")
    return found


def _invalid(line: int, reason: str) -> ConfigError:
    return ConfigError(f"cannot read line {line} of the file of --from-file: {reason}")


def starting_offsets(
    offsets: Mapping[TopicPartition, int], existing: Mapping[str, Collection[int]]
) -> tuple[str, list[str]]:
    """Return `startingOffsets` for Spark's source, with notes about partitions that have no offset or no topic.

    Spark wants every partition of the topics that it subscribes to, and no other. So a partition of `existing` without
    an offset gets EARLIEST, where a member of the group would start too (R7). Partitions that do not exist are left
    out.
    """
    notes = []
    gone = sorted(tp for tp in offsets if tp.partition not in existing.get(tp.topic, ()))
    if gone:
        notes.append(f"left out, because the topic does not have it: {name_some(gone)}")
    nested: dict[str, dict[str, int]] = {}
    new = []
    for topic in sorted({tp.topic for tp in offsets} - {tp.topic for tp in gone if not existing.get(tp.topic)}):
        nested[topic] = {}
        for number in sorted(existing[topic]):
            tp = TopicPartition(topic, number)
            if tp not in offsets:
                new.append(str(tp))
            nested[topic][str(number)] = offsets.get(tp, EARLIEST)
    if new:
        names = first_of(new, MOST_NAMED, "partition")
        notes.append(f"no committed offset, so Spark starts at the earliest ({EARLIEST}): {names}")
    return json.dumps(nested, separators=(",", ":")), notes
