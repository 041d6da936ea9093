"""The requests and responses of Kafka 0.8 and 0.9 as the protocol guide of that time lays them out, byte by byte."""

from __future__ import annotations

from typing import Any

import pytest

from streamgroup.errors import ErrorCode, UnsupportedVersionError
from streamgroup.kafka.wire.fields import specs_of
from streamgroup.kafka.wire.messages import admin, cluster, group, log, offsets, produce
from streamgroup.kafka.wire.messages.group import FindCoordinatorResponse, FoundCoordinator, coordinator_request
from streamgroup.kafka.wire.messages.produce import ALL_ACKS, LEADER_ACKS, NO_ACKS, ProduceRequest, ProduceResponse
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


def row(cls: type[Any], versions: str, layout: str, **fields: Any) -> Any:
    """The class, the versions with this layout (a digit each), the bytes, and a message of the values given."""
    return pytest.param(cls, [int(version) for version in versions], layout, made(cls, fields), id=cls.__name__)


def topic(**partitions: Any) -> list[Any]:
    return [{"name": "t", **partitions}]


APPENDED = topic(partition_responses=[{"index": 1, "error_code": 6, "base_offset": 7}, {"index": 2, "base_offset": 9}])
COMMIT = {
    "group_id": "g",
    "topics": topic(partitions=[{"partition_index": 1, "committed_offset": 7, "committed_metadata": "m"}]),
}
BY_MEMBER = {**COMMIT, "generation_id_or_member_epoch": 2, "member_id": "m"}
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
FETCH = {"partition": 1, "fetch_offset": 7, "partition_max_bytes": 4096}
MEMBER = {"group_id": "g", "member_id": "m"}
STATE = {"group_id": "g", "group_state": "Stable", "protocol_type": "consumer", "protocol_data": "range"}
HOST = {"member_id": "m", "client_id": "c", "client_host": "/h"}
DESCRIBED = {**STATE, "members": [{**HOST, "member_metadata": b"meta", "member_assignment": b"mine"}]}

LAYOUTS = [
    row(
        produce.ProduceRequest, "012", f"ffff 00007530 00000001 {T} 00000001 00000001 00000003 736574",
        acks=-1, timeout_ms=30_000, topic_data=topic(partition_data=[{"index": 1, "records": b"set"}]),
    ),
    *(
        row(
            produce.ProduceResponse, version, f"00000001 {T} 00000002 00000001 0006 0000000000000007 {appended}"
            f"00000002 0000 0000000000000009 {appended} {throttled}",
            responses=APPENDED,
        )
        for version, appended, throttled in (("0", "", ""), ("1", "", "00000000"), ("2", "f" * 16, "00000000"))
    ),
    row(cluster.MetadataRequest, "0", f"00000001 {T}", topics=topic()),
    row(cluster.MetadataRequest, "0", "00000000", topics=[]),
    row(
        cluster.MetadataResponse, "0",
        "00000001 00000003 0001 68 00002384"  # brokers: id, host, port
        f"00000001 0000 {T} 00000002"  # topics: error, name, partitions
        "0009 00000001 00000003 00000002 00000003 00000004 00000001 00000003"
        "0005 00000002 ffffffff 00000000 00000000",
        brokers=[{"node_id": 3, "host": "h", "port": 9092}], topics=topic(partitions=METADATA_PARTITIONS),
    ),
    row(
        log.FetchRequest, "0",
        f"ffffffff 00000064 00010000 00000001 {T} 00000001 00000001 0000000000000007 00001000",
        max_wait_ms=100, min_bytes=65536, topics=[{"topic": "t", "partitions": [FETCH]}],
    ),
    row(
        log.FetchResponse, "0",
        f"00000001 {T} 00000002 00000001 0000 0000000000000009 00000003 73657400000002 0001 ffffffffffffffff 00000000",
        responses=[{"topic": "t", "partitions": FETCHED_RECORDS}],
    ),
    row(
        log.ListOffsetsRequest, "0", f"ffffffff 00000001 {T} 00000001 00000001 fffffffffffffffe 00000001",
        replica_id=-1, topics=topic(partitions=[{"partition_index": 1, "timestamp": -2, "max_num_offsets": 1}]),
    ),
    row(
        log.ListOffsetsResponse, "0",
        f"00000001 {T} 00000001 00000001 0000 00000003 0000000000000009 0000000000000004 0000000000000000",
        topics=topic(partitions=[{"partition_index": 1, "old_style_offsets": [9, 4, 0]}]),
    ),
    row(group.FindCoordinatorRequest, "0", G, key="g"),
    row(group.FindCoordinatorResponse, "0", "000f ffffffff 0000 ffffffff", error_code=15, node_id=-1, port=-1),
    row(offsets.OffsetCommitRequest, "0", f"{G} 00000001 {T} 00000001 00000001 0000000000000007 {M}", **COMMIT),
    row(
        offsets.OffsetCommitRequest, "1",
        f"{G} 00000002 {M} 00000001 {T} 00000001 00000001 0000000000000007 ffffffffffffffff {M}", **BY_MEMBER,
    ),
    row(
        offsets.OffsetCommitRequest, "2",
        f"{G} 00000002 {M} 0000000000000005 00000001 {T} 00000001 00000001 0000000000000007 {M}",
        **BY_MEMBER, retention_time_ms=5,
    ),
    row(
        offsets.OffsetCommitResponse, "012", f"00000001 {T} 00000001 00000001 000c",
        topics=topic(partitions=[{"partition_index": 1, "error_code": 12}]),
    ),
    row(
        offsets.OffsetFetchRequest, "01", f"{G} 00000001 {T} 00000002 00000001 00000002",
        group_id="g", topics=topic(partition_indexes=[1, 2]),
    ),
    row(
        offsets.OffsetFetchResponse, "01",
        f"00000001 {T} 00000002 00000001 0000000000000007 {M} 0000 00000002 ffffffffffffffff 0000 0000",
        topics=topic(partitions=FETCHED),
    ),
    row(
        group.JoinGroupRequest, "0",
        f"{G} 00007530 0000 0008 636f6e73756d6572 00000001 0005 72616e6765 00000004 6d657461",
        group_id="g", session_timeout_ms=30_000, protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b"meta"}],
    ),
    row(
        group.JoinGroupResponse, "0", f"0000 00000002 0005 72616e6765 {M} {M} 00000001 {M} 00000004 6d657461",
        generation_id=2, protocol_name="range", leader="m", member_id="m",
        members=[{"member_id": "m", "metadata": b"meta"}],
    ),
    row(
        group.SyncGroupRequest, "0", f"{G} 00000002 {M} 00000001 {M} 00000004 6d696e65",
        **MEMBER, generation_id=2, assignments=[{"member_id": "m", "assignment": b"mine"}],
    ),
    row(group.SyncGroupResponse, "0", "001b 00000000", error_code=27),
    row(group.HeartbeatRequest, "0", f"{G} 00000002 {M}", **MEMBER, generation_id=2),
    row(group.HeartbeatResponse, "0", "001b", error_code=27),
    row(group.LeaveGroupRequest, "0", f"{G} {M}", **MEMBER),
    row(group.LeaveGroupResponse, "0", "0019", error_code=25),
    row(admin.ListGroupsRequest, "0", ""),
    row(
        admin.ListGroupsResponse, "0", f"0000 00000001 {G} 0008 636f6e73756d6572",
        groups=[{"group_id": "g", "protocol_type": "consumer"}],
    ),
    row(admin.DescribeGroupsRequest, "0", f"00000001 {G}", groups=["g"]),
    row(
        admin.DescribeGroupsResponse, "0",
        f"00000001 0000 {G} 0006 537461626c65 0008 636f6e73756d6572 0005 72616e6765"
        f"00000001 {M} 0001 63 0002 2f68 00000004 6d657461 00000004 6d696e65",
        groups=[DESCRIBED],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("cls", "versions", "layout", "message"), LAYOUTS)
