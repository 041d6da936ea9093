from __future__ import annotations

import copy
import dataclasses
import pickle
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgroup.errors import DecodeError, EncodeError, Truncated, UnsupportedVersionError
from streamgroup.kafka.wire import fields, frames
from streamgroup.kafka.wire.fields import FieldSpec, Struct, Versions, specs_of
from streamgroup.kafka.wire.frames import encode_request, request_pieces
from streamgroup.kafka.wire.messages import cluster, group, log
from streamgroup.kafka.wire.messages.cluster import ApiVersionsResponse, MetadataRequest, MetadataResponse
from streamgroup.kafka.wire.messages.group import HeartbeatRequest, JoinGroupRequest, SyncGroupResponse
from streamgroup.kafka.wire.messages.log import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from streamgroup.kafka.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from streamgroup.kafka.wire.primitives import Reader, append_tags
from streamgroup.kafka.wire.schema import LARGE, Message, array_reader, decode, encode
from tests.unit.kafka.wire.declared import MESSAGES, REQUESTS, VERSIONS_OF, instances

EVERY_MESSAGE = pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
TOPIC_ID = "0c1d2e3f-4a5b-6c7d-8e9f-0a1b2c3d4e5f"


def a_version(data: st.DataObject, cls: type[Message]) -> int:
    return data.draw(st.sampled_from(VERSIONS_OF[cls]), label="version")


def test_every_request_knows_its_response() -> None:
    assert len(REQUESTS) == 33
    for cls in REQUESTS:
        assert cls.RESPONSE.__name__ == f"{cls.NAME}Response"
        assert (cls.SCHEMA, cls.FLEXIBLE, cls.VERSIONS) == (
            cls.RESPONSE.SCHEMA,
            cls.RESPONSE.FLEXIBLE,
            cls.RESPONSE.VERSIONS,
        )
    assert len({cls.API_KEY for cls in REQUESTS}) == len(REQUESTS)


@pytest.mark.slow
@EVERY_MESSAGE
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_written_values_are_read_back(cls: type[Message], data: st.DataObject) -> None:
    version = a_version(data, cls)
    message = data.draw(instances(cls, version))
    assert decode(cls, encode(message, version), version) == message


@EVERY_MESSAGE
def test_the_defaults_travel_in_every_version(cls: type[Message]) -> None:
    for version in VERSIONS_OF[cls]:
        assert decode(cls, encode(cls(), version), version) == cls()


@pytest.mark.slow
@EVERY_MESSAGE
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_bytes_that_are_cut_off_or_left_over_are_errors(cls: type[Message], data: st.DataObject) -> None:
    version = a_version(data, cls)
    whole = encode(data.draw(instances(cls, version)), version)
    for end in range(len(whole)):
        with pytest.raises(DecodeError):
            decode(cls, whole[:end], version)
    with pytest.raises(DecodeError, match=r"1 of .* bytes are left over"):
        decode(cls, whole + b"\0", version)


@pytest.mark.parametrize(
    ("version", "head"), [(8, "00000000 7fffffff"), (12, "00000000 8080808008"), (12, "00000000 ffffffff07")]
)
def test_a_huge_array_is_refused_before_anything_is_allocated(version: int, head: str) -> None:
    data = bytes.fromhex(head) + bytes(1000)
    decode(MetadataResponse, encode(MetadataResponse(), version), version)
    tracemalloc.start()
    try:
        with pytest.raises(Truncated, match=r"truncated array at byte \d+: it has \d+ elements"):
            decode(MetadataResponse, data, version)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_an_array_is_refused_where_its_smallest_elements_would_not_fit() -> None:
    # 60 partitions of at least 18 bytes each cannot lie in 1000 bytes, although 60 bytes could
    whole = encode(MetadataResponse(topics=(cluster.MetadataResponseTopic(name="t"),)), 0)
    announced = whole[:-4] + (60).to_bytes(4, "big") + bytes(1000)
    with pytest.raises(Truncated, match=r"array at byte \d+: it has 60 elements, but only 1000 bytes are left"):
        decode(MetadataResponse, announced, 0)


