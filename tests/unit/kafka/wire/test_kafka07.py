from __future__ import annotations

import gzip
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.errors import BrokerError, DecodeError, EncodeError, Refresh
from streamgroup.kafka.wire.kafka07 import (
    EARLIEST_TIME,
    ERRORS07,
    LATEST_TIME,
    NEVER_SENT,
    RANDOM_PARTITION,
    ErrorCode07,
    FetchRequest07,
    FetchResponse07,
    MultiFetchRequest07,
    MultiFetchResponse07,
    MultiProduceRequest07,
    OffsetsRequest07,
    OffsetsResponse07,
    ProduceRequest07,
    Request07,
    decode_request,
    decode_response,
    error07_of,
    message07,
    message_set07,
)
from tests.kafka07_samples import Sample, frames, samples

ALL = samples()
SAMPLES = {sample.name: sample for sample in ALL}
UNKNOWN_TYPE = "request type 5"
READABLE = [sample for sample in ALL if sample.name != UNKNOWN_TYPE]
WHOLE = [sample for sample in READABLE if sample.got and not sample.closed]
CUT = [sample for sample in READABLE if sample.got and sample.closed]

HELLO = message07(b"hello")
ONE, TWO, THREE = message07(b"one"), message07(b"two"), message07(b"three")

# The captured requests as one would write them.
WRITTEN: dict[str, Request07] = {
    "FETCH topic that does not exist": FetchRequest07("nosuch", 0, 0, 1 << 20),
    "OFFSETS -1 topic that does not exist": OffsetsRequest07("nosuch", 0, LATEST_TIME, 10),
    "OFFSETS -2 topic that does not exist": OffsetsRequest07("nosuch", 0, EARLIEST_TIME, 10),
    'PRODUCE one magic-1 message "hello" to t1/0': ProduceRequest07("t1", 0, HELLO),
    "PRODUCE two magic-0 messages": ProduceRequest07("t1", 0, message_set07([b"zero-a", b"zero-b"], magic=0)),
    "FETCH offset -1": FetchRequest07("t1", 0, -1, 1 << 20),
    "FETCH wrong partition 3": FetchRequest07("t1", 3, 0, 1 << 20),
    "FETCH maxSize -100": FetchRequest07("t1", 0, 0, -100),
    "FETCH maxSize 2^31-1": FetchRequest07("t1", 0, 0, 2**31 - 1),
    "FETCH topic 'a/b'": FetchRequest07("a/b", 0, 0, 1 << 20),
    "MULTIFETCH t1/0@0, g1/0@0": MultiFetchRequest07(
        (FetchRequest07("t1", 0, 0, 1000), FetchRequest07("g1", 0, 0, 1000))
    ),
    "MULTIFETCH of none": MultiFetchRequest07(()),
    "PRODUCE partition -1 (random) x1": ProduceRequest07("rnd", RANDOM_PARTITION, message07(b"r")),
    "MULTIPRODUCE mp1/0, mp2/1": MultiProduceRequest07(
        (ProduceRequest07("mp1", 0, ONE), ProduceRequest07("mp2", 1, TWO + THREE))
    ),
    "MULTIPRODUCE of none": MultiProduceRequest07(()),
    "OFFSETS segtopic/0 time=-1 max=-1": OffsetsRequest07("segtopic", 0, LATEST_TIME, -1),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_request_is_written_as_the_one_that_was_captured(name: str) -> None:
    assert WRITTEN[name].encode() == SAMPLES[name].sent


@pytest.mark.parametrize("sample", READABLE, ids=str)
def test_every_captured_request_is_read_and_written_to_the_same_bytes(sample: Sample) -> None:
    assert b"".join(decode_request(frame).encode() for frame in frames(sample.sent)) == sample.sent


@pytest.mark.parametrize("sample", WHOLE, ids=str)
def test_every_captured_response_is_read_and_written_to_the_same_bytes(sample: Sample) -> None:
    requests = [decode_request(frame) for frame in frames(sample.sent)]
    answers = [decode_response(*each) for each in zip(requests, frames(sample.got), strict=True)]
    assert b"".join(answer.encode() for answer in answers) == sample.got


@pytest.mark.parametrize("sample", CUT, ids=str)
def test_bytes_before_the_broker_closes_are_never_taken_for_a_response(sample: Sample) -> None:
    (request,) = [decode_request(frame) for frame in frames(sample.sent)]
    with pytest.raises(DecodeError):
        decode_response(request, sample.got[4 : 4 + max(0, int.from_bytes(sample.got[:4], "big", signed=True))])


def test_all_samples_are_covered() -> None:
    assert len(ALL) == 49
    assert (len(READABLE), len(WHOLE), len(CUT)) == (48, 30, 4)
    assert {type(decode_request(frame)) for sample in READABLE for frame in frames(sample.sent)} == {
        FetchRequest07, MultiFetchRequest07, OffsetsRequest07, ProduceRequest07, MultiProduceRequest07
    }  # fmt: skip


def test_an_unknown_type_is_refused_by_its_number() -> None:
    with pytest.raises(DecodeError, match="type 5"):
        decode_request(SAMPLES[UNKNOWN_TYPE].sent[4:])


def test_the_parts_of_a_multifetch_have_their_own_errors() -> None:
    sample = SAMPLES["MULTIFETCH good, out of range, wrong partition, unknown topic, bad topic, size -1"]
    answer = decode_response(decode_request(sample.sent[4:]), sample.got[4:])
    assert isinstance(answer, MultiFetchResponse07)
    assert [part.error for part in answer.parts] == [0, 1, 3, 0, -1]
    assert [bytes(part.records) for part in answer.parts] == [HELLO, b"", b"", b"", b""]


def test_offsets_are_read_in_the_order_they_came() -> None:
    sample = SAMPLES["OFFSETS segtopic/0 time=-1 max=10"]
    answer = decode_response(decode_request(sample.sent[4:]), sample.got[4:])
    assert answer == OffsetsResponse07((720, 480, 240, 0))


@pytest.mark.parametrize("sample", READABLE, ids=str)
def test_a_request_cut_anywhere_is_an_error(sample: Sample) -> None:
    frame = frames(sample.sent)[0]
    for length in range(len(frame)):
        with pytest.raises(DecodeError):
            decode_request(frame[:length])


@pytest.mark.parametrize("name", ["MULTIFETCH t1/0@0, g1/0@0", "OFFSETS segtopic/0 time=-1 max=10"])
def test_a_response_cut_anywhere_is_an_error(name: str) -> None:
    request, answer = decode_request(SAMPLES[name].sent[4:]), SAMPLES[name].got[4:]
    for length in range(len(answer)):
        with pytest.raises(DecodeError):
            decode_response(request, answer[:length])


def test_bytes_behind_a_request_are_ignored_as_the_broker_does() -> None:
    request = FetchRequest07("t", 0, 0, 1)
    assert decode_request(request.encode()[4:] + b"more") == request


def test_bytes_behind_a_response_are_an_error() -> None:
    with pytest.raises(DecodeError, match="invalid count of offsets 2: 17 bytes are left"):
        decode_response(OffsetsRequest07("t", 0, -1, 2), OffsetsResponse07((2, 1)).encode()[4:] + b"x")
    parts = MultiFetchResponse07((FetchResponse07(0), FetchResponse07(0)))
    with pytest.raises(DecodeError, match="MULTIFETCH of 1 parts was answered with 2"):
        decode_response(MultiFetchRequest07((FetchRequest07("t", 0, 0, 1),)), parts.encode()[4:])


def test_an_error_in_the_header_is_an_answer() -> None:
    assert decode_response(OffsetsRequest07("t", 0, -1, 1), b"\xff\xff") == OffsetsResponse07((), -1)
    assert decode_response(MultiFetchRequest07(()), b"\x00\x03") == MultiFetchResponse07((), 3)
    assert decode_response(FetchRequest07("t", 0, 0, 1), b"\x00\x01") == FetchResponse07(1)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(struct.pack(">hh", 1, -1), id="null topic"),
        pytest.param(struct.pack(">hh", 2, -1), id="negative number of FETCHes"),
        pytest.param(struct.pack(">hh", 3, 32767), id="more PRODUCEs than there is room for"),
        pytest.param(struct.pack(">hhii", 0, 0, 0, -1), id="negative set"),
        pytest.param(struct.pack(">hhii", 0, 0, 0, 1), id="set longer than the body"),
    ],
)
def test_lengths_are_held_against_what_is_left(body: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_request(body)


def test_offsets_that_are_not_there_take_no_memory() -> None:
    with pytest.raises(DecodeError, match="invalid count of offsets 2147483647: 0 bytes are left"):
        decode_response(OffsetsRequest07("t", 0, -1, 1), struct.pack(">hi", 0, 2**31 - 1))
    with pytest.raises(DecodeError, match="invalid count of offsets -1"):
        decode_response(OffsetsRequest07("t", 0, -1, 1), struct.pack(">hi", 0, -1))


def test_a_topic_of_invalid_utf8_is_decoded_as_in_java() -> None:
    body = struct.pack(">hh1siqi", 1, 1, b"\xff", 0, 0, 1)
    assert decode_request(body) == FetchRequest07("\ufffd", 0, 0, 1)
    assert decode_request(struct.pack(">hhii", 0, -1, 0, 0)) == ProduceRequest07("", 0, b""), (
        "a null topic of a PRODUCE"
    )


@pytest.mark.parametrize(
    "request_",
    [
        FetchRequest07("t" * 32768, 0, 0, 1),
        FetchRequest07("t", 2**31, 0, 1),
        FetchRequest07("t", 0, 2**63, 1),
        FetchRequest07("t", 0, 0, 2**31),
        OffsetsRequest07("t", 0, -(2**63) - 1, 1),
        ProduceRequest07("t", -(2**31) - 1, b""),
        MultiFetchRequest07((FetchRequest07("t", 0, 0, 1),) * 32768),
    ],
    ids=lambda request: f"{type(request).__name__}",
)
def test_a_value_that_does_not_fit_is_an_encode_error(request_: Request07) -> None:
    with pytest.raises(EncodeError):
        request_.encode()


def test_produce_has_no_answer_to_read() -> None:
    with pytest.raises(EncodeError, match="never answers PRODUCE"):
        decode_response(ProduceRequest07("t", 0, b""), b"\x00\x00")


def test_records_are_a_view_of_the_frame() -> None:
    frame = memoryview(FetchResponse07(0, HELLO).encode())[4:]
    answer = decode_response(FetchRequest07("t", 0, 0, 100), frame)
    assert isinstance(answer, FetchResponse07)
    assert isinstance(answer.records, memoryview)
    assert answer.records.obj is frame.obj


# The codes


def test_codes_of_07_are_not_those_of_later_kafkas() -> None:
    assert {code: row.name for code, row in ERRORS07.items()} == {
        -1: "UNKNOWN",
        0: "NO_ERROR",
        1: "OFFSET_OUT_OF_RANGE",
        2: "INVALID_MESSAGE",
        3: "WRONG_PARTITION",
        4: "INVALID_FETCH_SIZE",
    }
    assert {code for code, row in ERRORS07.items() if row.refresh is Refresh.METADATA} == {3}
    assert {2, 4} == NEVER_SENT


def test_a_code_makes_a_broker_error_that_says_what_it_means() -> None:
    error = BrokerError(error07_of(3), "FETCH t/7 @0")
    assert str(error) == "FETCH t/7 @0: WRONG_PARTITION (3): the broker does not have this partition of the topic"
    assert error.retriable
    assert error07_of(ErrorCode07.OFFSET_OUT_OF_RANGE).code == 1


def test_an_unknown_code_is_not_retriable() -> None:
    row = error07_of(17)
    assert (row.code, row.name, row.retriable) == (17, "UNKNOWN_17", False)


# Messages


def test_messages_are_framed_as_captured() -> None:
    assert HELLO.hex() == "0000000b01003610a68668656c6c6f"
    assert message07(b"", magic=1).hex() == "00000006010000000000"
    assert message07(b"", magic=0).hex() == "000000050000000000"
    assert message_set07([b"zero-a", b"zero-b"], magic=0).hex() == (
        "0000000b00d28b98127a65726f2d610000000b004b82c9a87a65726f2d62"
    )


def test_a_wrapper_has_its_codec_in_the_attributes_and_the_checksum_of_what_is_compressed() -> None:
    payload = gzip.compress(message_set07([b"a", b"b"]))
    wrapper = message07(payload, codec=1)
    assert wrapper[:6] == struct.pack(">ibb", 6 + len(payload), 1, 1)
    assert wrapper[6:10] == struct.pack(">I", zlib.crc32(payload))
    assert wrapper[10:] == payload


# Whatever fits goes there and back

PARTS = st.builds(FetchResponse07, st.integers(-(2**15), 2**15 - 1), st.binary(max_size=40))


@given(st.lists(PARTS, max_size=4))
def test_parts_of_a_multifetch_come_back_as_they_were(parts: list[FetchResponse07]) -> None:
    request = MultiFetchRequest07((FetchRequest07("t", 0, 0, 1),) * len(parts))
    answer = MultiFetchResponse07(tuple(parts))
    assert decode_response(request, answer.encode()[4:]) == answer
