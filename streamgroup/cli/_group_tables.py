"""The tables of `streamgroup groups`: descriptions of groups as rows. Pure.

Columns and their order are those of kafka-consumer-groups.sh.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from streamgroup.cli._click import Column, Partition
from streamgroup.coordinator.run.run_events import RunEventKind
from streamgroup.frozen import frozen
from streamgroup.kafka.wire.consumer import PROTOCOL_TYPE
from streamgroup.model import CommittedOffset, GroupDescription, GroupListing, MemberDescription, TopicPartition


def _number(partition: int) -> Partition:
    return partition


@frozen
class OffsetRow:
    """A partition of a group, or a member that holds no partition (`partition` is None)."""

    group: str
    partition: TopicPartition | None
    committed: CommittedOffset | None
    log_end: int | None
    member: MemberDescription | None
    name: Partition | None = None
    """The name of the partition, as the cluster's tools show it."""
    next_member: MemberDescription | None = None
    """The member that the group assigns the partition to, if that is another one than `member`."""

    @property
    def lag(self) -> int | None:
        """How much the committed offset is behind the log's end, 0 if it is beyond the end."""
        if self.committed is None or self.log_end is None:
            return None
        return max(0, self.log_end - self.committed.offset)

    @property
    def next_id(self) -> str | None:
        """The id of `next_member`."""
        return None if self.next_member is None else self.next_member.member_id

    @property
    def beyond_end(self) -> int | None:
        """How much the committed offset is beyond the log's end, as in a topic that was recreated; None if it is not.

        The offset was fetched before the log's end, so no record that was written meanwhile causes this.
        """
        if self.committed is None or self.log_end is None or self.committed.offset <= self.log_end:
            return None
        return self.committed.offset - self.log_end


Trouble = Mapping[str, Mapping[str, Any]]
"""The counters of a member's coordinator, by kind: `{"rebalance": {"count": 2, "last": ..., "reason": ...}}`."""


@frozen
class MemberRow:
    """A member of a group.

    `trouble` is None if its coordinator process does not run on this machine.
    """

    group: str
    member: MemberDescription
    trouble: Trouble | None = None
    name_of: Callable[[int], Partition] = _number


@frozen
class StateRow:
    """The state of a group. `coordinator` is the broker or ZooKeeper that stores it."""

    group: GroupDescription
    coordinator: str


@frozen
class EventRow:
    """One kind of event of one member.

    A member without a coordinator process on this machine has one row without a kind.
    """

    member_id: str
    kind: str | None
    counter: Mapping[str, Any]


def _count_of(kind: str) -> Callable[[MemberRow], Any]:
    return lambda row: None if row.trouble is None else row.trouble.get(kind, {}).get("count")


def _of_member(read: Callable[[MemberDescription], str]) -> Callable[[OffsetRow], str | None]:
    return lambda row: None if row.member is None else read(row.member) or None


def _count(partitions: tuple[TopicPartition, ...] | None) -> int | None:
    return None if partitions is None else len(partitions)


def _partitions(row: MemberRow, partitions: tuple[TopicPartition, ...] | None) -> str | None:
    """`orders(0,1),payments(2)`."""
    topics: dict[str, list[str]] = {}
    for tp in partitions or ():
        topics.setdefault(tp.topic, []).append(str(row.name_of(tp.partition)))
    return ",".join(f"{topic}({','.join(names)})" for topic, names in topics.items()) or None


