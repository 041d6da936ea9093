"""The requests and responses of Kafka 0.8 and 0.9 as the protocol guide of that time lays them out, byte by byte."""

from __future__ import annotations

from typing import Any

import pytest

from streamgroup.errors import ErrorCode, UnsupportedVersionError
from streamgroup.kafka.wire.fields import specs_of
from streamgroup.kafka.wire.messages import admin, cluster, coordinator, group, log, offsets, produce
from streamgroup.kafka.wire.messages.coordinator import (
    FindCoordinatorResponse,
    FoundCoordinator,
    coordinator_request,
    read_coordinator,
)
from streamgroup.kafka.wire.messages.produce import (
    ALL_ACKS,
    LEADER_ACKS,
    NO_ACKS,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from streamgroup.kafka.wire.schema import Request, decode, encode
from streamgroup.model import Broker
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


def made(cls: type[Any], fields: dict[str, Any]) -> Any:
    """Return a message, in which lists are arrays and dicts are structs."""
    specs = {spec.name: spec for spec in specs_of(cls)}

    def value(name: str, given: Any) -> Any:
        kind = specs[name].type
        is_plain = not isinstance(given, list) or isinstance(kind, str)
        return (tuple(given) if isinstance(given, list) else given) if is_plain else tuple(made(kind, g) for g in given)

    return cls(**{name: value(name, given) for name, given in fields.items()})


def topic(**partitions: Any) -> list[Any]:
    return [{"name": "t", **partitions}]


APPENDED = topic(partition_responses=[{"index": 1, "error_code": 6, "base_offset": 7}, {"index": 2, "base_offset": 9}])
COMMIT = {
    "group_id": "g",
    "topics": topic(partitions=[{"partition_index": 1, "committed_offset": 7, "committed_metadata": "m"}]),
}
BY_MEMBER = {"generation_id_or_member_epoch": 2, "member_id": "m"}
FETCHED = [
    {"partition_index": 1, "committed_offset": 7, "metadata": "m"},
    {"partition_index": 2, "committed_offset": -1},
]
METADATA_PARTITIONS = [
    {"error_code": 9, "partition_index": 1, "leader_id": 3, "replica_nodes": [3, 4], "isr_nodes": [3]},
    {"error_code": 5, "partition_index": 2, "leader_id": -1},
]
FETCHED_RECORDS = [
    {"partition_index": 1, "high_watermark": 9, "records": b"set"},
    {"partition_index": 2, "error_code": 1, "high_watermark": -1, "records": b""},
]
MEMBER = {"group_id": "g", "member_id": "m"}
STATE = {"group_id": "g", "group_state": "Stable", "protocol_type": "consumer", "protocol_data": "range"}
HOST = {"member_id": "m", "client_id": "c", "client_host": "/h"}
DESCRIBED = {**STATE, "members": [{**HOST, "member_metadata": b"meta", "member_assignment": b"mine"}]}

# The class, its versions with this layout, the values that are not defaults, and the bytes.
LAYOUTS: list[tuple[type[Any], tuple[int, ...], dict[str, Any], str]] = [
    (
        produce.ProduceRequest,
        (0, 1, 2),
        {"acks": -1, "timeout_ms": 30_000, "topic_data": topic(partition_data=[{"index": 1, "records": b"set"}])},
        f"ffff 00007530 00000001 {T} 00000001 00000001 00000003 736574",
    ),
    *(
        (
            produce.ProduceResponse,
            (version,),
            {"responses": APPENDED},
            f"00000001 {T} 00000002"
            f"00000001 0006 0000000000000007 {appended} 00000002 0000 0000000000000009 {appended} {throttled}",
        )
        for version, appended, throttled in ((0, "", ""), (1, "", "00000000"), (2, "ffffffffffffffff", "00000000"))
    ),
    (cluster.MetadataRequest, (0,), {"topics": topic()}, f"00000001 {T}"),
    (cluster.MetadataRequest, (0,), {"topics": []}, "00000000"),
    (
        cluster.MetadataResponse,
        (0,),
        {"brokers": [{"node_id": 3, "host": "h", "port": 9092}], "topics": topic(partitions=METADATA_PARTITIONS)},
        "00000001 00000003 0001 68 00002384"  # brokers: id, host, port
        f"00000001 0000 {T} 00000002"  # topics: error, name, partitions
        "0009 00000001 00000003 00000002 00000003 00000004 00000001 00000003"
        "0005 00000002 ffffffff 00000000 00000000",
    ),
    (
        log.FetchRequest,
        (0,),
        {
            "max_wait_ms": 100,
            "min_bytes": 65536,
            "topics": [
                {"topic": "t", "partitions": [{"partition": 1, "fetch_offset": 7, "partition_max_bytes": 4096}]}
            ],
        },
        f"ffffffff 00000064 00010000 00000001 {T} 00000001 00000001 0000000000000007 00001000",
    ),
    (
        log.FetchResponse,
        (0,),
        {"responses": [{"topic": "t", "partitions": FETCHED_RECORDS}]},
        f"00000001 {T} 00000002 00000001 0000 0000000000000009 00000003 73657400000002 0001 ffffffffffffffff 00000000",
    ),
    (
        log.ListOffsetsRequest,
        (0,),
        {"replica_id": -1, "topics": topic(partitions=[{"partition_index": 1, "timestamp": -2, "max_num_offsets": 1}])},
        f"ffffffff 00000001 {T} 00000001 00000001 fffffffffffffffe 00000001",
    ),
    (
        log.ListOffsetsResponse,
        (0,),
        {"topics": topic(partitions=[{"partition_index": 1, "old_style_offsets": [9, 4, 0]}])},
        f"00000001 {T} 00000001 00000001 0000 00000003 0000000000000009 0000000000000004 0000000000000000",
    ),
    (coordinator.FindCoordinatorRequest, (0,), {"key": "g"}, G),
    (
        coordinator.FindCoordinatorResponse,
        (0,),
        {"error_code": 15, "node_id": -1, "port": -1},
        "000f ffffffff 0000 ffffffff",
    ),
    (offsets.OffsetCommitRequest, (0,), COMMIT, f"{G} 00000001 {T} 00000001 00000001 0000000000000007 {M}"),
    (
        offsets.OffsetCommitRequest,
        (1,),
        {**COMMIT, **BY_MEMBER},
        f"{G} 00000002 {M} 00000001 {T} 00000001 00000001 0000000000000007 ffffffffffffffff {M}",
    ),
    (
        offsets.OffsetCommitRequest,
        (2,),
        {**COMMIT, **BY_MEMBER, "retention_time_ms": 5},
        f"{G} 00000002 {M} 0000000000000005 00000001 {T} 00000001 00000001 0000000000000007 {M}",
    ),
    (
        offsets.OffsetCommitResponse,
        (0, 1, 2),
        {"topics": topic(partitions=[{"partition_index": 1, "error_code": 12}])},
        f"00000001 {T} 00000001 00000001 000c",
    ),
    (
        offsets.OffsetFetchRequest,
        (0, 1),
        {"group_id": "g", "topics": topic(partition_indexes=[1, 2])},
        f"{G} 00000001 {T} 00000002 00000001 00000002",
    ),
    (
        offsets.OffsetFetchResponse,
        (0, 1),
        {"topics": topic(partitions=FETCHED)},
        f"00000001 {T} 00000002 00000001 0000000000000007 {M} 0000 00000002 ffffffffffffffff 0000 0000",
    ),
    (
        group.JoinGroupRequest,
        (0,),
        {
            "group_id": "g",
            "session_timeout_ms": 30_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"meta"}],
        },
        f"{G} 00007530 0000 0008 636f6e73756d6572 00000001 0005 72616e6765 00000004 6d657461",
    ),
    (
        group.JoinGroupResponse,
        (0,),
        {
            "generation_id": 2,
            "protocol_name": "range",
            "leader": "m",
            "member_id": "m",
            "members": [{"member_id": "m", "metadata": b"meta"}],
        },
        f"0000 00000002 0005 72616e6765 {M} {M} 00000001 {M} 00000004 6d657461",
    ),
    (
        group.SyncGroupRequest,
        (0,),
        {**MEMBER, "generation_id": 2, "assignments": [{"member_id": "m", "assignment": b"mine"}]},
        f"{G} 00000002 {M} 00000001 {M} 00000004 6d696e65",
    ),
    (group.SyncGroupResponse, (0,), {"error_code": 27}, "001b 00000000"),
    (group.HeartbeatRequest, (0,), {**MEMBER, "generation_id": 2}, f"{G} 00000002 {M}"),
    (group.HeartbeatResponse, (0,), {"error_code": 27}, "001b"),
    (group.LeaveGroupRequest, (0,), MEMBER, f"{G} {M}"),
    (group.LeaveGroupResponse, (0,), {"error_code": 25}, "0019"),
    (admin.ListGroupsRequest, (0,), {}, ""),
    (
        admin.ListGroupsResponse,
        (0,),
        {"groups": [{"group_id": "g", "protocol_type": "consumer"}]},
        f"0000 00000001 {G} 0008 636f6e73756d6572",
    ),
    (admin.DescribeGroupsRequest, (0,), {"groups": ["g"]}, f"00000001 {G}"),
    (
        admin.DescribeGroupsResponse,
        (0,),
        {"groups": [DESCRIBED]},
        f"00000001 0000 {G} 0006 537461626c65 0008 636f6e73756d6572 0005 72616e6765"
        f"00000001 {M} 0001 63 0002 2f68 00000004 6d657461 00000004 6d696e65",
    ),
]


