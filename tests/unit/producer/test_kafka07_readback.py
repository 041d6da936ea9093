"""Message sets are found in the bytes of a log, whatever lies between them and however the log is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.errors import DecodeError
from streamgroup.producer.kafka07_events import MessageSet
from streamgroup.producer.kafka07_readback import read_back
from streamgroup.testing.kafka07 import Compressed, message_set
from streamgroup.wire.kafka07 import message07, message_set07
from tests.fakes.broker07 import tp

OTHER = message07(b"of another producer")


def sets(*payloads: list[bytes]) -> list[MessageSet]:
    return [MessageSet(tp(0, 0), message_set07(each), len(each)) for each in payloads]


def test_sets_are_found_where_they_begin() -> None:
    ours = sets([b"a", b"b"], [b"c"])
    data = OTHER + ours[0].messages + OTHER + OTHER + ours[1].messages
    found, position, wanted = read_back(data, 1000, ours)
    assert [(each, at) for each, at in found] == [
        (ours[0], 1000 + len(OTHER)),
        (ours[1], 1000 + len(data) - ours[1].size),
    ]
    assert (position, wanted) == (1000 + len(data), 0)


def test_a_part_of_a_set_is_not_the_set() -> None:
    (ours,) = sets([b"a", b"b"])
    assert read_back(message07(b"a") + OTHER, 0, [ours]).found == []


def test_a_set_behind_its_own_beginning_is_found() -> None:
    (ours,) = sets([b"a", b"b"])
    assert read_back(message07(b"a") + ours.messages, 0, [ours]).found == [(ours, 11)]


def test_equal_sets_are_found_as_often_as_they_are_there() -> None:
    ours = sets([b"a"], [b"a"], [b"a"])
    assert read_back(ours[0].messages * 2, 0, ours).found == [(ours[0], 0), (ours[1], 11)]


def test_a_compressed_set_is_found_by_its_wrapper() -> None:
    data = message_set([Compressed("gzip", [b"a", b"b"])])
    ours = MessageSet(tp(0, 0), data, 2)
    assert read_back(OTHER + data, 0, [ours]).found == [(ours, len(OTHER))]


def test_a_set_that_is_cut_has_to_be_read_at_once() -> None:
    (ours,) = sets([b"a", b"b" * 100])
    found, position, wanted = read_back(OTHER + ours.messages[:-1], 50, [ours])
    assert (found, position, wanted) == ([], 50 + len(OTHER), ours.size)


def test_a_message_without_payload_of_magic_0_is_stepped_over() -> None:
    (ours,) = sets([b"a"])
    assert read_back(message07(b"", magic=0) + ours.messages, 0, [ours]).found == [(ours, 9)]


def test_a_message_that_is_longer_than_what_was_read_is_stepped_over() -> None:
    large = message07(b"x" * 1000)
    assert read_back(large[:100], 0, sets([b"a"])).position == len(large)


@pytest.mark.parametrize("length", [0, -1, 4])
def test_bytes_that_are_no_messages_are_an_error(length: int) -> None:
    with pytest.raises(DecodeError, match=f"position 19: a message of {length} bytes is announced there"):
        read_back(message07(b"", magic=0) + length.to_bytes(4, "big", signed=True) + bytes(20), 10, sets([b"a"]))


@given(
    st.lists(st.tuples(st.booleans(), st.lists(st.sampled_from([b"", b"a", b"b", b"ab"]), min_size=1, max_size=3))),
    st.integers(20, 200),
)
def test_a_log_that_is_read_in_pieces_has_every_set_in_its_order(
    content: list[tuple[bool, list[bytes]]], piece: int
) -> None:
    ours = sets(*(payloads for is_ours, payloads in content if is_ours))
    log = b"".join(message_set07(payloads) for _, payloads in content)
    expected, position, wanted, found = list(ours), 0, 0, []
    while position < len(log):
        data = log[position : position + max(piece, wanted)]
        step = read_back(data, position, expected)
        assert step.position > position or step.wanted > wanted
        position, wanted = step.position, step.wanted
        found += [each for each, _ in step.found]
        expected = [each for each in ours if each not in found]
    # The same bytes may come from both producers. Then the first of them count.
    assert len(found) == len(ours)
