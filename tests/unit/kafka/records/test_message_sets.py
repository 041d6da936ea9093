"""The scans of messages before Kafka 0.11 share these sizes, bits and faults; a user reads the faults in an error."""

from __future__ import annotations

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
)
from tests.unit.kafka.records.encoder_sets import Message, encode_message, message07


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
