"""The table and the differences that a verification prints."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamgroup.jobs.mirror.report import Comparison, Place, differences, table

EQUAL = Comparison(
    "orders-0",
    "copy-0",
    source_records=3,
    destination_records=3,
    source_offsets=(5, 7),
    destination_offsets=(0, 2),
    source_sum=255,
    destination_sum=255,
)
AT = Place("0", 6)


def test_an_equal_copy_has_no_differences() -> None:
    assert EQUAL.is_equal
    assert differences([EQUAL, Comparison("orders-1", "copy-1")]) == []


def test_repeated_records_are_not_a_difference() -> None:
    repeated = replace(EQUAL, destination_records=5, repeated=2)
    assert repeated.is_equal
    assert differences([repeated]) == []


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            replace(EQUAL, lost=1, first_lost=AT),
            "copy-0 lacks 1 record of orders-0, the first at partition 0, offset 6 of the source",
        ),
        (
            replace(EQUAL, behind=2, first_behind=AT),
            "copy-0 does not have 2 records at the end of orders-0 yet, the first at partition 0, offset 6 of the "
            "source. If the mirror has stopped, they are lost",
        ),
        (
            replace(EQUAL, extra=2, first_extra=AT),
            "copy-0 has 2 records that orders-0 lacks, the first at partition 0, offset 6 of the destination. Another "
            "producer has written them, or the source has deleted its own",
        ),
        (
            replace(EQUAL, disordered=1, first_disordered=AT),
            "copy-0 has 1 record of orders-0 too early, the first is at partition 0, offset 6 of the source",
        ),
        (
            replace(EQUAL, retimed=1, first_retimed=AT),
            "copy-0 has 1 record of orders-0 with another timestamp, the first is at partition 0, offset 6 of the "
            "source",
        ),
        (
            replace(EQUAL, destination_sum=254),
            "the checksums of orders-0 and copy-0 differ: 00000000000000ff and 00000000000000fe",
        ),
    ],
)
def test_a_difference_is_a_sentence_with_its_first_record(row: Comparison, said: str) -> None:
    assert not row.is_equal
    assert differences([EQUAL, row]) == [said]


def test_checksums_are_sums_of_64_bits() -> None:
    assert replace(EQUAL, source_sum=-1, destination_sum=(1 << 64) + 1).checksums == ("f" * 16, "0" * 15 + "1")


def test_the_table_has_a_line_for_each_row() -> None:
    heading, first, second = table([EQUAL, replace(EQUAL, source="orders", source_offsets=None, lost=12)])
    assert heading.startswith("source    destination  offsets  offsets there  records  records there  lost  behind")
    assert first.startswith("orders-0  copy-0       5..7     0..2           3        3              0     0")
    assert second.startswith("orders    copy-0       -        0..2           3        3              12    0")
    assert first.endswith("00000000000000ff  00000000000000ff")
