"""FindCoordinator and the requests of group members.

JoinGroup, SyncGroup, Heartbeat and LeaveGroup belong to the classic protocol, ConsumerGroupHeartbeat to the
consumer protocol.
"""

from __future__ import annotations

from streamgroup.kafka.wire.fields import (
    Struct,
    array,
    boolean,
    byte_string,
    int8,
    int16,
    int32,
    message,
    string,
    struct,
    uuid,
)
from streamgroup.kafka.wire.primitives import Bytes
from streamgroup.kafka.wire.schema import Message, Request
from streamgroup.model import Broker


@message
class JoinGroupResponseMember(Struct):
    """One member in a JoinGroup response, for the group leader.

    `metadata` is its subscription in the chosen protocol.
    """

    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    metadata: Bytes = byte_string("0+")


@message
class JoinGroupResponse(Message, versions="0-9", flexible=6):
    """The response to JoinGroup: the new generation. Only the group leader receives `members`."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16("0+")
    generation_id: int = int32("0+", default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = string("0+", nullable="7+")
    leader: str = string("0+")
    skip_assignment: bool = boolean("9+")
    member_id: str = string("0+")
    members: tuple[JoinGroupResponseMember, ...] = array(JoinGroupResponseMember, "0+")


@message
class JoinGroupRequestProtocol(Struct):
    """An assignor that the member supports, with the member's subscription for it, in JoinGroup."""

    name: str = string("0+")
    metadata: Bytes = byte_string("0+")


@message
class JoinGroupRequest(Request[JoinGroupResponse], api_key=11, versions="0-9", flexible=6):
    """Joins the group. The group coordinator answers when all members have joined.

    v0 has no rebalance timeout: the group coordinator uses the session timeout (R26).

    v4 answers the first JoinGroup with MEMBER_ID_REQUIRED and a member id (KIP-394). v5 has static members (KIP-345).
    """

    group_id: str = string("0+")
    session_timeout_ms: int = int32("0+")
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string("0+")
    protocols: tuple[JoinGroupRequestProtocol, ...] = array(JoinGroupRequestProtocol, "0+")
    reason: str | None = string("8+", nullable="8+", default=None, ignorable=True)


@message
class SyncGroupResponse(Message, versions="0-5", flexible=4):
    """The response to SyncGroup: the assignment of this member."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignment: Bytes = byte_string("0+")


@message
class SyncGroupRequestAssignment(Struct):
    """The assignment of one member in SyncGroup, which the group leader sends."""

    member_id: str = string("0+")
    assignment: Bytes = byte_string("0+")


@message
class SyncGroupRequest(Request[SyncGroupResponse], api_key=14, versions="0-5", flexible=4):
    """Requests this member's assignment. Only the group leader sends `assignments`."""

    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignments: tuple[SyncGroupRequestAssignment, ...] = array(SyncGroupRequestAssignment, "0+")


@message
class HeartbeatResponse(Message, versions="0-4", flexible=4):
    """The response to Heartbeat. After REBALANCE_IN_PROGRESS the member must rejoin."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")


@message
class HeartbeatRequest(Request[HeartbeatResponse], api_key=12, versions="0-4", flexible=4):
    """Keeps the session of a member alive."""

    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


@message
class MemberResponse(Struct):
    """The result for one member in a LeaveGroup response."""

    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+")
    error_code: int = int16("3+")


@message
class LeaveGroupResponse(Message, versions="0-5", flexible=4):
    """The response to LeaveGroup; from v3 on with one result per member."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    members: tuple[MemberResponse, ...] = array(MemberResponse, "3+")


@message
class MemberIdentity(Struct):
    """A member that leaves the group, in LeaveGroup."""

    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    reason: str | None = string("5+", nullable="5+", default=None, ignorable=True)


@message
class LeaveGroupRequest(Request[LeaveGroupResponse], api_key=13, versions="0-5", flexible=4):
    """Removes members from the group: one member up to v2, several from v3 (KIP-345)."""

    group_id: str = string("0+")
    member_id: str = string("0-2")
    members: tuple[MemberIdentity, ...] = array(MemberIdentity, "3+")


