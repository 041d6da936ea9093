"""read_committed hides what was aborted and nothing else; control batches are never seen."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamgroup.errors import DecodeError
from streamgroup.kafka.records import decode as records
from streamgroup.kafka.records.batches import Frames
from streamgroup.kafka.records.decode import Aborted, DecodeOptions
from tests.unit.kafka.records import reference
from tests.unit.kafka.records.encoder import ABORT, COMMIT, Record, encode_batch, end_marker, reseal
from tests.unit.kafka.records.rows import decode

pytestmark = pytest.mark.usefixtures("kernel")

COMMITTED = DecodeOptions(read_committed=True)
UNCOMMITTED = DecodeOptions()
END = 2**62


def sent(offset: int, producer: int, count: int = 2) -> bytes:
    """A batch of a transaction."""
    records = [Record(offset + i) for i in range(count)]
    return encode_batch(records, producer_id=producer, transactional=True)


def offsets(data: bytes, aborted: Sequence[tuple[int, int]], options: DecodeOptions = COMMITTED) -> list[int]:
    transactions = [Aborted(producer, first) for producer, first in aborted]
    found: list[int] = decode(data, 0, END, options, transactions).offset.to_pylist()
    return found


# Producers 7 and 8 interleave; 7 aborts its first transaction and commits its second, 8 commits.
INTERLEAVED = b"".join(
    [
        sent(0, 7),
        sent(2, 8),
        encode_batch([Record(4)]),
        sent(5, 7),
        end_marker(7, 7, ABORT),
        sent(8, 8),
        end_marker(10, 8, COMMIT),
        sent(11, 7),
        end_marker(13, 7, COMMIT),
    ]
)


def test_read_committed_hides_the_aborted_transaction_only() -> None:
    assert offsets(INTERLEAVED, [(7, 0)]) == [2, 3, 4, 8, 9, 11, 12]


def test_read_uncommitted_shows_all_records_and_no_markers() -> None:
    assert offsets(INTERLEAVED, [(7, 0)], UNCOMMITTED) == [0, 1, 2, 3, 4, 5, 6, 8, 9, 11, 12]


def test_the_position_passes_hidden_batches_and_markers() -> None:
    hidden = sent(0, 7) + end_marker(2, 7, ABORT)
    decoded = decode(hidden, 0, 3, COMMITTED, [Aborted(7, 0)])
    assert (decoded.num_rows, decoded.next_offset) == (0, 3)


def test_what_exceeds_the_cap_together_is_decoded_in_several_calls_without_aborted_records() -> None:
    data = b"".join(
        encode_batch([Record(i, 0, None, bytes(3_000))], codec="lz4", producer_id=7 + i % 2, transactional=True)
        for i in range(8)
    )
    data += end_marker(8, 7, ABORT) + end_marker(9, 8, COMMIT)
    frames = Frames(data, 0, END)
    options = DecodeOptions(read_committed=True, max_decompressed_bytes=7_000)
    position, seen = 0, []
    while position < 10:
        decoded = records.decode(frames, position, options, [Aborted(7, 0)])
        seen.append(decoded.offset.to_pylist())
        position = decoded.next_offset
    assert seen == [[1, 3], [5, 7]]


def test_aborted_transactions_need_no_order() -> None:
    data = sent(0, 7) + end_marker(2, 7, ABORT) + sent(3, 7) + end_marker(5, 7, COMMIT) + sent(6, 7)
    data += end_marker(8, 7, ABORT)
    assert offsets(data, [(7, 6), (7, 0)]) == [3, 4]


def test_a_transaction_that_began_before_this_fetch_is_hidden_up_to_its_marker() -> None:
    data = sent(100, 7) + end_marker(102, 7, ABORT) + sent(103, 7) + end_marker(105, 7, COMMIT)
    assert offsets(data, [(7, 40)]) == [103, 104]


def test_what_the_producer_sent_outside_of_transactions_is_seen() -> None:
    plain = encode_batch([Record(2)], producer_id=7)
    assert offsets(sent(0, 7) + plain + end_marker(3, 7, ABORT), [(7, 0)]) == [2]


def test_a_marker_before_the_start_still_ends_its_transaction() -> None:
    data = sent(0, 7) + end_marker(2, 7, ABORT) + sent(3, 7) + end_marker(5, 7, COMMIT)
    decoded = decode(data, 3, END, COMMITTED, [Aborted(7, 0)])
    assert decoded.offset.to_pylist() == [3, 4]


def test_a_marker_that_compaction_has_emptied_ends_nothing() -> None:
    emptied = encode_batch([], base_offset=2, producer_id=7, transactional=True, control=True)
    assert offsets(sent(0, 7) + emptied + sent(3, 7), [(7, 0)]) == []


def test_an_unknown_kind_of_marker_ends_nothing() -> None:
    assert offsets(sent(0, 7) + end_marker(2, 7, 5) + sent(3, 7), [(7, 0)]) == []


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\0"])
def test_a_control_record_without_a_type_is_refused(key: bytes | None) -> None:
    control = encode_batch([Record(2, key=key)], producer_id=7, transactional=True, control=True)
    with pytest.raises(DecodeError, match=r"offset 2: .*a control record") as caught:
        offsets(sent(0, 7) + control, [(7, 0)])
    assert caught.value.next_offset == 3


def test_a_damaged_control_record_is_refused() -> None:
    control = bytearray(end_marker(2, 7, ABORT))
    control[61] = 0x7E
    with pytest.raises(DecodeError, match="offset 2"):
        offsets(sent(0, 7) + reseal(bytes(control)), [(7, 0)])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(st.tuples(st.sampled_from(["send", "plain", "abort", "commit"]), st.integers(1, 3)), max_size=14),
    aborted=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 30)), max_size=4),
    start=st.integers(0, 20),
)
def test_random_transactions_equal_the_reference(
    steps: list[tuple[str, int]], aborted: list[tuple[int, int]], start: int
) -> None:
    data, offset = b"", 0
    for what, producer in steps:
        if what == "send":
            data, offset = data + sent(offset, producer), offset + 2
        elif what == "plain":
            data, offset = data + encode_batch([Record(offset)]), offset + 1
        else:
            data, offset = data + end_marker(offset, producer, ABORT if what == "abort" else COMMIT), offset + 1
    decoded = decode(data, start, END, COMMITTED, [Aborted(*a) for a in aborted])
    rows, next_offset = reference.decode(data, start, END, read_committed=True, aborted=aborted)
    assert decoded.offset.to_pylist() == [row.offset for row in rows]
    assert decoded.next_offset == next_offset
