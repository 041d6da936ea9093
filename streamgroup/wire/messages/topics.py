"""The APIs that change topics: DeleteTopics and CreatePartitions. CreateTopics is among the admin APIs."""

from __future__ import annotations

from streamgroup.wire.fields import Struct, array, boolean, int16, int32, message, string, uuid
from streamgroup.wire.schema import Message, Request


@message
class DeletableTopicResult(Struct):
    """The result for one topic."""

    name: str | None = string("0+", nullable="6+")
    topic_id: str = uuid("6+", ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("5+", nullable="5+", default=None, ignorable=True)


@message
class DeleteTopicsResponse(Message, versions="0-6", flexible=4):
    """One result per topic."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    responses: tuple[DeletableTopicResult, ...] = array(DeletableTopicResult, "0+")


@message
class DeleteTopicState(Struct):
    """A topic to delete, by its name or by its id."""

    name: str | None = string("6+", nullable="6+", default=None)
    topic_id: str = uuid("6+")


@message
class DeleteTopicsRequest(Request[DeleteTopicsResponse], api_key=20, versions="0-6", flexible=4):
    """Sent to the controller; brokers since 2.8 forward it."""

    topics: tuple[DeleteTopicState, ...] = array(DeleteTopicState, "6+")
    topic_names: tuple[str, ...] = array("string", "0-5", ignorable=True)
    timeout_ms: int = int32("0+")


@message
class CreatePartitionsTopicResult(Struct):
    """The result for one topic."""

    name: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


@message
class CreatePartitionsResponse(Message, versions="0-3", flexible=2):
    """One result per topic."""

    throttle_time_ms: int = int32("0+")
    results: tuple[CreatePartitionsTopicResult, ...] = array(CreatePartitionsTopicResult, "0+")


@message
class CreatePartitionsAssignment(Struct):
    """The brokers of one new partition."""

    broker_ids: tuple[int, ...] = array("int32", "0+")


@message
class CreatePartitionsTopic(Struct):
    """A topic, and how many partitions it shall have. Without assignments the controller chooses the brokers."""

    name: str = string("0+")
    count: int = int32("0+")
    assignments: tuple[CreatePartitionsAssignment, ...] | None = array(CreatePartitionsAssignment, "0+", nullable="0+")


@message
class CreatePartitionsRequest(Request[CreatePartitionsResponse], api_key=37, versions="0-3", flexible=2):
    """Sent to the controller (KIP-195)."""

    topics: tuple[CreatePartitionsTopic, ...] = array(CreatePartitionsTopic, "0+")
    timeout_ms: int = int32("0+")
    validate_only: bool = boolean("0+")