OFFSETS: tuple[Column[OffsetRow], ...] = (
    Column("GROUP", "group", lambda row: row.group),
    Column("TOPIC", "topic", lambda row: row.partition and row.partition.topic),
    Column("PARTITION", "partition", lambda row: row.name),
    Column("LEADER-EPOCH", "leader_epoch", lambda row: _known_epoch(row.committed), verbose=True),
    Column("CURRENT-OFFSET", "current_offset", lambda row: None if row.committed is None else row.committed.offset),
    Column("LOG-END-OFFSET", "log_end_offset", lambda row: row.log_end),
    Column("LAG", "lag", lambda row: row.lag),
    Column("BEYOND-END", "beyond_end", lambda row: row.beyond_end, if_any=True),
    Column("CONSUMER-ID", "consumer_id", _of_member(lambda member: member.member_id)),
    Column("NEXT-CONSUMER-ID", "next_consumer_id", lambda row: row.next_id, if_any=True),
    Column("HOST", "host", _of_member(lambda member: member.host)),
    Column("CLIENT-ID", "client_id", _of_member(lambda member: member.client_id)),
)
MEMBERS: tuple[Column[MemberRow], ...] = (
    Column("GROUP", "group", lambda row: row.group),
    Column("CONSUMER-ID", "consumer_id", lambda row: row.member.member_id),
    Column("GROUP-INSTANCE-ID", "group_instance_id", lambda row: row.member.instance_id, if_any=True),
    Column("HOST", "host", lambda row: row.member.host or None),
    Column("CLIENT-ID", "client_id", lambda row: row.member.client_id or None),
    Column("EPOCH", "epoch", lambda row: row.member.epoch, if_any=True),
    Column("#PARTITIONS", "partitions", lambda row: _count(row.member.assigned)),
    Column("#TARGET", "target_partitions", lambda row: _count(row.member.target), if_any=True),
    Column("ASSIGNMENT", "assignment", lambda row: _partitions(row, row.member.assigned), verbose=True),
)
TROUBLE: Column[MemberRow] = Column("TROUBLE", "trouble", lambda row: row.trouble)
"""In JSON a column of the members, in text tables of their own."""
COUNTS: tuple[Column[MemberRow], ...] = (
    Column("CONSUMER-ID", "consumer_id", lambda row: row.member.member_id),
    *(Column(kind.upper().replace("_", "-"), kind, _count_of(kind)) for kind in RunEventKind),
)
EVENTS: tuple[Column[EventRow], ...] = (
    Column("CONSUMER-ID", "consumer_id", lambda row: row.member_id),
    Column("TROUBLE", "trouble", lambda row: row.kind),
    Column("COUNT", "count", lambda row: row.counter.get("count")),
    Column("LAST", "last", lambda row: row.counter.get("last")),
    Column("REASON", "reason", lambda row: row.counter.get("reason")),
)
STATES: tuple[Column[StateRow], ...] = (
    Column("GROUP", "group", lambda row: row.group.group_id),
    Column("COORDINATOR (ID)", "coordinator", lambda row: row.coordinator),
    Column("ASSIGNMENT-STRATEGY", "assignment_strategy", lambda row: row.group.strategy or None),
    Column("STATE", "state", lambda row: row.group.state or None),
    Column("EPOCH", "epoch", lambda row: row.group.epoch, if_any=True),
    Column("#MEMBERS", "members", lambda row: row.group.member_count),
)
LISTED: tuple[Column[GroupListing], ...] = (
    Column("GROUP", "group", lambda row: row.group_id),
    Column("STATE", "state", lambda row: row.state or None),
)


# -- rows --------------------------------------------------------------------------------------------------------------


def consumer_groups(groups: Iterable[GroupListing]) -> list[GroupListing]:
    """Return the groups of consumers, by name, and groups that only commit.

    Connect's workers form groups of another type.
    """
    return sorted((g for g in groups if g.protocol_type in (PROTOCOL_TYPE, "")), key=lambda g: g.group_id)


def offset_rows(
    group: GroupDescription,
    committed: Mapping[TopicPartition, CommittedOffset],
    log_ends: Mapping[TopicPartition, int],
    name_of: Callable[[int], Partition] = _number,
) -> list[OffsetRow]:
    """Return a row for each partition that is held, assigned or committed, sorted, then one for each idle member."""
    holders: dict[TopicPartition, MemberDescription] = {}
    idle: list[MemberDescription] = []
    for member in _sorted(group.members):
        holders |= dict.fromkeys(member.assigned or (), member)
        if not member.assigned:
            idle.append(member)
    moving = group.moving
    rows = [
        OffsetRow(
            group.group_id,
            tp,
            committed.get(tp),
            log_ends.get(tp),
            holders.get(tp),
            name_of(tp.partition),
            moving.get(tp),
        )
        for tp in sorted({*holders, *moving, *committed})
    ]
    return rows + [OffsetRow(group.group_id, None, None, None, member) for member in idle]


def member_rows(
    group: GroupDescription,
    troubles: Mapping[str, Trouble] | None = None,
    name_of: Callable[[int], Partition] = _number,
) -> list[MemberRow]:
    """Return the members by id.

    `troubles` has the counters of members with a coordinator process on this machine, by id.
    """
    by_member = troubles or {}
    return [
        MemberRow(group.group_id, member, by_member.get(member.member_id), name_of) for member in _sorted(group.members)
    ]


def event_rows(members: Iterable[MemberRow]) -> list[EventRow]:
    """Return a row for each kind of event that a member has counted."""
    rows: list[EventRow] = []
    for row in members:
        if row.trouble is None:
            rows.append(EventRow(row.member.member_id, None, {}))
            continue
        had = [(kind, counter) for kind, counter in row.trouble.items() if counter.get("count")]
        rows += [EventRow(row.member.member_id, kind, counter) for kind, counter in had]
    return rows


def _sorted(members: Iterable[MemberDescription]) -> list[MemberDescription]:
    return sorted(members, key=lambda member: member.member_id)


def _known_epoch(committed: CommittedOffset | None) -> int | None:
    return None if committed is None or committed.leader_epoch < 0 else committed.leader_epoch
