"""Changes that an operator makes: the committed offsets of groups, groups, and topics.

All are functions of a `KafkaCluster`. They retry until `deadline`, in seconds on the cluster's clock. The group
coordinator rejects a change of a group that has members, so a change never races with a member.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, TypeVar

from streamgroup.advice import RESOURCES, Operation, Requester, Resource, refusal
from streamgroup.errors import BrokerAuthorizationError, BrokerError, ErrorCode, UnsupportedVersionError, error_of
from streamgroup.kafka.cluster.admin import check, of_coordinator
from streamgroup.kafka.cluster.kafka import ANY, KafkaCluster
from streamgroup.kafka.wire.messages.admin import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from streamgroup.kafka.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    by_topic,
)
from streamgroup.kafka.wire.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from streamgroup.kafka.wire.schema import Message, Request
from streamgroup.model import TopicPartition, name_some
from streamgroup.text import MOST_NAMED, first_of

_OF_MEMBERS = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""The error codes with which a group coordinator rejects a change because the group has members."""


class GroupHasMembersError(BrokerError):
    """The group coordinator rejected a change because the group has members."""


def commit_as_admin(cluster: KafkaCluster, group: str, offsets: Mapping[TopicPartition, int], deadline: float) -> None:
    """Commit `offsets` for `group` without generation, member id, metadata and leader epoch. No member commits so.

    Kafka's own tools reset offsets in the same way, so members recognize it as an operator's reset (R5). Raises
    GroupHasMembersError if the group has members, and BrokerError for the first rejected partition. Other partitions
    may be committed then.
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

    Raises GroupHasMembersError, BrokerError (GROUP_ID_NOT_FOUND if the group does not exist), and
    UnsupportedVersionError for brokers before 1.1.
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
    """Delete the committed offsets of `partitions`. Return the error of each rejected partition.

    Raises BrokerError if the request is rejected for the group or the user lacks a permission, and
    UnsupportedVersionError for brokers before 2.4.
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
    """Raise the exception for `code`. The request needs `operation` on the topic, or on the group."""
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


# -- topics -----------------------------------------------------------------------------------------------------------

R = TypeVar("R", bound=Message)

BROKERS_DEFAULT = -1
"""The replication factor that means the brokers' `default.replication.factor` (KIP-464, since 2.4)."""
_BY_STATE = 6
"""The first version of DeleteTopics that names topics in DeleteTopicState."""
_VALIDATES = 1
"""The first version of CreateTopics that validates without creating."""
_INVALID_CONFIG = frozenset({ErrorCode.INVALID_CONFIG, ErrorCode.UNKNOWN_SERVER_ERROR})
"""The codes for an invalid configuration. Kafka 0.10.2 has no code for an invalid value."""


class _Result(NamedTuple):
    """The error code and message for one topic in a response of CreateTopics, DeleteTopics or CreatePartitions."""

    topic: str
    code: int
    message: str | None


def create_topics(
    cluster: KafkaCluster,
    topics: Mapping[str, int],
    deadline: float,
    *,
    replication_factor: int = 1,
    configs: Mapping[str, Mapping[str, str]] | None = None,
) -> frozenset[str]:
    """Create topics. `topics` maps each name to its number of partitions. Return the topics that did not exist before.

    `configs` has the topic configurations by topic. Returns when the cluster's metadata show a leader for each
    partition. Raises BrokerError for a rejected topic.
    """
    wanted = _creatable(topics, replication_factor, configs or {})

    def make(_: int) -> CreateTopicsRequest:
        return CreateTopicsRequest(topics=wanted, timeout_ms=_timeout_ms(cluster, deadline))

    accepted = {ErrorCode.TOPIC_ALREADY_EXISTS}
    results = _change(
        cluster, (CreateTopicsRequest, make), _created, ("create", Operation.CREATE), deadline, accepted=accepted
    )
    _wait_for_leaders(cluster, topics, deadline)
    return frozenset(result.topic for result in results if result.code == 0)


def refused_configs(
    cluster: KafkaCluster,
    topics: Mapping[str, int],
    deadline: float,
    *,
    replication_factor: int = 1,
    configs: Mapping[str, Mapping[str, str]],
) -> dict[str, dict[str, str]]:
    """Return the topic configurations that the brokers would reject: for each topic, name and reason.

    Nothing is created. Each configuration is validated alone, because a broker rejects a topic for its first invalid
    configuration, and its response has no field for the name. Brokers before 0.10.2 cannot validate: the result is
    empty.
    """
    refused: dict[str, dict[str, str]] = {}
    left = {topic: list(configs.get(topic, {}).items()) for topic in topics}
    if not any(left.values()) or cluster.newest_version(CreateTopicsRequest, deadline) < _VALIDATES:
        return refused
    while left := {topic: pairs for topic, pairs in left.items() if pairs}:
        tried = {topic: pairs.pop() for topic, pairs in left.items()}
        counts = {topic: topics[topic] for topic in tried}
        wanted = _creatable(counts, replication_factor, {topic: dict([pair]) for topic, pair in tried.items()})

        def make(_: int, wanted: tuple[CreatableTopic, ...] = wanted) -> CreateTopicsRequest:
            return CreateTopicsRequest(topics=wanted, timeout_ms=_timeout_ms(cluster, deadline), validate_only=True)

        accepted = {ErrorCode.TOPIC_ALREADY_EXISTS, *_INVALID_CONFIG}
        results = _change(
            cluster, (CreateTopicsRequest, make), _created, ("create", Operation.CREATE), deadline, accepted=accepted
        )
        for result in results:
            if result.code in _INVALID_CONFIG:
                name, _ = tried[result.topic]
                refused.setdefault(result.topic, {})[name] = result.message or ErrorCode.INVALID_CONFIG.name
    return refused


