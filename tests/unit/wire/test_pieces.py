"""Requests in pieces: the same bytes, without a copy of large values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.errors import EncodeError
from streamgroup.wire import frames
from streamgroup.wire.frames import encode_request, request_pieces
from streamgroup.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from streamgroup.wire.pieces import LARGE, Pieces
from streamgroup.wire.schema import encode


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


def test_without_a_large_value_there_is_one_piece() -> None:
    pieces = Pieces()
    pieces += b"abc"
    assert pieces.pieces() == [b"abc"]
    assert pieces.size == 3
