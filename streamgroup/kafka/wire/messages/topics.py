"""The APIs of topics: DeleteTopics, CreatePartitions and DescribeConfigs. CreateTopics is among the admin APIs."""

from __future__ import annotations

from streamgroup.kafka.wire.fields import Struct, array, boolean, int8, int16, int32, message, string, uuid
from streamgroup.kafka.wire.schema import Message, Request

TOPIC, BROKER = 2, 4
"""The types of a topic and of a broker in DescribeConfigs."""


@message
class DeletableTopicResult(Struct):
    """The result for one topic in a DeleteTopics response."""

    name: str | None = string("0+", nullable="6+")
    topic_id: str = uuid("6+", ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("5+", nullable="5+", default=None, ignorable=True)


@message
class DeleteTopicsResponse(Message, versions="0-6", flexible=4):
    """The response to DeleteTopics: one result per topic."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    responses: tuple[DeletableTopicResult, ...] = array(DeletableTopicResult, "0+")


@message
class DeleteTopicState(Struct):
    """A topic in DeleteTopics, by its name or by its id."""

    name: str | None = string("6+", nullable="6+", default=None)
    topic_id: str = uuid("6+")


@message
class DeleteTopicsRequest(Request[DeleteTopicsResponse], api_key=20, versions="0-6", flexible=4):
    """Deletes topics. Sent to the controller; brokers since 2.8 forward it."""

    topics: tuple[DeleteTopicState, ...] = array(DeleteTopicState, "6+")
    topic_names: tuple[str, ...] = array("string", "0-5", ignorable=True)
    timeout_ms: int = int32("0+")


@message
class CreatePartitionsTopicResult(Struct):
    """The result for one topic in a CreatePartitions response."""

    name: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


@message
class CreatePartitionsResponse(Message, versions="0-3", flexible=2):
    """The response to CreatePartitions: one result per topic."""

    throttle_time_ms: int = int32("0+")
    results: tuple[CreatePartitionsTopicResult, ...] = array(CreatePartitionsTopicResult, "0+")


@message
class CreatePartitionsAssignment(Struct):
    """The brokers for the replicas of one new partition in CreatePartitions."""

    broker_ids: tuple[int, ...] = array("int32", "0+")


@message
class CreatePartitionsTopic(Struct):
    """A topic and its new total number of partitions.

    Without assignments the controller chooses the brokers.
    """

    name: str = string("0+")
    count: int = int32("0+")
    assignments: tuple[CreatePartitionsAssignment, ...] | None = array(CreatePartitionsAssignment, "0+", nullable="0+")


@message
class CreatePartitionsRequest(Request[CreatePartitionsResponse], api_key=37, versions="0-3", flexible=2):
    """Adds partitions to topics (KIP-195). Sent to the controller."""

    topics: tuple[CreatePartitionsTopic, ...] = array(CreatePartitionsTopic, "0+")
    timeout_ms: int = int32("0+")
    validate_only: bool = boolean("0+")


@message
class DescribeConfigsSynonym(Struct):
    """A value that a configuration would have if the values before it in the list were not set."""

    name: str = string("1+")
    value: str | None = string("1+", nullable="0+")
    source: int = int8("1+")


@message
class DescribeConfigsResourceResult(Struct):
    """One configuration in a DescribeConfigs response. A sensitive configuration has no value."""

    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")
    read_only: bool = boolean("0+")
    is_default: bool = boolean("0")
    config_source: int = int8("1+", default=-1, ignorable=True)
    is_sensitive: bool = boolean("0+")
    synonyms: tuple[DescribeConfigsSynonym, ...] = array(DescribeConfigsSynonym, "1+", ignorable=True)
    config_type: int = int8("3+", ignorable=True)
    documentation: str | None = string("3+", nullable="0+", ignorable=True)


@message
class DescribeConfigsResult(Struct):
    """The configurations of one topic or broker in a DescribeConfigs response."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: tuple[DescribeConfigsResourceResult, ...] = array(DescribeConfigsResourceResult, "0+")


@message
class DescribeConfigsResponse(Message, versions="0-4", flexible=4):
    """The response to DescribeConfigs: one result per resource."""

    throttle_time_ms: int = int32("0+")
    results: tuple[DescribeConfigsResult, ...] = array(DescribeConfigsResult, "0+")


@message
class DescribeConfigsResource(Struct):
    """A topic or broker in DescribeConfigs. Without `configuration_keys` all its configurations are returned."""

    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configuration_keys: tuple[str, ...] | None = array("string", "0+", nullable="0+")


@message
class DescribeConfigsRequest(Request[DescribeConfigsResponse], api_key=32, versions="0-4", flexible=4):
    """Requests configurations (KIP-133, since 0.11).

    Any broker describes topics. A broker describes only itself.
    """

    resources: tuple[DescribeConfigsResource, ...] = array(DescribeConfigsResource, "0+")
    include_synonyms: bool = boolean("1+")
    include_documentation: bool = boolean("3+")
