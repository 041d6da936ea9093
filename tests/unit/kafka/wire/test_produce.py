"""Produce in the versions since record batches: how requests name topics, and what a response tells of a partition."""

from __future__ import annotations

import pytest

from streamgroup.errors import UnsupportedVersionError
from streamgroup.kafka.wire.messages.produce import (
    ALL_ACKS,
    LEADER_ACKS,
    NO_ACKS,
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from streamgroup.kafka.wire.schema import decode, encode

TOPIC_ID = "0c1d2e3f-4a5b-6c7d-8e9f-0a1b2c3d4e5f"
ID = TOPIC_ID.replace("-", "")


def request(name: str = "t", transactional_id: str | None = None) -> ProduceRequest:
    row = PartitionProduceData(index=1, records=b"set")
    topic = TopicProduceData(name=name, topic_id=TOPIC_ID, partition_data=(row,))
    return ProduceRequest(transactional_id=transactional_id, acks=ALL_ACKS, timeout_ms=30_000, topic_data=(topic,))


def response(row: PartitionProduceResponse, *endpoints: NodeEndpoint) -> ProduceResponse:
    topic = TopicProduceResponse(name="t", topic_id=TOPIC_ID, partition_responses=(row,))
    return ProduceResponse(responses=(topic,), throttle_time_ms=5, node_endpoints=endpoints)


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
    assert {encode(request(), version).hex(" ") for version in versions} == {bytes.fromhex(data).hex(" ")}


@pytest.mark.parametrize("version", range(14))
def test_a_transactional_id_needs_v3(version: int) -> None:
    if version < 3:
        with pytest.raises(UnsupportedVersionError, match="transactional_id"):
            encode(request(transactional_id="tx"), version)
    else:
        back = decode(ProduceRequest, encode(request(transactional_id="tx"), version), version)
        assert back.transactional_id == "tx"


@pytest.mark.parametrize(
    ("version", "time", "start"), [(0, -1, -1), (1, -1, -1), (2, 7, -1), (4, 7, -1), (5, 7, 3), (12, 7, 3), (13, 7, 3)]
)
def test_offsets_and_times_that_an_older_response_lacks_are_unknown(version: int, time: int, start: int) -> None:
    row = PartitionProduceResponse(index=1, base_offset=9, log_append_time_ms=7, log_start_offset=3)
    (topic,) = decode(ProduceResponse, encode(response(row), version), version).responses
    (back,) = topic.partition_responses
    assert (back.index, back.error_code, back.base_offset) == (1, 0, 9)
    assert (back.log_append_time_ms, back.log_start_offset) == (time, start)
    assert (topic.name, topic.topic_id) == (("", TOPIC_ID) if version == 13 else ("t", ""))


@pytest.mark.parametrize(("version", "is_told"), [(7, False), (8, True), (9, True), (13, True)])
def test_the_records_that_the_broker_rejects_are_told_from_v8_on(version: int, is_told: bool) -> None:
    errors = (
        BatchIndexAndErrorMessage(batch_index=2, batch_index_error_message="no key"),
        BatchIndexAndErrorMessage(batch_index=5),
    )
    row = PartitionProduceResponse(index=1, error_code=87, record_errors=errors, error_message="compacted")
    (topic,) = decode(ProduceResponse, encode(response(row), version), version).responses
    (back,) = topic.partition_responses
    assert (back.record_errors, back.error_message) == ((errors, "compacted") if is_told else ((), None))


def test_a_new_leader_and_its_address_are_tagged_fields_of_v10() -> None:
    row = PartitionProduceResponse(index=1, error_code=6, current_leader=LeaderIdAndEpoch(leader_id=4, leader_epoch=7))
    node = NodeEndpoint(node_id=4, host="h", port=9092)
    moved = response(row, node)
    back = decode(ProduceResponse, encode(moved, 10), 10)
    assert back.node_endpoints == (node,)
    assert back.responses[0].partition_responses[0].current_leader == row.current_leader
    with pytest.raises(UnsupportedVersionError, match=r"current_leader|node_endpoints"):
        encode(moved, 9)


def test_a_response_without_a_new_leader_has_no_tagged_field() -> None:
    plain = encode(response(PartitionProduceResponse(index=1)), 10)
    assert plain == encode(response(PartitionProduceResponse(index=1)), 9)
    (topic,) = decode(ProduceResponse, plain, 10).responses
    assert topic.partition_responses[0].current_leader == LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)


@pytest.mark.parametrize(("acks", "is_answered"), [(NO_ACKS, False), (LEADER_ACKS, True), (ALL_ACKS, True)])
def test_only_a_request_without_acks_has_no_response(acks: int, is_answered: bool) -> None:
    assert ProduceRequest(acks=acks).is_answered is is_answered
