"""Requests about groups: the list of groups, their members and committed offsets.

All are functions of a `KafkaCluster`. They retry until `deadline`, in seconds on the cluster's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Literal, TypeVar

from streamgroup.advice import RESOURCES, Operation, Requester, refusal
from streamgroup.errors import (
    BrokerError,
    DecodeError,
    ErrorCode,
    TransportError,
    UnsupportedVersionError,
    error_of,
    may_succeed_later,
)
from streamgroup.kafka.cluster.kafka import ANY, KafkaCluster
from streamgroup.kafka.wire.consumer import PROTOCOL_TYPE, decode_assignment, decode_subscription, each_partition
from streamgroup.kafka.wire.messages.admin import (
    ConsumerGroupAssignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupMember,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from streamgroup.kafka.wire.messages.offsets import (
    FIRST_WITH_ALL,
    ZOOKEEPER_VERSION,
    FetchedOffsets,
    OffsetFetchRequest,
    OffsetFetchResponse,
    fetched_offsets,
    offset_fetch_request,
)
from streamgroup.kafka.wire.schema import Message, Request
from streamgroup.model import (
    Broker,
    CommittedOffset,
    GroupDescription,
    GroupListing,
    GroupState,
    MemberDescription,
    TopicPartition,
)

R = TypeVar("R", bound=Message)
T = TypeVar("T")


def list_groups(cluster: KafkaCluster, deadline: float) -> dict[str, GroupListing]:
    """Return all groups of the cluster by id. Each broker lists the groups that it coordinates.

    Raises TransportError if a broker does not answer by the deadline: the list would be incomplete.
    """
    groups: dict[str, GroupListing] = {}
    for node in cluster.snapshot((), deadline).brokers:
        retry = cluster.retry(f"list of groups of broker {node}", deadline)
        while True:
            response = cluster.call(ListGroupsRequest(), node, deadline)
            if response.error_code == 0:
                break
            cause = error_of(response.error_code)
            if not may_succeed_later(response.error_code):
                context = f"cannot list the groups of broker {node}"
                if response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                    raise refusal(response.error_code, context, Operation.DESCRIBE, requester=cluster.requester)
                raise BrokerError(cause, context)
            retry.again(cause.name)
        for group in response.groups:
            groups[group.group_id] = _listing(group)
    return groups


def _listing(group: ListedGroup) -> GroupListing:
    return GroupListing(group.group_id, group.protocol_type, group.group_state, group.group_type.lower())


def listing_of(cluster: KafkaCluster, group: str, deadline: float) -> GroupListing | None:
    """Return the entry of `group` in ListGroups of its group coordinator; None if the list does not contain it.

    Brokers list groups of every protocol, even of protocols that DescribeGroups does not support. Raises
    AuthorizationError.
    """

    def read(_: int, response: ListGroupsResponse) -> GroupListing | None:
        check(response.error_code, f"cannot list group {group!r}", group, cluster.requester)
        found = next((g for g in response.groups if g.group_id == group), None)
        return None if found is None else _listing(found)

    return of_coordinator(cluster, group, (ListGroupsRequest, lambda _: ListGroupsRequest()), read, deadline)


def list_groups_once(
    cluster: KafkaCluster, deadline: float, *, timeout: float, epoch: int
) -> tuple[dict[str, GroupListing], list[str]]:
    """List the groups of the cluster by one attempt at each broker, for at most `timeout` seconds.

    Return the groups of the brokers that have answered, and a reason for each broker that has not. `epoch`: see
    `KafkaCluster.list_offsets_once`.
    """
    groups: dict[str, GroupListing] = {}
    causes: list[str] = []
    requests = {node: ListGroupsRequest() for node in cluster.snapshot((), deadline).brokers}
    for node, answer in cluster.call_each(requests, deadline, timeout=timeout, epoch=epoch).items():
        if isinstance(answer, TransportError):
            causes.append(str(answer))
            continue
        if answer.error_code:
            context = f"cannot list the groups of broker {node}"
            if answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                raise refusal(answer.error_code, context, Operation.DESCRIBE, requester=cluster.requester)
            causes.append(f"{context}: {error_of(answer.error_code).name}")
        for group in answer.groups:  # a broker that still loads some groups lists the others in addition to the error
            groups[group.group_id] = _listing(group)
    return groups, causes


def describe_groups(cluster: KafkaCluster, groups: Collection[str], deadline: float) -> dict[str, GroupDescription]:
    """Return state and members of each group by id. A group that does not exist has the state Dead and no members."""
    return {group: _describe(cluster, group, deadline) for group in sorted(groups)}


def describe_any_group(cluster: KafkaCluster, group: str, deadline: float) -> GroupDescription:
    """Return state and members of a group of either protocol of consumers. It is Dead if it does not exist."""
    described = _describe(cluster, group, deadline)
    if described.state != GroupState.DEAD:
        return described
    try:
        return describe_consumer_group(cluster, group, deadline)
    except UnsupportedVersionError:
        return described


def describe_consumer_group(cluster: KafkaCluster, group: str, deadline: float) -> GroupDescription:
    """Return state and members of a group of KIP-848. Brokers do not return the user data of its members.

    `strategy` is the name of the assignor of the group coordinator. The state is Dead if the group does not exist or
    has another protocol. Raises UnsupportedVersionError for brokers before 4.0, and for those that have the protocol
    switched off.
    """

    def read(version: int, response: ConsumerGroupDescribeResponse) -> GroupDescription:
        found = next((g for g in response.groups if g.group_id == group), None)
        if found is None:
            raise DecodeError(f"ConsumerGroupDescribe v{version}: group {group!r} is missing")
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return GroupDescription(group, GroupState.DEAD)
        if found.error_code == ErrorCode.UNSUPPORTED_VERSION:
            raise UnsupportedVersionError(
                f"cannot describe group {group!r}: the broker has the consumer protocol (KIP-848) switched off"
            )
        # The broker does not say which of the group's topics the user may not describe.
        name = "" if found.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED else group
        check(found.error_code, f"cannot describe group {group!r}", name, cluster.requester)
        members = tuple(map(_consumer, found.members))
        return GroupDescription(
            group, found.group_state, PROTOCOL_TYPE, found.assignor_name, members, found.group_epoch
        )

    request = ConsumerGroupDescribeRequest(group_ids=(group,))
    return of_coordinator(cluster, group, (ConsumerGroupDescribeRequest, lambda _: request), read, deadline)


_CLASSIC = 0
"""The type of a member of the classic protocol, since ConsumerGroupDescribe v1."""


def _consumer(member: ConsumerGroupMember) -> MemberDescription:
    return MemberDescription(
        member.member_id,
        member.client_id,
        member.client_host,
        member.instance_id,
        member.subscribed_topic_names,
        assigned=_partitions(member.assignment),
        hides_user_data=member.member_type == _CLASSIC,
        epoch=member.member_epoch,
        target=_partitions(member.target_assignment),
    )


def _partitions(assignment: ConsumerGroupAssignment) -> tuple[TopicPartition, ...]:
    each = (TopicPartition(t.topic_name, partition) for t in assignment.topic_partitions for partition in t.partitions)
    return tuple(sorted(each))


def committed(
    cluster: KafkaCluster,
    group: str,
    deadline: float,
    *,
    stable: bool = True,
    in_zookeeper: bool | None = None,
    partitions: Collection[TopicPartition] | None = None,
) -> dict[TopicPartition, CommittedOffset]:
    """Return the committed offsets of `group`, of all partitions or of these. The caller need not be a member.

    With `stable` the group coordinator waits for pending transactional commits: without it their records could be read
    twice (R19). Without `stable` the last complete commits are returned. `in_zookeeper` selects the offsets that
    brokers of 0.8 to 3.x keep in ZooKeeper; None selects them only if the brokers cannot keep offsets in Kafka. Raises
    UnsupportedVersionError if the brokers do not support the selected place.
    """
    known: list[TopicPartition] = []

    def ask(version: int) -> OffsetFetchRequest:
        if version < FIRST_WITH_ALL and not known:
            topics = cluster.snapshot(None, deadline).topics.values()
            known.extend(TopicPartition(topic.name, p.partition) for topic in topics for p in topic.partitions)
        return offset_fetch_request(version, group, partitions, known=known, require_stable=stable)

    def read(version: int, response: OffsetFetchResponse) -> FetchedOffsets:
        fetched = fetched_offsets(response, version, group)
        context = f"cannot fetch the committed offsets of group {group!r}"
        # A group without commits has no error: with this error the group is being removed.
        if fetched.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            raise RetriableError(error_of(fetched.error_code).name)
        check(fetched.error_code, context, group, cluster.requester)
        for tp, row in fetched.partitions.items():
            check(row.error_code, context, tp.topic, cluster.requester)
        return fetched

    fetched = of_coordinator(cluster, group, (OffsetFetchRequest, ask), read, deadline, in_zookeeper=in_zookeeper)
    return {tp: row.committed for tp, row in fetched.partitions.items() if row.committed is not None}


def _describe(cluster: KafkaCluster, group: str, deadline: float) -> GroupDescription:
    def read(version: int, response: DescribeGroupsResponse) -> GroupDescription:
        described = next((g for g in response.groups if g.group_id == group), None)
        if described is None:
            raise DecodeError(f"DescribeGroups v{version}: group {group!r} is missing")
        code = described.error_code
        if code == ErrorCode.GROUP_ID_NOT_FOUND:  # an error from v6 on, a Dead group before
            return GroupDescription(group, GroupState.DEAD)
        check(code, f"cannot describe group {group!r}", group, cluster.requester)
        return _description(described)

    request = DescribeGroupsRequest(groups=(group,))
    return of_coordinator(cluster, group, (DescribeGroupsRequest, lambda _: request), read, deadline)


def _description(group: DescribedGroup) -> GroupDescription:
    members = tuple(_member(member) for member in group.members)
    return GroupDescription(group.group_id, group.group_state, group.protocol_type, group.protocol_data, members)


def _member(member: DescribedGroupMember) -> MemberDescription:
    """Decode the member's metadata; topics and user data stay empty if its protocol is not the consumer protocol."""
    topics: tuple[str, ...] = ()
    user_data = b""
    with suppress(DecodeError):
        subscription = decode_subscription(member.member_metadata)
        topics, user_data = subscription.topics, bytes(subscription.user_data or b"")
    return MemberDescription(
        member.member_id,
        member.client_id,
        member.client_host,
        member.group_instance_id,
        topics,
        user_data,
        _assigned(member),
    )


