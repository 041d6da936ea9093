"""A decoder refuses counts that the bytes cannot hold, and selects the records whose offsets a task wants."""

from __future__ import annotations

from streamgroup.kafka.records.fields import (
    LEAST_RECORD,
    MAX_MILLISECONDS,
)
from tests.unit.kafka.records.encoder import Record, encode_record

# -- batches ----------------------------------------------------------------------------------------------------------


def test_the_smallest_record_of_the_format_has_the_bytes_that_bound_a_count() -> None:
    assert len(encode_record(Record(0), 0, 0)) == LEAST_RECORD


def test_the_largest_timestamp_in_milliseconds_is_the_last_whose_microseconds_fit_a_long() -> None:
    assert MAX_MILLISECONDS * 1000 < 2**63 <= (MAX_MILLISECONDS + 1) * 1000


# -- records ----------------------------------------------------------------------------------------------------------
