from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.errors import ConfigError
from streamgroup.spark.parsing.limit import NO_DEAD_LETTERS, DeadLetterLimit, FirstDeadLetter, text_above_limit


@pytest.mark.parametrize(
    ("limit", "records", "allowed"),
    [
        (DeadLetterLimit(max_records=5), 1_000, 5),
        (DeadLetterLimit(max_records=5), 3, 3),
        (DeadLetterLimit(max_records=0), 1_000, 0),
        (DeadLetterLimit(max_share=0.01), 1_000, 10),
        (DeadLetterLimit(max_share=0.01), 1_001, 11),
        (DeadLetterLimit(max_share=0.01), 7, 1),
        (DeadLetterLimit(max_share=0.07), 100, 7),
        (DeadLetterLimit(max_share=0), 7, 0),
        (DeadLetterLimit(max_share=0.0), 1_000, 0),
        (DeadLetterLimit(max_share=1), 7, 7),
        (DeadLetterLimit(max_records=3, max_share=0.5), 100, 3),
        (DeadLetterLimit(max_records=300, max_share=0.5), 100, 50),
        (DeadLetterLimit(), 1_000, 100),
        (DeadLetterLimit(), 0, 0),
    ],
)
def test_both_limits_hold_and_a_share_is_rounded_up_to_records(
    limit: DeadLetterLimit, records: int, allowed: int
) -> None:
    assert limit.allowed(records) == allowed


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.floats(0, 1))
def test_a_limit_never_allows_more_than_either_setting(records: int, most: int, share: float) -> None:
    allowed = DeadLetterLimit(most, share).allowed(records)
    assert 0 <= allowed <= min(most, records)
    assert allowed <= DeadLetterLimit(max_share=share).allowed(records)


@pytest.mark.parametrize(
    "limit", [{"max_records": -1}, {"max_share": -0.1}, {"max_share": 1.01}, {"max_share": float("nan")}]
)
def test_a_limit_that_means_nothing_is_refused(limit: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="invalid value"):
        DeadLetterLimit(**limit)  # type: ignore[arg-type]


FIRST = FirstDeadLetter("orders", 3, 2, 120, "the value is not valid JSON")


def test_the_error_names_group_partitions_offsets_and_what_to_do() -> None:
    text = text_above_limit(7, ["etl"], dead=2, records=100, limit=DeadLetterLimit(max_records=1), first=[FIRST])
    assert text == (
        "cannot parse 2 of 100 records in batch 7 of group 'etl', more than the 1 (max_records = 1) that may be dead "
        "letters: orders-3: 2 records, the first at offset 120 (the value is not valid JSON). The batch has written no "
        "row and no dead letter, and is not committed. Correct the parser, or raise the limit; the next start reads "
        "the batch again"
    )


def test_the_error_without_a_target_says_that_dead_letters_need_one() -> None:
    text = text_above_limit(0, [], dead=1, records=1, limit=NO_DEAD_LETTERS, first=[FIRST])
    assert text.startswith("cannot parse 1 of 1 record in batch 0: orders-3: ")
    assert "set a topic or a path for dead letters" in text
    assert "limit" not in text


def test_the_error_of_many_partitions_stays_readable() -> None:
    first = [FirstDeadLetter("orders", p, 1, 5, "x") for p in range(12)]
    text = text_above_limit(0, ["g"], dead=12, records=12, limit=DeadLetterLimit(), first=first)
    assert "orders-9: " in text
    assert "orders-10: " not in text
    assert "; and 2 more partitions. The batch" in text
    assert "max_share = 0.1, the default" in text
