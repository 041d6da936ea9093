"""Changes of groups by an operator: new offsets, deleted offsets, deleted groups.

Functions over a `KafkaCluster`. Each retries until a deadline on the cluster's clock. The coordinator refuses each of
them for a group with members, so no change races with a member.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from streamgroup.advice import RESOURCES, Operation, Resource
from streamgroup.cluster.admin import check, of_coordinator
from streamgroup.cluster.kafka import KafkaCluster
from streamgroup.errors import BrokerAuthorizationError, BrokerError, ErrorCode, UnsupportedVersionError
from streamgroup.model import TopicPartition
from streamgroup.wire.messages.admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from streamgroup.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    by_topic,
)

_OF_MEMBERS = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""The answers of a coordinator that takes no change from outside, because the group has members."""


class GroupHasMembersError(BrokerError):
    """The coordinator refused a change because the group has members."""


def commit_as_admin(cluster: KafkaCluster, group: str, offsets: Mapping[TopicPartition, int], deadline: float) -> None:
    """Commit `offsets` for `group` as no member of it does: without generation, member id, metadata and leader epoch.

    Kafka's own tools commit a reset like this, so members take it for an operator's (R5). Raises GroupHasMembersError
    if the group has members, and BrokerError for the first partition that is refused. Other partitions may then be
    committed.
    """

    def read(_: int, response: OffsetCommitResponse) -> None:
        for topic in response.topics:
            for partition in topic.partitions:
                context = f"cannot set the offset of {topic.name}-{partition.partition_index} for group {group!r}"
                _check_change(cluster, partition.error_code, context, Operation.READ, group=group, topic=topic.name)

    request = OffsetCommitRequest(group_id=group, topics=tuple(_commit_rows(offsets)))
    of_coordinator(cluster, group, (OffsetCommitRequest, lambda _: request), read, deadline)


def delete_group(cluster: KafkaCluster, group: str, deadline: float) -> None:
    """Delete `group` with its offsets.

    Raises GroupHasMembersError, BrokerError (GROUP_ID_NOT_FOUND if it does not exist), and UnsupportedVersionError for
    brokers before 1.1.
    """

    def read(_: int, response: DeleteGroupsResponse) -> None:
        for result in response.results:
            _check_change(cluster, result.error_code, f"cannot delete group {group!r}", Operation.DELETE, group=group)

    request = DeleteGroupsRequest(groups_names=(group,))
    try:
        of_coordinator(cluster, group, (DeleteGroupsRequest, lambda _: request), read, deadline)
    except UnsupportedVersionError as error:
        raise UnsupportedVersionError(
            f"cannot delete group {group!r}: {error}. Kafka 1.1 and later delete groups. Older brokers forget the "
            "offsets of a group without members after offsets.retention.minutes"
        ) from error


def delete_offsets(
    cluster: KafkaCluster, group: str, partitions: Collection[TopicPartition], deadline: float
) -> dict[TopicPartition, BrokerError | None]:
    """Delete the committed offsets of `partitions`. Return the error of each partition that was refused.

    Raises BrokerError if the whole group is refused or the user lacks a right, and UnsupportedVersionError for brokers
    before 2.4.
    """

    def read(_: int, response: OffsetDeleteResponse) -> dict[TopicPartition, BrokerError | None]:
        context = f"cannot delete offsets of group {group!r}"
        _check_change(cluster, response.error_code, context, Operation.DELETE, group=group)
        found: dict[TopicPartition, BrokerError | None] = {}
        for topic in response.topics:
            for partition in topic.partitions:
                tp = TopicPartition(topic.name, partition.partition_index)
                try:
                    which = f"cannot delete the offset of {tp} of group {group!r}"
                    _check_change(cluster, partition.error_code, which, Operation.READ, group=group, topic=topic.name)
                    found[tp] = None
                except BrokerAuthorizationError:
                    raise
                except BrokerError as error:
                    found[tp] = error
        return found

    rows = [
        OffsetDeleteRequestTopic(
            name=topic, partitions=tuple(OffsetDeleteRequestPartition(partition_index=number) for number in numbers)
        )
        for topic, numbers in by_topic(partitions)
    ]
    request = OffsetDeleteRequest(group_id=group, topics=tuple(rows))
    try:
        return of_coordinator(cluster, group, (OffsetDeleteRequest, lambda _: request), read, deadline)
    except UnsupportedVersionError as error:
        raise UnsupportedVersionError(
            f"cannot delete offsets of group {group!r}: {error}. Kafka 2.4 and later delete single offsets. With older "
            "brokers reset them, or delete the group"
        ) from error


def _check_change(
    cluster: KafkaCluster, code: int, context: str, operation: Operation, *, group: str, topic: str = ""
) -> None:
    """Raise the exception for `code`. `operation` is what the request needs on the topic, or on the group."""
    if code in _OF_MEMBERS:
        raise GroupHasMembersError(code, f"{context}, which has members")
    name = topic if RESOURCES.get(code) is Resource.TOPIC else group
    check(code, context, name, cluster.requester, operation)


def _commit_rows(offsets: Mapping[TopicPartition, int]) -> Iterable[OffsetCommitRequestTopic]:
    for topic, numbers in by_topic(offsets):
        yield OffsetCommitRequestTopic(
            name=topic,
            partitions=tuple(
                OffsetCommitRequestPartition(
                    partition_index=number,
                    committed_offset=offsets[TopicPartition(topic, number)],
                    committed_metadata="",
                )
                for number in numbers
            ),
        )
