from __future__ import annotations

import pytest

from streamgroup.errors import EncodeError, Truncated
from streamgroup.kafka.wire.frames import correlation_id_of, decode_response, encode_request
from streamgroup.kafka.wire.messages.cluster import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from streamgroup.kafka.wire.messages.group import HeartbeatRequest, HeartbeatResponse
from streamgroup.kafka.wire.schema import encode


def test_a_request_with_the_old_header() -> None:
    frame = encode_request(HeartbeatRequest(group_id="g", generation_id=7, member_id="m"), 1, 5, "me")
    body = "000c 0001 00000005 00026d65" + "000167 00000007 00016d"
    assert frame == len(bytes.fromhex(body)).to_bytes(4, "big") + bytes.fromhex(body)


def test_a_flexible_request_keeps_the_client_ids_old_length() -> None:
    frame = encode_request(ApiVersionsRequest(client_software_name="s", client_software_version="1"), 3, -1, "me")
    body = "0012 0003 ffffffff 00026d65 00" + "0273 0231 00"
    assert frame == len(bytes.fromhex(body)).to_bytes(4, "big") + bytes.fromhex(body)


def test_a_client_without_an_id_is_null() -> None:
    assert encode_request(ApiVersionsRequest(), 0, 1, None)[4:] == bytes.fromhex("0012 0000 00000001 ffff")
    with pytest.raises(EncodeError):
        encode_request(ApiVersionsRequest(), 0, 1, "x" * 40_000)


def test_responses_have_a_tagged_section_in_flexible_versions_only() -> None:
    answer = HeartbeatResponse(error_code=27)
    old = bytes.fromhex("00000009") + encode(answer, 3)
    new = bytes.fromhex("00000009 01 05 02 aabb") + encode(answer, 4)
    assert decode_response(HeartbeatRequest, 3, old) == (9, answer)
    assert decode_response(HeartbeatRequest, 4, new) == (9, answer)


def test_the_answer_to_api_versions_never_has_a_tagged_header() -> None:
    answer = ApiVersionsResponse(api_keys=(ApiVersion(api_key=18, min_version=0, max_version=4),))
    for version in (0, 3, 4):
        frame = bytes.fromhex("00000001") + encode(answer, version)
        assert decode_response(ApiVersionsRequest, version, frame) == (1, answer)


@pytest.mark.parametrize("known", [(), (ApiVersion(api_key=18, min_version=0, max_version=2),)])
def test_a_broker_that_does_not_know_our_api_versions_answers_in_v0(known: tuple[ApiVersion, ...]) -> None:
    refusal = ApiVersionsResponse(error_code=35, api_keys=known)
    frame = bytes.fromhex("00000001") + encode(refusal, 0)
    assert decode_response(ApiVersionsRequest, 4, frame) == (1, refusal)


@pytest.mark.parametrize("size", [0, 3])
def test_a_frame_without_a_correlation_id_is_truncated(size: int) -> None:
    with pytest.raises(Truncated):
        correlation_id_of(bytes(size))
    with pytest.raises(Truncated):
        decode_response(HeartbeatRequest, 4, bytes(size))