def _creatable(
    topics: Mapping[str, int], replication_factor: int, configs: Mapping[str, Mapping[str, str]]
) -> tuple[CreatableTopic, ...]:
    def settings(topic: str) -> tuple[CreatableTopicConfig, ...]:
        return tuple(CreatableTopicConfig(name=name, value=value) for name, value in configs.get(topic, {}).items())

    return tuple(
        CreatableTopic(name=name, num_partitions=count, replication_factor=replication_factor, configs=settings(name))
        for name, count in topics.items()
    )


def _created(response: CreateTopicsResponse) -> Iterable[_Result]:
    return (_Result(each.name, each.error_code, each.error_message) for each in response.topics)


def delete_topics(cluster: KafkaCluster, topics: Collection[str], deadline: float) -> None:
    """Delete topics with their records, and wait until the metadata no longer contain them.

    Raises BrokerError for a topic that does not exist or whose deletion is rejected, AuthorizationError, and
    UnsupportedVersionError before Kafka 0.10.1.
    """
    names = tuple(sorted(topics))

    def make(version: int) -> DeleteTopicsRequest:
        timeout_ms = _timeout_ms(cluster, deadline)
        if version >= _BY_STATE:
            states = tuple(DeleteTopicState(name=name) for name in names)
            return DeleteTopicsRequest(topics=states, timeout_ms=timeout_ms)
        return DeleteTopicsRequest(topic_names=names, timeout_ms=timeout_ms)

    def read(response: DeleteTopicsResponse) -> Iterable[_Result]:
        return (_Result(each.name or "", each.error_code, each.error_message) for each in response.responses)

    _change(cluster, (DeleteTopicsRequest, make), read, ("delete", Operation.DELETE), deadline)
    retry = cluster.retry("metadata without the deleted topics", deadline)
    # The request is for all topics: a broker before 0.11 would create a topic again that is requested by its name.
    while left := sorted(cluster.snapshot(None, deadline, refresh=True).topics.keys() & set(names)):
        retry.again(f"the metadata still contain {first_of(left, MOST_NAMED, 'topic')}")


def grow_topics(cluster: KafkaCluster, counts: Mapping[str, int], deadline: float) -> None:
    """Add partitions to topics, and wait until all have leaders. `counts` has the new total number by topic.

    Raises BrokerError for a topic that already has as many, AuthorizationError, and UnsupportedVersionError before
    Kafka 1.0.
    """

    def make(_: int) -> CreatePartitionsRequest:
        topics = tuple(
            CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in counts.items()
        )
        return CreatePartitionsRequest(topics=topics, timeout_ms=_timeout_ms(cluster, deadline))

    def read(response: CreatePartitionsResponse) -> Iterable[_Result]:
        return (_Result(each.name, each.error_code, each.error_message) for each in response.results)

    _change(cluster, (CreatePartitionsRequest, make), read, ("change", Operation.ALTER), deadline)
    _wait_for_leaders(cluster, counts, deadline)


def _change(
    cluster: KafkaCluster,
    request: tuple[type[Request[R]], Callable[[int], Request[R]]],
    read: Callable[[R], Iterable[_Result]],
    action: tuple[str, Operation],
    deadline: float,
    *,
    accepted: Collection[int] = (),
) -> list[_Result]:
    """Send a request to the controller until it has accepted each topic or rejected one. Return the results.

    `action` is the verb for errors, and the operation that the request needs. If an answer is lost, the request is
    repeated. The error then reports that the topic is already changed.
    """
    verb, operation = action
    retry = cluster.retry(f"{request[0].NAME} response of the controller", deadline)
    while True:
        controller = cluster.snapshot((), deadline, refresh=True).controller_id
        _, response = cluster.call_versioned(*request, controller if controller >= 0 else ANY, deadline)
        results = list(read(response))
        waiting = [each for each in results if each.code and each.code not in accepted]
        if not waiting:
            return results
        causes = [_cause(each, verb, operation, cluster.requester) for each in waiting]
        retry.again(first_of(causes, MOST_NAMED, "topic"))


def _cause(result: _Result, verb: str, operation: Operation, requester: Requester) -> str:
    """Return why the request must be repeated. Raises the error of a topic for which no retry can succeed."""
    error = error_of(result.code)
    reason = f"topic {result.topic!r}" + (f" ({result.message})" if result.message else "")
    if result.code in RESOURCES:
        raise refusal(result.code, f"cannot {verb} {reason}", operation, result.topic, requester)
    # No refresh of the metadata resolves an unknown topic: the controller knows all topics.
    if not error.retriable or result.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise BrokerError(error, f"cannot {verb} {reason}")
    return f"{reason}: {error.name}"


def _timeout_ms(cluster: KafkaCluster, deadline: float) -> int:
    return max(1, int((deadline - cluster.clock()) * 1000))


def _wait_for_leaders(cluster: KafkaCluster, counts: Mapping[str, int], deadline: float) -> None:
    retry = cluster.retry("leaders of new partitions", deadline)
    while True:
        snapshot = cluster.snapshot(counts, deadline, refresh=True)
        waiting = [
            tp
            for name, count in counts.items()
            for tp in (TopicPartition(name, partition) for partition in range(count))
            if snapshot.leader(tp) is None
        ]
        if not waiting:
            return
        retry.again(f"no leader yet for {name_some(waiting)}")