def test_messages_are_laid_out_as_the_guide_has_it(
    cls: type[Any], versions: list[int], layout: str, message: Any
) -> None:
    for version in versions:
        assert encode(message, version) == bytes.fromhex(layout)
        assert decode(cls, bytes.fromhex(layout), version) == message


def test_every_request_of_the_guide_is_here_with_its_response() -> None:
    laid_out = {each.values[0] for each in LAYOUTS}
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


UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("version", "response", "found"),
    [
        (3, FindCoordinatorResponse(node_id=3, host="h", port=9092), Broker(3, "h", 9092)),
        (4, FindCoordinatorResponse(coordinators=COORDINATORS), Broker(3, "h", 9092)),
        (4, FindCoordinatorResponse(coordinators=COORDINATORS[:1]), None),
        (0, FindCoordinatorResponse(error_code=UNAVAILABLE, node_id=-1), UNAVAILABLE),
    ],
    ids=["one group", "several groups", "other groups", "an error"],
)
def test_the_answer_names_the_coordinator_or_an_error(version: int, response: Any, found: Any) -> None:
    assert group.read_coordinator(response, version, "g") == found


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
    row = produce.PartitionProduceData(index=1, records=b"set")
    topic = produce.TopicProduceData(name="t", topic_id=TOPIC_ID, partition_data=(row,))
    request = ProduceRequest(acks=ALL_ACKS, timeout_ms=30_000, topic_data=(topic,))
    assert {encode(request, version).hex(" ") for version in versions} == {bytes.fromhex(data).hex(" ")}


def test_a_new_leader_and_its_address_are_tagged_fields_of_v10() -> None:
    row = produce.PartitionProduceResponse(
        index=1, error_code=6, current_leader=produce.LeaderIdAndEpoch(leader_id=4, leader_epoch=7)
    )
    node = produce.NodeEndpoint(node_id=4, host="h", port=9092)
    topic = produce.TopicProduceResponse(name="t", topic_id=TOPIC_ID, partition_responses=(row,))
    moved = ProduceResponse(responses=(topic,), throttle_time_ms=5, node_endpoints=(node,))
    back = decode(ProduceResponse, encode(moved, 10), 10)
    assert back.node_endpoints == (node,)
    assert back.responses[0].partition_responses[0].current_leader == row.current_leader
    with pytest.raises(UnsupportedVersionError, match=r"current_leader|node_endpoints"):
        encode(moved, 9)


@pytest.mark.parametrize(("acks", "is_answered"), [(NO_ACKS, False), (LEADER_ACKS, True), (ALL_ACKS, True)])
def test_only_a_request_without_acks_has_no_response(acks: int, is_answered: bool) -> None:
    assert ProduceRequest(acks=acks).is_answered is is_answered