def test_null_where_none_may_be_is_an_error() -> None:
    with pytest.raises(DecodeError, match=r"unexpected null at byte \d+: expected a value of type bytes"):
        decode(SyncGroupResponse, bytes.fromhex("0000 ffffffff"), 0)
    with pytest.raises(DecodeError, match=r"unexpected null at byte \d+: expected an array"):
        decode(MetadataResponse, bytes.fromhex("ffffffff 00000000"), 0)
    assert decode(MetadataRequest, bytes.fromhex("ffffffff"), 1).topics is None


def test_bytes_are_views_of_the_frame() -> None:
    partition = PartitionData(partition_index=3, records=b"batch")
    answer = FetchResponse(responses=(log.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=(partition,)),))
    frame = encode(answer, 16)
    records = decode(FetchResponse, frame, 16).responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame
    assert bytes(records) == b"batch"


def test_the_length_of_a_string_counts_its_bytes() -> None:
    assert encode(HeartbeatRequest(group_id="é"), 0)[:4] == b"\0\2\xc3\xa9"
    assert encode(HeartbeatRequest(group_id="é"), 4)[:3] == b"\3\xc3\xa9"


def test_anything_bytes_like_is_written() -> None:
    expected = encode(SyncGroupResponse(assignment=b"xy"), 0)
    assert encode(SyncGroupResponse(assignment=bytearray(b"xy")), 0) == expected
    assert encode(SyncGroupResponse(assignment=memoryview(b"-xy-")[1:3]), 0) == expected
    assert encode(SyncGroupResponse(assignment=memoryview(b"xy").cast("h")), 0) == expected


def test_a_value_that_a_version_cannot_carry_is_refused_unless_ignorable() -> None:
    with pytest.raises(UnsupportedVersionError, match=r"group_instance_id is 'i1': version 4 cannot carry it"):
        encode(JoinGroupRequest(group_instance_id="i1"), 4)
    assert encode(JoinGroupRequest(reason="new topics"), 7) == encode(JoinGroupRequest(), 7)
    with pytest.raises(UnsupportedVersionError, match="topics is None: version 0 cannot carry it"):
        encode(MetadataRequest(topics=None), 0)
    with pytest.raises(UnsupportedVersionError, match="require_stable is True"):
        encode(OffsetFetchRequest(require_stable=True), 6)


def test_a_field_that_a_version_lacks_has_its_default() -> None:
    read_back = decode(FetchRequest, encode(FetchRequest(topics=(FetchTopic(topic="t"),), max_bytes=7), 2), 2)
    assert read_back.max_bytes == 2**31 - 1
    assert decode(OffsetCommitRequest, encode(OffsetCommitRequest(), 2), 2).group_instance_id is None


def test_versions_that_are_not_declared_are_refused() -> None:
    for version in (-1, 5):
        with pytest.raises(UnsupportedVersionError, match="HeartbeatRequest v"):
            encode(HeartbeatRequest(), version)
        with pytest.raises(UnsupportedVersionError, match="supports versions 0-4"):
            decode(HeartbeatRequest, b"", version)


def test_a_version_with_topic_ids_is_declared_but_not_used() -> None:
    assert 10 in OffsetCommitRequest.SCHEMA
    assert OffsetCommitRequest.VERSIONS == OffsetFetchRequest.VERSIONS == (0, 9)


@pytest.mark.parametrize(
    ("message", "what"),
    [
        (HeartbeatRequest(generation_id=2**31), "generation_id: cannot write 2147483648"),
        (HeartbeatRequest(group_id=None), r"invalid HeartbeatRequest\.group_id: None is not allowed"),  # type: ignore[arg-type]
        (HeartbeatRequest(group_id=b"g"), "group_id: cannot write b'g'"),  # type: ignore[arg-type]
        (HeartbeatRequest(member_id="m" * 32768), "32768 bytes"),
        (JoinGroupRequest(protocols=(group.JoinGroupRequestProtocol(metadata="x"),)), "metadata: cannot write 'x'"),  # type: ignore[arg-type]
        (JoinGroupRequest(protocols=5), "protocols: cannot write 5"),  # type: ignore[arg-type]
    ],
)
def test_a_value_that_its_field_cannot_hold_is_named(message: Any, what: str) -> None:
    with pytest.raises(EncodeError, match=what):
        encode(message, 4)