@pytest.mark.parametrize(("cls", "versions", "fields", "layout"), LAYOUTS, ids=[cls.__name__ for cls, *_ in LAYOUTS])
def test_messages_are_laid_out_as_the_guide_has_it(
    cls: type[Any], versions: tuple[int, ...], fields: dict[str, Any], layout: str
) -> None:
    message = made(cls, fields)
    for version in versions:
        assert encode(message, version) == bytes.fromhex(layout)
        assert decode(cls, bytes.fromhex(layout), version) == message


def test_every_request_of_the_guide_is_here_with_its_response() -> None:
    laid_out = {cls for cls, *_ in LAYOUTS}
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


# -- FindCoordinator up to v3 and from v4 on ---------------------------------------------------------------------------


COORDINATORS = (FoundCoordinator(key="other", node_id=1), FoundCoordinator(key="g", node_id=3, host="h", port=9092))


def test_the_group_is_the_key_up_to_v3_and_one_of_several_keys_from_v4() -> None:
    assert (coordinator_request(3, "g").key, coordinator_request(3, "g").coordinator_keys) == ("g", ())
    assert (coordinator_request(4, "g").key, coordinator_request(4, "g").coordinator_keys) == ("", ("g",))


@pytest.mark.parametrize(
    ("version", "response"),
    [
        (3, FindCoordinatorResponse(node_id=3, host="h", port=9092)),
        (4, FindCoordinatorResponse(coordinators=COORDINATORS)),
    ],
)
def test_the_answer_names_the_coordinator(version: int, response: FindCoordinatorResponse) -> None:
    assert read_coordinator(response, version, "g") == Broker(3, "h", 9092)