GROUP_KEY = 0
TRANSACTION_KEY = 1
"""The key types of FindCoordinator: a group id, and from v1 on a transactional id."""


@message
class FoundCoordinator(Struct):
    """The group coordinator of one group id in a FindCoordinator response (v4)."""

    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = string("4+", nullable="4+", ignorable=True)


@message
class FindCoordinatorResponse(Message, versions="0-6", flexible=3):
    """The response to FindCoordinator: one group coordinator up to v3, one per key from v4 (KIP-699)."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3", ignorable=True)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: tuple[FoundCoordinator, ...] = array(FoundCoordinator, "4+")


@message
class FindCoordinatorRequest(Request[FindCoordinatorResponse], api_key=10, versions="0-6", flexible=3):
    """Requests the group coordinator of one key (a group id) up to v3, of several from v4."""

    key: str = string("0-3")
    key_type: int = int8("1+", default=GROUP_KEY)
    coordinator_keys: tuple[str, ...] = array("string", "4+")


@message
class HeartbeatTopicPartitions(Struct):
    """The partitions of one topic, by its id, in ConsumerGroupHeartbeat."""

    topic_id: str = uuid("0+")
    partitions: tuple[int, ...] = array("int32", "0+")


@message
class HeartbeatAssignment(Struct):
    """The partitions that a member may own, in a ConsumerGroupHeartbeat response."""

    topic_partitions: tuple[HeartbeatTopicPartitions, ...] = array(HeartbeatTopicPartitions, "0+")


@message
class ConsumerGroupHeartbeatResponse(Message, versions="0-1", flexible=0):
    """The response to ConsumerGroupHeartbeat. `assignment` is None if it has not changed."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    member_id: str | None = string("0+", nullable="0+", default=None)
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    assignment: HeartbeatAssignment | None = struct(HeartbeatAssignment, "0+", nullable="0+")


@message
class ConsumerGroupHeartbeatRequest(Request[ConsumerGroupHeartbeatResponse], api_key=68, versions="0-1", flexible=0):
    """Joins, stays in or leaves a group of KIP-848. A field that is None, or -1, has not changed.

    `member_epoch` is 0 to join, -1 to leave, and -2 if a static member leaves for a while. From v1 the client chooses
    the member id (KIP-1082).
    """

    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    instance_id: str | None = string("0+", nullable="0+", default=None)
    rack_id: str | None = string("0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = int32("0+", default=-1)
    subscribed_topic_names: tuple[str, ...] | None = array("string", "0+", nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string("0+", nullable="0+", default=None)
    topic_partitions: tuple[HeartbeatTopicPartitions, ...] | None = array(
        HeartbeatTopicPartitions, "0+", nullable="0+", default=None
    )


# -- in one shape: up to v3 FindCoordinator names one group, from v4 a list of groups (KIP-699) -------------

FIRST_WITH_KEYS = 4


def coordinator_request(version: int, key: str, key_type: int = GROUP_KEY) -> FindCoordinatorRequest:
    """Return the request for the coordinator of `key`: of a group, or with TRANSACTION_KEY of a transactional id."""
    if version < FIRST_WITH_KEYS:
        return FindCoordinatorRequest(key=key, key_type=key_type)
    return FindCoordinatorRequest(coordinator_keys=(key,), key_type=key_type)


def read_coordinator(response: FindCoordinatorResponse, version: int, key: str) -> Broker | int | None:
    """Return the coordinator of `key`, or the error code in the response.

    Return None if a v4 response does not contain `key`.
    """
    answer: FindCoordinatorResponse | FoundCoordinator | None = response
    if version >= FIRST_WITH_KEYS:
        answer = next((one for one in response.coordinators if one.key == key), None)
    if answer is None:
        return None
    return answer.error_code or Broker(answer.node_id, answer.host, answer.port)
