"""The requests and responses of Kafka 0.8 and 0.9 as the protocol guide of that time lays them out, byte by byte."""

from __future__ import annotations

from typing import Any

import pytest

from streamgroup.kafka.wire.messages import admin, cluster, coordinator, group, log, offsets, produce
from streamgroup.kafka.wire.schema import Request, decode, encode
from tests.unit.kafka.wire.declared import REQUESTS

API_KEYS = {
    "Produce": 0,
    "Fetch": 1,
    "ListOffsets": 2,
    "Metadata": 3,
    "OffsetCommit": 8,
    "OffsetFetch": 9,
    "FindCoordinator": 10,
    "JoinGroup": 11,
    "Heartbeat": 12,
    "LeaveGroup": 13,
    "SyncGroup": 14,
    "DescribeGroups": 15,
    "ListGroups": 16,
}
T = "0001 74"
G = "0001 67"
M = "0001 6d"
"""The strings t, g and m: an int16 length, then the bytes."""


def topic_with(cls: type[Any], row: Any) -> Any:
    return cls(name="t", partitions=(row,))


COMMITTED = topic_with(
    offsets.OffsetCommitRequestTopic,
    offsets.OffsetCommitRequestPartition(partition_index=1, committed_offset=7, committed_metadata="m"),
)
FETCHED = offsets.OffsetFetchResponsePartition(partition_index=1, committed_offset=7, metadata="m", error_code=0)
NEVER = offsets.OffsetFetchResponsePartition(partition_index=2, committed_offset=-1, metadata="", error_code=0)

