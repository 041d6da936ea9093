"""A producer writes in the format of the broker's generation, with the codecs that this generation can read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from streamgroup.records.compress import CODECS
from streamgroup.records.encode import Encoder
from streamgroup.records.record_columns import RecordColumns
from streamgroup.records.record_format import RecordFormat

V07_0, V07_1, V0, V1, V2 = RecordFormat
MAGIC_AT = {V07_0: 4, V07_1: 4, V0: 16, V1: 16, V2: 16}
"""Where Kafka's descriptions of the formats have the field `magic`."""


@pytest.mark.parametrize(
    ("record_format", "magic", "codecs"),
    [
        (V07_0, 0, {"none"}),
        (V07_1, 1, {"none", "gzip", "snappy"}),
        (V0, 0, {"none", "gzip", "snappy", "lz4"}),
        (V1, 1, {"none", "gzip", "snappy", "lz4"}),
        (V2, 2, {"none", "gzip", "snappy", "lz4", "zstd"}),
    ],
)
def test_magic_and_codecs_are_those_of_kafkas_generations(
    record_format: RecordFormat, magic: int, codecs: set[str]
) -> None:
    assert (record_format.magic, set(record_format.codecs)) == (magic, codecs)


@pytest.mark.parametrize("record_format", RecordFormat)
def test_the_bytes_of_each_format_carry_its_magic(record_format: RecordFormat) -> None:
    columns = RecordColumns(None, pa.array([b"value"]), np.array([5], np.int64))
    data = Encoder(record_format).encode(columns, 0, 1).data
    assert data[MAGIC_AT[record_format]] == record_format.magic


@pytest.mark.parametrize("record_format", RecordFormat)
def test_an_encoder_takes_the_codecs_of_its_format_and_names_them_where_it_refuses_another(
    record_format: RecordFormat,
) -> None:
    for codec in CODECS:
        if codec in record_format.codecs:
            assert Encoder(record_format, codec).record_format is record_format
            continue
        with pytest.raises(ValueError, match=f"codec {codec} in {record_format.label}: it has the codecs none"):
            Encoder(record_format, codec)


def test_a_codec_has_the_same_number_in_every_format_that_has_it() -> None:
    """The attributes hold the number, so the order of the names is Kafka's: a longer list only adds codecs."""
    for record_format in RecordFormat:
        numbers = [CODECS[codec] for codec in record_format.codecs]
        assert numbers == list(range(len(numbers)))


def test_only_the_formats_of_kafka_07_are_its_own() -> None:
    assert [each for each in RecordFormat if each.is_kafka07] == [V07_0, V07_1]


def test_messages_tell_the_formats_apart_by_their_labels() -> None:
    labels = [each.label for each in RecordFormat]
    assert len(set(labels)) == len(labels)
    assert ["0.7" in label for label in labels] == [each.is_kafka07 for each in RecordFormat]
    assert all(str(each.magic) in each.label for each in RecordFormat)
