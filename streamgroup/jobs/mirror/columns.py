"""The SQL expressions for the columns that a mirror writes."""

from __future__ import annotations

from collections.abc import Mapping

from streamgroup.frozen import frozen
from streamgroup.jobs.mirror.plan import MirrorPlan, Placement, TopicPlan


@frozen
class Abilities:
    """Which of keys, headers and timestamps the records of a cluster can have."""

    keys: bool = True
    timestamps: bool = True
    headers: bool = True

    def __and__(self, other: Abilities) -> Abilities:
        """Return the fields that records of both clusters can have."""
        return Abilities(self.keys and other.keys, self.timestamps and other.timestamps, self.headers and other.headers)


def columns_of(plan: MirrorPlan, common: Abilities) -> list[str]:
    """Return the columns to write. `common` are the fields that records of both clusters can have."""
    columns = ["value", f"{topic_of(plan)} AS topic", f"{partition_of(plan, by_key=common.keys)} AS partition"]
    if common.keys:
        columns.append("key")
    if common.timestamps:
        columns.append(f"{TIMESTAMP} AS timestamp")
    if common.headers:
        columns.append(f"{HEADERS} AS headers")
    return columns


TIMESTAMP = "CASE WHEN timestampType >= 0 AND timestamp >= timestamp_millis(0) THEN timestamp END"
"""The timestamp, null for a record without one. Old formats have none, and -1 stands for none in others."""

HEADERS = "coalesce(headers, CAST(array() AS array<struct<key: string, value: binary>>))"
"""The headers, an empty array for a record without them. The producer writes both alike, but the time to
pass nulls to Python grows with the square of the rows: Spark computes the size of each Arrow batch after each row, and
Arrow then visits all nulls since the last array (`ListVector.setValueCount`)."""


def topic_of(plan: MirrorPlan) -> str:
    """Return the name of the topic at the destination."""
    names = {topic.source: topic.destination for topic in plan.topics.values()}
    if all(ours == theirs for ours, theirs in names.items()):
        return "topic"
    return _cases("topic", {ours: literal(theirs) for ours, theirs in names.items()}, "topic")


def partition_of(plan: MirrorPlan, *, by_key: bool = True) -> str:
    """Return the partition at the destination, null where the sink's partitioner chooses it by the key.

    Where one cluster has no keys (not `by_key`), records are placed by their source partition.
    """
    own = {topic.source: _place(topic, by_key=by_key) for topic in plan.topics.values() if not topic.is_identity}
    return _cases("topic", own, "partition")


def place_of(plan: MirrorPlan, whole_topic: int, *, source: bool) -> str:
    """Return the place by which a record is compared: its partition at the destination, or `whole_topic` if its key
    chooses the partition.

    `source` says on which side the record is. A partition of the source without a plan has the place -2.
    """
    places = {}
    for topic in plan.topics.values():
        name = topic.source if source else topic.destination
        if topic.placement is Placement.HASH:
            places[name] = str(whole_topic)
        elif source and not topic.is_identity:
            places[name] = _numbers(topic, "-2")
    return _cases("topic", places, "partition")


def _place(topic: TopicPlan, *, by_key: bool) -> str:
    """Return the partition of a topic whose partitions change their numbers.

    A task fails that reads a partition which is newer than the plan: the job then plans again.
    """
    unplanned = literal(f"topic {topic.source} has a partition that the mirror has not planned: ")
    rest = f"raise_error(concat({unplanned}, partition))"
    known = _numbers(topic, rest)
    if topic.placement is Placement.HASH and by_key:
        return f"CASE WHEN key IS NULL THEN {known} END"
    return known


def _numbers(topic: TopicPlan, rest: str) -> str:
    return _cases("partition", {str(ours): str(theirs) for ours, theirs in sorted(topic.partitions.items())}, rest)


def _cases(what: str, results: Mapping[str, str], rest: str) -> str:
    """Return a CASE expression. Names are quoted, numbers are not."""
    if not results:
        return rest
    whens = " ".join(
        f"WHEN {value if value.isdigit() and what == 'partition' else literal(value)} THEN {result}"
        for value, result in results.items()
    )
    return f"CASE {what} {whens} ELSE {rest} END"


def literal(text: str) -> str:
    """Return a text as a literal of Spark's SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
