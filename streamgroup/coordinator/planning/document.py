"""The end document as a JSON value (R1-R4).

The shape of format 1, keys in this order, topics sorted by name, partitions by number::

    {"streamgroup": 1, "group": "etl", "lineage": "…", "run": "…", "sequence": 7,
     "ranges":    {"orders": {"0": [from, until]}},
     "positions": {"orders": {"0": [next offset, leader epoch]}},
     "topics":    {"orders": "topic id"}}

Format 2 adds `"founded": true` as the last key, to a document without ranges and positions (R7). Every other document
is written in format 1, which earlier releases read, too.

Spark writes `json.dumps` of it to its log, compares two documents as text, and passes back `json.loads` of the text. So
one document must always have one text, and a document that was read must be written again byte for byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from streamgroup.errors import ConfigError
from streamgroup.model import NO_TOPIC_ID, UNKNOWN_EPOCH, Document, OffsetRange, Position, TopicPartition

FORMAT = 2
"""The newest format that this release reads. It writes format 1 whenever format 1 can express the document."""

_KEYS = ("streamgroup", "group", "lineage", "run", "sequence", "ranges", "positions", "topics")
_KEYS_OF_FORMAT = {1: _KEYS, 2: (*_KEYS, "founded")}
_MAX_OFFSET = 2**63 - 1
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")
_EXCERPT = 200


def to_value(document: Document) -> dict[str, Any]:
    """Return the document as a JSON-able dict in its fixed order.

    Raises ValueError if a partition has two ranges or a topic two ids, or if a document marked as founded has ranges or
    positions: no planner may make such a document.
    """
    if document.is_founded and (document.ranges or document.positions):
        raise ValueError(f"document {document.sequence} is marked as 'founded', and has ranges or positions")
    value: dict[str, Any] = {
        "streamgroup": 2 if document.is_founded else 1,
        "group": document.group,
        "lineage": document.lineage,
        "run": document.run,
        "sequence": document.sequence,
        "ranges": _nested((r.partition, [r.start, r.until]) for r in sorted(document.ranges)),
        "positions": _nested(
            (tp, [p.offset, p.leader_epoch]) for tp, p in sorted(document.positions.items(), key=_key)
        ),
        "topics": _topic_ids(document.positions),
    }
    return {**value, "founded": True} if document.is_founded else value


class DocumentCache:
    """Parses offset documents and keeps the two newest: Spark polls every 10 ms with the same start.

    Comparing a value with one parsed before takes a hundredth of the time of parsing. The caller must not change a
    value in place; Spark creates new values from the text with each call. Only one thread may use the cache.
    """

    _REMEMBERED = 2
    """The start and the end of a batch. The end of one batch is the start of the next one."""

    def __init__(self) -> None:
        self._read: tuple[tuple[Mapping[str, Any], Document], ...] = ()

    def read(self, value: Mapping[str, Any]) -> Document:
        """Return the document of `value` as `from_value` does: the same object if the value was read before."""
        for known, document in self._read:
            if known == value:
                return document
        document = from_value(value)
        self._read = ((value, document), *self._read)[: self._REMEMBERED]
        return document


def from_value(value: Mapping[str, Any]) -> Document:
    """Parse a JSON value as an offset document: ours of any format up to FORMAT, or an offset of Spark's connector.

    The connector's `{"topic": {"0": 123}}` becomes a document with only positions: no lineage, no run, sequence 0.
    Raises ConfigError for any other value; the error names the format or the invalid part.
    """
    if not isinstance(value, Mapping) or not value:
        raise _unreadable(value, "it is not a non-empty JSON object")
    # A topic may be called "streamgroup": in Spark's own offset its value is an object, in ours a number.
    if isinstance(value.get("streamgroup"), Mapping) or "streamgroup" not in value:
        return _from_spark(value)
    version = _integer(value, value["streamgroup"], 1, "streamgroup")
    if version > FORMAT:
        raise ConfigError(
            f"cannot read the checkpoint's offset documents: they have format {version}, and this release of "
            f"streamgroup reads formats up to {FORMAT}. Use the release that wrote the checkpoint, or a later one"
        )
    keys = _KEYS_OF_FORMAT[version]
    if set(value) != set(keys):
        raise _unreadable(value, f"the keys of format {version} are {', '.join(keys)}")
    is_founded = version > 1
    if is_founded and (value["founded"] is not True or value["ranges"] or value["positions"]):
        raise _unreadable(value, "a document of format 2 must have 'founded': true, and neither ranges nor positions")
    return Document(
        group=_text(value, "group"),
        lineage=_text(value, "lineage"),
        run=_text(value, "run"),
        sequence=_integer(value, value["sequence"], 0, "sequence"),
        ranges=tuple(_ranges(value)),
        positions=_positions(value),
        is_founded=is_founded,
    )


def _key(item: tuple[TopicPartition, Position]) -> TopicPartition:
    return item[0]


def _nested(items: Iterable[tuple[TopicPartition, list[int]]]) -> dict[str, dict[str, list[int]]]:
    nested: dict[str, dict[str, list[int]]] = {}
    for tp, numbers in items:
        partitions = nested.setdefault(tp.topic, {})
        if str(tp.partition) in partitions:
            raise ValueError(f"{tp} has two ranges in one document")
        partitions[str(tp.partition)] = numbers
    return nested


def _topic_ids(positions: Mapping[TopicPartition, Position]) -> dict[str, str]:
    """Return the topic ids by topic name. Brokers before 2.8 have no topic ids."""
    ids: dict[str, str] = {}
    for tp in sorted(positions):
        topic_id = positions[tp].topic_id
        if ids.setdefault(tp.topic, topic_id) != topic_id:
            raise ValueError(f"{tp.topic} has two ids in one document: {ids[tp.topic]} and {topic_id}")
    return {topic: topic_id for topic, topic_id in ids.items() if topic_id != NO_TOPIC_ID}


def _from_spark(value: Mapping[str, Any]) -> Document:
    # The connector resolves -1 and -2 before it logs an offset, so none can be negative.
    positions = {
        tp: Position(_integer(value, offset, 0, str(tp)))
        for tp, offset in _entries(value, value, "an offset of Spark's Kafka connector")
    }
    return Document(group="", lineage="", run="", sequence=0, positions=positions)


def _ranges(value: Mapping[str, Any]) -> Iterator[OffsetRange]:
    entries = [
        (tp, *_pair(value, pair, 0, f"ranges of {tp}")) for tp, pair in _entries(value, value["ranges"], "ranges")
    ]
    for tp, start, until in sorted(entries):
        if start > until:
            raise _unreadable(value, f"the range of {tp} ends ({until}) before it begins ({start})")
        yield OffsetRange(tp, start, until)


def _positions(value: Mapping[str, Any]) -> dict[TopicPartition, Position]:
    topics = value["topics"]
    if not isinstance(topics, Mapping) or not all(isinstance(i, str) and i for i in topics.values()):
        raise _unreadable(value, "'topics' must map each topic to its id")
    positions = {}
    for tp, pair in _entries(value, value["positions"], "positions"):
        offset, epoch = _pair(value, pair, UNKNOWN_EPOCH, f"positions of {tp}")
        positions[tp] = Position(offset, topics.get(tp.topic, NO_TOPIC_ID), epoch)
    strangers = set(topics) - {tp.topic for tp in positions}
    if strangers:
        raise _unreadable(
            value, f"'topics' contains {sorted(strangers)[0]!r}, but no partition of that topic has a position"
        )
    return dict(sorted(positions.items(), key=_key))


def _entries(value: Mapping[str, Any], nested: object, place: str) -> Iterator[tuple[TopicPartition, Any]]:
    if not isinstance(nested, Mapping):
        raise _unreadable(value, f"{place} is not a JSON object with topics as keys")
    for topic, partitions in nested.items():
        if not isinstance(partitions, Mapping):
            raise _unreadable(
                value, f"{place}: the value of topic {topic!r} is not a JSON object with partitions as keys"
            )
        for number, entry in partitions.items():
            # Only the one spelling of a number: "00" or "+0" would be a second text for the same document.
            if not isinstance(number, str) or not _PARTITION.fullmatch(number):
                raise _unreadable(value, f"{place}: {number!r} of {topic!r} is not a partition number")
            yield TopicPartition(topic, int(number)), entry


def _pair(value: Mapping[str, Any], pair: object, lowest_second: int, place: str) -> tuple[int, int]:
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise _unreadable(value, f"{place}: not a pair of numbers: {pair!r}")
    return _integer(value, pair[0], 0, place), _integer(value, pair[1], lowest_second, place)


def _integer(value: Mapping[str, Any], number: object, lowest: int, place: str) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not lowest <= number <= _MAX_OFFSET:
        raise _unreadable(value, f"{place}: not a number of at least {lowest}: {number!r}")
    return number


def _text(value: Mapping[str, Any], key: str) -> str:
    text = value[key]
    if not isinstance(text, str):
        raise _unreadable(value, f"{key!r} is not text: {text!r}")
    return text


def _unreadable(value: object, reason: str) -> ConfigError:
    text = json.dumps(value, default=repr)
    excerpt = text if len(text) <= _EXCERPT else text[:_EXCERPT] + "…"
    return ConfigError(
        f"cannot read an offset in the checkpoint: it is neither an offset document of streamgroup nor an offset of "
        f"Spark's Kafka connector: {reason}. Restore the checkpoint's files or start with a new checkpoint. The "
        f"offset is {excerpt}"
    )