def test_a_newer_brokers_tagged_fields_are_stepped_over() -> None:
    out = bytearray(encode(group.HeartbeatResponse(error_code=27), 4)[:-1])
    append_tags(out, [(0, b"new"), (77, b"")])
    assert decode(group.HeartbeatResponse, out, 4) == group.HeartbeatResponse(error_code=27)


def tagged_api_versions(tags: list[tuple[int, bytes]]) -> bytearray:
    out = bytearray(encode(ApiVersionsResponse(), 3)[:-1])
    append_tags(out, tags)
    return out


def test_known_tagged_fields_are_read_by_their_tags() -> None:
    feature = cluster.SupportedFeatureKey(name="kraft.version", max_version=1)
    answer = ApiVersionsResponse(supported_features=(feature,), finalized_features_epoch=9, zk_migration_ready=True)
    assert decode(ApiVersionsResponse, encode(answer, 3), 3) == answer
    between = tagged_api_versions([(1, (9).to_bytes(8, "big")), (2, b"\1"), (3, b"\1"), (40, b"zz")])
    assert decode(ApiVersionsResponse, between, 3).finalized_features_epoch == 9


@pytest.mark.parametrize(
    ("tags", "what"),
    [
        ([(1, bytes(8)), (1, bytes(8))], r"invalid tag 1 at byte \d+: expected a tag above 1"),
        ([(3, b"\1"), (1, bytes(8))], r"invalid tag 1 at byte \d+: expected a tag above 3"),
        ([(1, bytes(9))], "1 of 9 bytes are left over"),
        ([(1, bytes(7))], "truncated value at byte 0: it has 8 bytes, but only 7 are left"),
    ],
)
def test_tagged_fields_that_do_not_add_up_are_errors(tags: list[tuple[int, bytes]], what: str) -> None:
    with pytest.raises(DecodeError, match=what):
        decode(ApiVersionsResponse, tagged_api_versions(tags), 3)


def test_metadata_of_ten_thousand_partitions_is_read_quickly() -> None:
    partitions = tuple(
        cluster.MetadataResponsePartition(partition_index=p, replica_nodes=(1, 2, 3), isr_nodes=(1, 2, 3))
        for p in range(100)
    )
    topics = tuple(
        cluster.MetadataResponseTopic(name=f"t{i}", topic_id=TOPIC_ID, partitions=partitions) for i in range(100)
    )
    data = encode(MetadataResponse(topics=topics), 12)
    began = time.process_time()
    assert len(decode(MetadataResponse, data, 12).topics) == 100
    assert time.process_time() - began < 1.0


def test_items_without_bytes_of_their_own_do_not_make_an_array_of_any_length() -> None:
    with pytest.raises(Truncated, match="truncated array at byte 4: it has 3 elements, but only 2 bytes are left"):
        array_reader(lambda _: None, 0, False, False)(Reader(bytes.fromhex("00000003 0000")))


def produce(*records: bytes) -> ProduceRequest:
    rows = tuple(PartitionProduceData(index=index, records=each) for index, each in enumerate(records))
    return ProduceRequest(acks=-1, timeout_ms=1, topic_data=(TopicProduceData(name="t", partition_data=rows),))