def test_an_error_code_is_returned_as_it_is() -> None:
    refused = FindCoordinatorResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, node_id=-1)
    assert read_coordinator(refused, 0, "g") == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_an_answer_about_other_groups_names_no_coordinator() -> None:
    assert read_coordinator(FindCoordinatorResponse(coordinators=COORDINATORS[:1]), 4, "g") is None


# -- Produce since record batches --------------------------------------------------------------------------------------


TOPIC_ID = "0c1d2e3f-4a5b-6c7d-8e9f-0a1b2c3d4e5f"
ID = TOPIC_ID.replace("-", "")


@pytest.mark.parametrize(
    ("versions", "data"),
    [
        (range(3), "ffff 00007530 00000001 0001 74 00000001 00000001 00000003 736574"),
        (range(3, 9), "ffff ffff 00007530 00000001 0001 74 00000001 00000001 00000003 736574"),
        (range(9, 13), "00 ffff 00007530 02 02 74 02 00000001 04 736574 00 00 00"),
        (range(13, 14), f"00 ffff 00007530 02 {ID} 02 00000001 04 736574 00 00 00"),
    ],
    ids=["v0-v2", "v3-v8", "v9-v12", "v13"],
)
def test_a_request_names_topics_up_to_v12_and_has_their_ids_from_v13(versions: range, data: str) -> None:
    row = PartitionProduceData(index=1, records=b"set")
    topic = TopicProduceData(name="t", topic_id=TOPIC_ID, partition_data=(row,))
    request = ProduceRequest(acks=ALL_ACKS, timeout_ms=30_000, topic_data=(topic,))
    assert {encode(request, version).hex(" ") for version in versions} == {bytes.fromhex(data).hex(" ")}


def test_a_new_leader_and_its_address_are_tagged_fields_of_v10() -> None:
    row = PartitionProduceResponse(index=1, error_code=6, current_leader=LeaderIdAndEpoch(leader_id=4, leader_epoch=7))
    node = NodeEndpoint(node_id=4, host="h", port=9092)
    topic = TopicProduceResponse(name="t", topic_id=TOPIC_ID, partition_responses=(row,))
    moved = ProduceResponse(responses=(topic,), throttle_time_ms=5, node_endpoints=(node,))
    back = decode(ProduceResponse, encode(moved, 10), 10)
    assert back.node_endpoints == (node,)
    assert back.responses[0].partition_responses[0].current_leader == row.current_leader
    with pytest.raises(UnsupportedVersionError, match=r"current_leader|node_endpoints"):
        encode(moved, 9)


@pytest.mark.parametrize(("acks", "is_answered"), [(NO_ACKS, False), (LEADER_ACKS, True), (ALL_ACKS, True)])
def test_only_a_request_without_acks_has_no_response(acks: int, is_answered: bool) -> None:
    assert ProduceRequest(acks=acks).is_answered is is_answered