LAYOUTS: dict[str, tuple[Any, int, str]] = {
    **{
        f"ProduceRequest v{version}": (
            produce.ProduceRequest(
                acks=-1,
                timeout_ms=30_000,
                topic_data=(
                    produce.TopicProduceData(
                        name="t", partition_data=(produce.PartitionProduceData(index=1, records=b"set"),)
                    ),
                ),
            ),
            version,
            f"ffff 00007530 00000001 {T} 00000001 00000001 00000003 736574",
        )
        for version in range(3)
    },
    **{
        f"ProduceResponse v{version}": (
            produce.ProduceResponse(
                responses=(
                    produce.TopicProduceResponse(
                        name="t",
                        partition_responses=(
                            produce.PartitionProduceResponse(index=1, error_code=6, base_offset=7),
                            produce.PartitionProduceResponse(index=2, error_code=0, base_offset=9),
                        ),
                    ),
                )
            ),
            version,
            f"00000001 {T} 00000002"
            f"00000001 0006 0000000000000007 {appended} 00000002 0000 0000000000000009 {appended} {throttled}",
        )
        for version, appended, throttled in ((0, "", ""), (1, "", "00000000"), (2, "ffffffffffffffff", "00000000"))
    },
    "TopicMetadataRequest": (
        cluster.MetadataRequest(topics=(cluster.MetadataRequestTopic(name="t"),)),
        0,
        f"00000001 {T}",
    ),
    "TopicMetadataRequest of all topics": (cluster.MetadataRequest(topics=()), 0, "00000000"),
    "MetadataResponse": (
        cluster.MetadataResponse(
            brokers=(cluster.MetadataResponseBroker(node_id=3, host="h", port=9092),),
            topics=(
                cluster.MetadataResponseTopic(
                    error_code=0,
                    name="t",
                    partitions=(
                        cluster.MetadataResponsePartition(
                            error_code=9, partition_index=1, leader_id=3, replica_nodes=(3, 4), isr_nodes=(3,)
                        ),
                        cluster.MetadataResponsePartition(error_code=5, partition_index=2, leader_id=-1),
                    ),
                ),
            ),
        ),
        0,
        "00000001 00000003 0001 68 00002384"  # brokers: id, host, port
        f"00000001 0000 {T} 00000002"  # topics: error, name, partitions
        "0009 00000001 00000003 00000002 00000003 00000004 00000001 00000003"
        "0005 00000002 ffffffff 00000000 00000000",
    ),
    "FetchRequest": (
        log.FetchRequest(
            max_wait_ms=100,
            min_bytes=65536,
            topics=(
                log.FetchTopic(
                    topic="t",
                    partitions=(log.FetchPartition(partition=1, fetch_offset=7, partition_max_bytes=4096),),
                ),
            ),
        ),
        0,
        f"ffffffff 00000064 00010000 00000001 {T} 00000001 00000001 0000000000000007 00001000",
    ),
    "FetchResponse": (
        log.FetchResponse(
            responses=(
                log.FetchableTopicResponse(
                    topic="t",
                    partitions=(
                        log.PartitionData(partition_index=1, error_code=0, high_watermark=9, records=b"set"),
                        log.PartitionData(partition_index=2, error_code=1, high_watermark=-1, records=b""),
                    ),
                ),
            )
        ),
        0,
        f"00000001 {T} 00000002 00000001 0000 0000000000000009 00000003 73657400000002 0001 ffffffffffffffff 00000000",
    ),
    "OffsetRequest": (
        log.ListOffsetsRequest(
            replica_id=-1,
            topics=(
                topic_with(
                    log.ListOffsetsTopic,
                    log.ListOffsetsPartition(partition_index=1, timestamp=-2, max_num_offsets=1),
                ),
            ),
        ),
        0,
        f"ffffffff 00000001 {T} 00000001 00000001 fffffffffffffffe 00000001",
    ),
    "OffsetResponse": (
        log.ListOffsetsResponse(
            topics=(
                topic_with(
                    log.ListOffsetsTopicResponse,
                    log.ListOffsetsPartitionResponse(partition_index=1, error_code=0, old_style_offsets=(9, 4, 0)),
                ),
            )
        ),
        0,
        f"00000001 {T} 00000001 00000001 0000 00000003 0000000000000009 0000000000000004 0000000000000000",
    ),
    "GroupCoordinatorRequest": (coordinator.FindCoordinatorRequest(key="g"), 0, G),
    "GroupCoordinatorResponse": (
        coordinator.FindCoordinatorResponse(error_code=15, node_id=-1, host="", port=-1),
        0,
        "000f ffffffff 0000 ffffffff",
    ),
    "OffsetCommitRequest v0": (
        offsets.OffsetCommitRequest(group_id="g", topics=(COMMITTED,)),
        0,
        f"{G} 00000001 {T} 00000001 00000001 0000000000000007 {M}",
    ),
    "OffsetCommitRequest v1": (
        offsets.OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=2, member_id="m", topics=(COMMITTED,)),
        1,
        f"{G} 00000002 {M} 00000001 {T} 00000001 00000001 0000000000000007 ffffffffffffffff {M}",
    ),
    "OffsetCommitRequest v2": (
        offsets.OffsetCommitRequest(
            group_id="g", generation_id_or_member_epoch=2, member_id="m", retention_time_ms=5, topics=(COMMITTED,)
        ),
        2,
        f"{G} 00000002 {M} 0000000000000005 00000001 {T} 00000001 00000001 0000000000000007 {M}",
    ),
    **{
        f"OffsetCommitResponse v{version}": (
            offsets.OffsetCommitResponse(
                topics=(
                    topic_with(
                        offsets.OffsetCommitResponseTopic,
                        offsets.OffsetCommitResponsePartition(partition_index=1, error_code=12),
                    ),
                )
            ),
            version,
            f"00000001 {T} 00000001 00000001 000c",
        )
        for version in range(3)
    },
    **{
        f"OffsetFetchRequest v{version}": (
            offsets.OffsetFetchRequest(
                group_id="g", topics=(offsets.OffsetFetchRequestTopic(name="t", partition_indexes=(1, 2)),)
            ),
            version,
            f"{G} 00000001 {T} 00000002 00000001 00000002",
        )
        for version in range(2)
    },
    **{
        f"OffsetFetchResponse v{version}": (
            offsets.OffsetFetchResponse(
                topics=(offsets.OffsetFetchResponseTopic(name="t", partitions=(FETCHED, NEVER)),)
            ),
            version,
            f"00000001 {T} 00000002 00000001 0000000000000007 {M} 0000 00000002 ffffffffffffffff 0000 0000",
        )
        for version in range(2)
    },
    "JoinGroupRequest": (
        group.JoinGroupRequest(
            group_id="g",
            session_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=(group.JoinGroupRequestProtocol(name="range", metadata=b"meta"),),
        ),
        0,
        f"{G} 00007530 0000 0008 636f6e73756d6572 00000001 0005 72616e6765 00000004 6d657461",
    ),
    "JoinGroupResponse": (
        group.JoinGroupResponse(
            error_code=0,
            generation_id=2,
            protocol_name="range",
            leader="m",
            member_id="m",
            members=(group.JoinGroupResponseMember(member_id="m", metadata=b"meta"),),
        ),
        0,
        f"0000 00000002 0005 72616e6765 {M} {M} 00000001 {M} 00000004 6d657461",
    ),
    "SyncGroupRequest": (
        group.SyncGroupRequest(
            group_id="g",
            generation_id=2,
            member_id="m",
            assignments=(group.SyncGroupRequestAssignment(member_id="m", assignment=b"mine"),),
        ),
        0,
        f"{G} 00000002 {M} 00000001 {M} 00000004 6d696e65",
    ),
    "SyncGroupResponse": (group.SyncGroupResponse(error_code=27, assignment=b""), 0, "001b 00000000"),
    "HeartbeatRequest": (
        group.HeartbeatRequest(group_id="g", generation_id=2, member_id="m"),
        0,
        f"{G} 00000002 {M}",
    ),
    "HeartbeatResponse": (group.HeartbeatResponse(error_code=27), 0, "001b"),
    "LeaveGroupRequest": (group.LeaveGroupRequest(group_id="g", member_id="m"), 0, f"{G} {M}"),
    "LeaveGroupResponse": (group.LeaveGroupResponse(error_code=25), 0, "0019"),
    "ListGroupsRequest": (admin.ListGroupsRequest(), 0, ""),
    "ListGroupsResponse": (
        admin.ListGroupsResponse(error_code=0, groups=(admin.ListedGroup(group_id="g", protocol_type="consumer"),)),
        0,
        f"0000 00000001 {G} 0008 636f6e73756d6572",
    ),
    "DescribeGroupsRequest": (admin.DescribeGroupsRequest(groups=("g",)), 0, f"00000001 {G}"),
    "DescribeGroupsResponse": (
        admin.DescribeGroupsResponse(
            groups=(
                admin.DescribedGroup(
                    error_code=0,
                    group_id="g",
                    group_state="Stable",
                    protocol_type="consumer",
                    protocol_data="range",
                    members=(
                        admin.DescribedGroupMember(
                            member_id="m",
                            client_id="c",
                            client_host="/h",
                            member_metadata=b"meta",
                            member_assignment=b"mine",
                        ),
                    ),
                ),
            )
        ),
        0,
        f"00000001 0000 {G} 0006 537461626c65 0008 636f6e73756d6572 0005 72616e6765"
        f"00000001 {M} 0001 63 0002 2f68 00000004 6d657461 00000004 6d696e65",
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_messages_are_laid_out_as_the_guide_has_it(name: str) -> None:
    message, version, layout = LAYOUTS[name]
    assert encode(message, version) == bytes.fromhex(layout)
    assert decode(type(message), bytes.fromhex(layout), version) == message


def test_every_request_of_the_guide_is_here_with_its_response() -> None:
    laid_out = {type(message) for message, _, _ in LAYOUTS.values()}
    of_the_guide: list[type[Request[Any]]] = [cls for cls in REQUESTS if cls.NAME in API_KEYS]
    assert laid_out == {*of_the_guide, *(cls.RESPONSE for cls in of_the_guide)}


def test_api_keys_are_those_of_the_guide() -> None:
    assert {cls.NAME: cls.API_KEY for cls in REQUESTS if cls.NAME in API_KEYS} == API_KEYS


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (0, offsets.OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=2, member_id="m")),
        (1, offsets.OffsetCommitRequest(group_id="g", retention_time_ms=5)),
    ],
)
def test_fields_that_an_older_offset_commit_lacks_are_left_out(version: int, message: Any) -> None:
    """v0 goes to ZooKeeper for nobody in particular; how long a commit is kept is said from v2 on."""
    layout = {0: G, 1: f"{G} ffffffff 0000"}[version]
    assert encode(message, version) == bytes.fromhex(f"{layout} 00000000")
