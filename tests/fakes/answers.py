"""Answers that a broker gives when nothing is wrong."""

from __future__ import annotations

from typing import Any

from streamgroup.kafka.wire.messages.cluster import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from streamgroup.kafka.wire.messages.group import FindCoordinatorRequest
from streamgroup.kafka.wire.messages.log import FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from streamgroup.kafka.wire.messages.offsets import OffsetFetchRequest
from streamgroup.kafka.wire.schema import Request

SPOKEN: tuple[type[Request[Any]], ...] = (
    ApiVersionsRequest,
    MetadataRequest,
    ListOffsetsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
)


def api_versions(**ranges: tuple[int, int]) -> ApiVersionsResponse:
    """A broker that speaks these versions only, `metadata=(0, 2)`."""
    keys = {cls.NAME.lower(): cls.API_KEY for cls in Request.__subclasses__()}
    return ApiVersionsResponse(
        api_keys=tuple(
            ApiVersion(api_key=keys[name], min_version=low, max_version=high) for name, (low, high) in ranges.items()
        )
    )


API_VERSIONS = api_versions(**{cls.NAME.lower(): cls.VERSIONS for cls in SPOKEN})


def topic(
    name: str, *leaders: int, error: int = 0, topic_id: str = "", epoch: int = 7, replicas: tuple[int, ...] = ()
) -> MetadataResponseTopic:
    """A topic with one partition per leader, each with the same replicas."""
    partitions = tuple(
        MetadataResponsePartition(
            error_code=0 if leader >= 0 else 5,
            partition_index=i,
            leader_id=leader,
            leader_epoch=epoch,
            replica_nodes=replicas,
        )
        for i, leader in enumerate(leaders)
    )
    return MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id, partitions=partitions)


def metadata(brokers: dict[int, int], *topics: MetadataResponseTopic) -> MetadataResponse:
    """A cluster of brokers, by id their ports on the loopback."""
    return MetadataResponse(
        brokers=tuple(
            MetadataResponseBroker(node_id=node, host="127.0.0.1", port=port) for node, port in brokers.items()
        ),
        cluster_id="fake",
        controller_id=min(brokers, default=-1),
        topics=topics,
    )


METADATA = metadata({1: 9092, 2: 9093}, topic("orders", 1, 2))
