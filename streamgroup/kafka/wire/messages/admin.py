"""The admin APIs: CreateTopics, ListGroups, DescribeGroups, ConsumerGroupDescribe, DeleteGroups, OffsetDelete."""

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
from streamgroup.kafka.wire.messages.cluster import NO_OPERATIONS
from streamgroup.kafka.wire.primitives import Bytes
from streamgroup.kafka.wire.schema import Message, Request


@message
class CreatableTopicConfigs(Struct):
    """One configuration of a topic in a CreateTopics response."""

    name: str = string("5+")
    value: str | None = string("5+", nullable="5+")
    read_only: bool = boolean("5+")
    config_source: int = int8("5+", default=-1, ignorable=True)
    is_sensitive: bool = boolean("5+")


@message
class CreatableTopicResult(Struct):
    """The result for one topic in a CreateTopics response."""

    name: str = string("0+")
    topic_id: str = uuid("7+", ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("1+", nullable="0+", ignorable=True)
    topic_config_error_code: int = int16("5+", ignorable=True, tag=0, tagged="5+")
    num_partitions: int = int32("5+", default=-1, ignorable=True)
    replication_factor: int = int16("5+", default=-1, ignorable=True)
    configs: tuple[CreatableTopicConfigs, ...] | None = array(
        CreatableTopicConfigs, "5+", nullable="5+", ignorable=True
    )


@message
class CreateTopicsResponse(Message, versions="0-7", flexible=5):
    """The response to CreateTopics: one result per topic."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: tuple[CreatableTopicResult, ...] = array(CreatableTopicResult, "0+")


@message
class CreatableReplicaAssignment(Struct):
    """The brokers for the replicas of one partition in CreateTopics, the preferred leader first."""

    partition_index: int = int32("0+")
    broker_ids: tuple[int, ...] = array("int32", "0+")


@message
class CreatableTopicConfig(Struct):
    """One configuration to set for a topic in CreateTopics."""

    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


@message
class CreatableTopic(Struct):
    """A topic to create in CreateTopics.

    With `assignments`, the number of partitions and the replication factor must be -1. From v4 on, -1 without
    assignments means the defaults of the broker.
    """

    name: str = string("0+")
    num_partitions: int = int32("0+")
    replication_factor: int = int16("0+")
    assignments: tuple[CreatableReplicaAssignment, ...] = array(CreatableReplicaAssignment, "0+")
    configs: tuple[CreatableTopicConfig, ...] = array(CreatableTopicConfig, "0+")


@message
class CreateTopicsRequest(Request[CreateTopicsResponse], api_key=19, versions="0-7", flexible=5):
    """Creates topics. Sent to the controller; brokers since 2.8 forward it."""

    topics: tuple[CreatableTopic, ...] = array(CreatableTopic, "0+")
    timeout_ms: int = int32("0+", default=60_000)
    validate_only: bool = boolean("1+")


@message
class ListedGroup(Struct):
    """One group in a ListGroups response. State and type are `""` in versions that lack them."""

    group_id: str = string("0+")
    protocol_type: str = string("0+")
    group_state: str = string("4+", ignorable=True)
    group_type: str = string("5+", ignorable=True)


@message
class ListGroupsResponse(Message, versions="0-5", flexible=3):
    """The groups that the answering broker coordinates. A complete list takes a request to every broker."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    groups: tuple[ListedGroup, ...] = array(ListedGroup, "0+")


@message
class ListGroupsRequest(Request[ListGroupsResponse], api_key=16, versions="0-5", flexible=3):
    """Lists groups. Empty filters match every group (KIP-518, KIP-848)."""

    states_filter: tuple[str, ...] = array("string", "4+")
    types_filter: tuple[str, ...] = array("string", "5+")


@message
class DescribedGroupMember(Struct):
    """One member in a DescribeGroups response.

    Metadata and assignment are in the format of the member's protocol. They are empty while the group rebalances.
    """

    member_id: str = string("0+")
    group_instance_id: str | None = string("4+", nullable="4+", default=None, ignorable=True)
    client_id: str = string("0+")
    client_host: str = string("0+")
    member_metadata: Bytes = byte_string("0+")
    member_assignment: Bytes = byte_string("0+")


@message
class DescribedGroup(Struct):
    """One group in a DescribeGroups response. Up to v5 a group that does not exist is Dead and has no error."""

    error_code: int = int16("0+")
    error_message: str | None = string("6+", nullable="6+", default=None)
    group_id: str = string("0+")
    group_state: str = string("0+")
    protocol_type: str = string("0+")
    protocol_data: str = string("0+")
    members: tuple[DescribedGroupMember, ...] = array(DescribedGroupMember, "0+")
    authorized_operations: int = int32("3+", default=NO_OPERATIONS)


@message
class DescribeGroupsResponse(Message, versions="0-6", flexible=5):
    """The response to DescribeGroups: one description per group."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: tuple[DescribedGroup, ...] = array(DescribedGroup, "0+")


@message
class DescribeGroupsRequest(Request[DescribeGroupsResponse], api_key=15, versions="0-6", flexible=5):
    """Describes groups and their members. Sent to the group coordinator of the groups."""

    groups: tuple[str, ...] = array("string", "0+")
    include_authorized_operations: bool = boolean("3+")


@message
class ConsumerGroupTopicPartitions(Struct):
    """The partitions of one topic in an assignment of ConsumerGroupDescribe."""

    topic_id: str = uuid("0+")
    topic_name: str = string("0+")
    partitions: tuple[int, ...] = array("int32", "0+")


@message
class ConsumerGroupAssignment(Struct):
    """The partitions of a member in a ConsumerGroupDescribe response."""

    topic_partitions: tuple[ConsumerGroupTopicPartitions, ...] = array(ConsumerGroupTopicPartitions, "0+")


@message
class ConsumerGroupMember(Struct):
    """One member in a ConsumerGroupDescribe response. `member_type` is 0 for the classic protocol and 1 for KIP-848.

    While the group moves partitions, `assignment` is what the member has, and `target_assignment` what it will have.
    """

    member_id: str = string("0+")
    instance_id: str | None = string("0+", nullable="0+", default=None)
    rack_id: str | None = string("0+", nullable="0+", default=None)
    member_epoch: int = int32("0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: tuple[str, ...] = array("string", "0+")
    subscribed_topic_regex: str | None = string("0+", nullable="0+", default=None)
    assignment: ConsumerGroupAssignment = struct(ConsumerGroupAssignment, "0+")
    target_assignment: ConsumerGroupAssignment = struct(ConsumerGroupAssignment, "0+")
    member_type: int = int8("1+", default=-1, ignorable=True)


@message
class DescribedConsumerGroup(Struct):
    """One group in a ConsumerGroupDescribe response."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    group_id: str = string("0+")
    group_state: str = string("0+")
    group_epoch: int = int32("0+")
    assignment_epoch: int = int32("0+")
    assignor_name: str = string("0+")
    members: tuple[ConsumerGroupMember, ...] = array(ConsumerGroupMember, "0+")
    authorized_operations: int = int32("0+", default=NO_OPERATIONS)


@message
class ConsumerGroupDescribeResponse(Message, versions="0-1", flexible=0):
    """The response to ConsumerGroupDescribe: one description per group."""

    throttle_time_ms: int = int32("0+")
    groups: tuple[DescribedConsumerGroup, ...] = array(DescribedConsumerGroup, "0+")


@message
class ConsumerGroupDescribeRequest(Request[ConsumerGroupDescribeResponse], api_key=69, versions="0-1", flexible=0):
    """Describes groups of KIP-848 and their members. Sent to the group coordinator of the groups."""

    group_ids: tuple[str, ...] = array("string", "0+")
    include_authorized_operations: bool = boolean("0+")


@message
class DeletableGroupResult(Struct):
    """The result for one group in a DeleteGroups response."""

    group_id: str = string("0+")
    error_code: int = int16("0+")


@message
class DeleteGroupsResponse(Message, versions="0-2", flexible=2):
    """The response to DeleteGroups: one result per group."""

    throttle_time_ms: int = int32("0+")
    results: tuple[DeletableGroupResult, ...] = array(DeletableGroupResult, "0+")


@message
class DeleteGroupsRequest(Request[DeleteGroupsResponse], api_key=42, versions="0-2", flexible=2):
    """Deletes groups (KIP-229). Sent to the group coordinator, which refuses a group with members."""

    groups_names: tuple[str, ...] = array("string", "0+")


@message
class OffsetDeleteResponsePartition(Struct):
    """The result for one partition in an OffsetDelete response."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@message
class OffsetDeleteResponseTopic(Struct):
    """The partitions of one topic in an OffsetDelete response."""

    name: str = string("0+")
    partitions: tuple[OffsetDeleteResponsePartition, ...] = array(OffsetDeleteResponsePartition, "0+")


@message
class OffsetDeleteResponse(Message, versions="0"):
    """The response to OffsetDelete. `error_code` is about the group as a whole."""

    error_code: int = int16("0+")
    throttle_time_ms: int = int32("0+", ignorable=True)
    topics: tuple[OffsetDeleteResponseTopic, ...] = array(OffsetDeleteResponseTopic, "0+")


@message
class OffsetDeleteRequestPartition(Struct):
    """A partition in OffsetDelete, the committed offset of which is to be deleted."""

    partition_index: int = int32("0+")


@message
class OffsetDeleteRequestTopic(Struct):
    """The partitions of one topic in OffsetDelete."""

    name: str = string("0+")
    partitions: tuple[OffsetDeleteRequestPartition, ...] = array(OffsetDeleteRequestPartition, "0+")


@message
class OffsetDeleteRequest(Request[OffsetDeleteResponse], api_key=47, versions="0"):
    """Deletes committed offsets (KIP-496).

    Sent to the group coordinator, which refuses a topic that a member subscribes to.
    """

    group_id: str = string("0+")
    topics: tuple[OffsetDeleteRequestTopic, ...] = array(OffsetDeleteRequestTopic, "0+")