def _assigned(member: DescribedGroupMember) -> tuple[TopicPartition, ...] | None:
    if not len(member.member_assignment):
        return ()
    try:
        return tuple(sorted(each_partition(decode_assignment(member.member_assignment).assigned_partitions)))
    except DecodeError:
        return None


class RetriableError(Exception):
    """An error code after which a retry may succeed: the group coordinator has moved or is not ready."""


def check(code: int, context: str, name: str, requester: Requester, operation: Operation = Operation.DESCRIBE) -> None:
    """Raise the exception for the error code `code`: RetriableError if a retry may succeed. Do nothing for code 0.

    `context` says what failed, `name` is the group or topic, and `operation` is the permission that the request needs
    on it.
    """
    if code == 0:
        return
    if may_succeed_later(code):
        raise RetriableError(error_of(code).name)
    if code in RESOURCES:
        raise refusal(code, context, operation, name, requester)
    raise BrokerError(code, context)


def of_coordinator(
    cluster: KafkaCluster,
    group: str,
    make: tuple[type[Request[R]], Callable[[int], Request[R]]],
    read: Callable[[int, R], T],
    deadline: float,
    *,
    in_zookeeper: bool | None = False,
) -> T:
    """Send a request to the group coordinator of `group` until `read` accepts the response.

    `make` has the request class and a function that makes the request for a version. `read(version, response)` returns
    the result, or raises RetriableError. The group coordinator is looked up for each attempt. If `in_zookeeper`, any
    broker is used.
    """
    retry = cluster.retry(f"{make[0].NAME} response for group {group!r}", deadline)
    last: Exception | None = None
    while True:
        coordinator: Broker | Literal["any"] = ANY
        if not in_zookeeper:
            try:
                coordinator = cluster.coordinator(group, deadline)
            except UnsupportedVersionError:
                if in_zookeeper is not None:
                    raise
                in_zookeeper = True
            except TransportError:
                if last is None:
                    raise
                retry.again(last)  # no time is left for another lookup: the last answer is the cause
                continue
        ceiling = ZOOKEEPER_VERSION if in_zookeeper else None
        try:
            return read(*cluster.call_versioned(*make, coordinator, deadline, ceiling=ceiling, keep_trying=False))
        except (RetriableError, TransportError) as cause:
            last = cause
            retry.again(cause)
