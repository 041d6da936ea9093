"""The scans of messages before Kafka 0.11 share these sizes, bits and faults; a user reads the faults in an error."""

from __future__ import annotations

import numpy as np
import pytest

from streamgroup.kafka.records.codecs import CODECS
from streamgroup.kafka.records.encode import RecordFormat
from streamgroup.kafka.records.message_sets import (
    CODEC_BITS,
    CODEC_BITS_07,
    FRAME_SIZE,
    LEAST_SIZES,
    LEAST_SIZES_07,
    LOG_APPEND_TIME_BIT,
    MessageFaultKind,
    MessageFields,
    MessageFields07,
    MessageSets,
    MessageSets07,
)
from tests.unit.kafka.records.encoder_sets import Message, encode_message, encode_wrapper, message07


@pytest.mark.parametrize("magic", [0, 1])
def test_the_smallest_message_of_each_magic_has_the_least_size(magic: int) -> None:
    """The size field counts neither itself nor the offset before it; the length of Kafka 0.7 does not count itself."""
    assert len(encode_message(Message(0), magic)) - FRAME_SIZE == LEAST_SIZES[magic]
    assert len(message07(b"", magic)) - 4 == LEAST_SIZES_07[magic]


@pytest.mark.parametrize(
    ("bits", "formats"),
    [(CODEC_BITS, [RecordFormat.V0, RecordFormat.V1]), (CODEC_BITS_07, [RecordFormat.V07_1])],
    ids=["Kafka 0.8 to 0.10", "Kafka 0.7"],
)
def test_the_codec_bits_hold_the_number_of_every_codec_of_the_format(bits: int, formats: list[RecordFormat]) -> None:
    for record_format in formats:
        for codec in record_format.codecs:
            assert CODECS[codec] & bits == CODECS[codec]
            assert (CODECS[codec] | LOG_APPEND_TIME_BIT) & bits == CODECS[codec]


def test_a_wrapper_of_log_append_time_has_the_bit_beside_its_codec() -> None:
    attributes = encode_wrapper([Message(0)], "gzip", 1, log_append_time=5)[17]
    assert (attributes & CODEC_BITS, attributes & LOG_APPEND_TIME_BIT) == (CODECS["gzip"], LOG_APPEND_TIME_BIT)


def test_each_fault_has_a_text_of_its_own_and_no_number_is_that_of_a_sound_message() -> None:
    assert len({fault.text for fault in MessageFaultKind}) == len(MessageFaultKind)
    assert 0 not in {int(fault) for fault in MessageFaultKind}, "the scan notes 0 for a message without a fault"


def test_results_have_one_element_for_each_message_in_the_width_that_the_compiled_scan_writes() -> None:
    for found, widths in ((MessageFields.empty(3), [8, 8, *[4] * 5]), (MessageFields07.empty(3), [8, *[4] * 3])):
        arrays = found.arrays()
        assert [(len(array), array.dtype.itemsize) for array in arrays] == [(3, width) for width in widths]
        assert len({array.ctypes.data for array in arrays}) == len(arrays), "none shares its memory"


def test_sets_are_counted_and_go_to_the_compiled_scan_in_the_order_of_its_parameters() -> None:
    begin, end, least, last, timestamp, kind, offset = (np.full(2, number, np.int64) for number in range(7))
    mark = np.array([True, False])
    sets = MessageSets(
        timestamp_type=kind, timestamp=timestamp, relative=mark, last=last, least=least, end=end, begin=begin
    )
    assert len(sets) == 2
    assert all(a is b for a, b in zip(sets.arrays(), (begin, end, least, last, mark, timestamp, kind), strict=True))
    old = MessageSets07(wrapped=mark, offset=offset, end=end, begin=begin)
    assert len(old) == 2
    assert all(a is b for a, b in zip(old.arrays(), (begin, end, offset, mark), strict=True))
