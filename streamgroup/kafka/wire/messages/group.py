"""The membership APIs: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

from __future__ import annotations

from streamgroup.kafka.wire.fields import Struct, array, boolean, byte_string, int16, int32, message, string
from streamgroup.kafka.wire.primitives import Bytes
from streamgroup.kafka.wire.schema import Message, Request


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