@given(st.lists(st.integers(0, 5).map(lambda n: bytes([n]) * (n * LARGE // 3)), max_size=5), st.sampled_from([3, 9]))
def test_the_pieces_are_the_frame(records: list[bytes], version: int) -> None:
    request = produce(*records)
    pieces = request_pieces(request, version, 7, "me")
    whole = b"".join(pieces)
    assert whole[4:].endswith(encode(request, version))
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    assert encode_request(request, version, 7, "me") == whole
    assert all(len(piece) for piece in pieces)


def test_large_values_are_not_copied_and_small_ones_are() -> None:
    large, small = bytearray(LARGE), bytearray(LARGE - 1)
    kept = [memoryview(piece).obj for piece in request_pieces(produce(large, small, large), 9, 7, "me")]
    assert [each is large for each in kept] == [False, True, False, True, False]
    assert all(each is not small for each in kept)


def test_a_frame_that_is_too_large_by_a_value_that_is_kept_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_BYTES", LARGE)
    with pytest.raises(EncodeError, match="a frame has at most"):
        request_pieces(produce(bytes(LARGE)), 9, 7, "me")


# -- declarations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("0+", [0, 32767], [-1]), ("3-5", [3, 4, 5], [2, 6]), ("7", [7], [6, 8]), ("none", [], [-1, 0, 1])],
)
def test_versions_as_kafka_writes_them(text: str, inside: list[int], outside: list[int]) -> None:
    versions = Versions.parse(text)
    assert all(v in versions for v in inside)
    assert not any(v in versions for v in outside)


def test_a_declaration_is_kept_field_by_field_in_order() -> None:
    specs = specs_of(FetchPartition)
    assert [s.name for s in specs[:3]] == ["partition", "current_leader_epoch", "fetch_offset"]
    epoch = specs[1]
    assert (epoch.type, epoch.versions.first, epoch.default, epoch.ignorable) == ("int32", 9, -1, True)
    assert (specs[-1].tag, specs[-1].tagged.first) == (1, 18)


def test_messages_are_frozen_slotted_and_given_by_keyword() -> None:
    request = JoinGroupRequest(group_id="g")
    assert not hasattr(request, "__dict__")
    with pytest.raises(dataclasses.FrozenInstanceError):
        request.group_id = "h"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del request.group_id
    with pytest.raises(TypeError):
        JoinGroupRequest("g")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        JoinGroupRequest(group="g")  # type: ignore[call-arg]


def test_messages_are_compared_shown_and_copied_by_value() -> None:
    request = JoinGroupRequest(group_id="g", session_timeout_ms=5)
    same = JoinGroupRequest(session_timeout_ms=5, group_id="g")
    other = dataclasses.replace(request, group_id="h")
    assert request == same
    assert len({request, same, other}) == 2
    assert request != other
    assert request.group_id == "g"
    assert repr(FetchPartition(partition=3)).startswith("FetchPartition(partition=3, current_leader_epoch=-1, ")
    assert pickle.loads(pickle.dumps(request)) == copy.deepcopy(request) == request
    assert request != group.SyncGroupRequest(group_id="g")


def test_a_tag_needs_its_versions() -> None:
    with pytest.raises(ValueError, match="tag"):
        fields.int16("0+", tag=0)
    with pytest.raises(ValueError, match="tag"):
        fields.array(Struct, "0+", tagged="0+")


# -- the memory that a message takes, however its sender divides the bytes of the frame into elements ------------------

ELEMENTS = 300
MOST_PER_BYTE = 96
"""Python needs an object for each element and a view for each byte string, be they ever so small."""
CONSTANT = 2_560
_LEAST = {"bool": False, "string": "", "bytes": b"", "records": b"", "uuid": ""}


def untagged(cls: type[Struct], version: int) -> list[FieldSpec]:
    return [spec for spec in specs_of(cls) if version in spec.versions and version not in spec.tagged]


def smallest(type_: str | type[Struct], version: int) -> Any:
    """Return the value that takes the fewest bytes of a frame, without a null."""
    if isinstance(type_, str):
        return _LEAST.get(type_, 0)
    given = {s.name: () if s.is_array else smallest(s.type, version) for s in untagged(type_, version)}
    return cast(Any, type_)(**given)


def wide(cls: type[Struct], version: int) -> Iterator[Any]:
    """Yield a message for each of its arrays, at any depth, with many of the smallest elements in that array."""
    for spec in untagged(cls, version):
        if spec.is_array:
            yield cast(Any, cls)(**{spec.name: (smallest(spec.type, version),) * ELEMENTS})
        if not isinstance(spec.type, str):
            for inner in wide(spec.type, version):
                yield cast(Any, cls)(**{spec.name: (inner,) if spec.is_array else inner})


@pytest.mark.slow
@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_a_message_of_the_smallest_elements_takes_a_bounded_multiple_of_its_frame(cls: type[Message]) -> None:
    measured: set[bytes] = set()
    for version in VERSIONS_OF[cls]:
        decode(cls, encode(smallest(cls, version), version), version)  # its decoders are made once
        for message in wide(cls, version):
            frame = bytes(encode(message, version))
            if frame in measured:  # by an earlier version, which has the same elements
                continue
            measured.add(frame)
            tracemalloc.start()
            try:
                decode(cls, frame, version)
                taken = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            assert taken < MOST_PER_BYTE * len(frame) + CONSTANT, f"{version}: {taken} bytes for {len(frame)}"
