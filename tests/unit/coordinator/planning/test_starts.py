from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.coordinator.planning.starts import (
    RangeBound,
    fallbacks,
    lookups,
    ranges,
    refuse_crossed,
    resolve,
    unread,
    within,
)
from streamgroup.errors import ConfigError
from streamgroup.model import EARLIEST, LATEST, ConfiguredOffsets, LogRange, OffsetRange, TopicPartition

A, B, C = (TopicPartition("t", n) for n in range(3))


@pytest.mark.parametrize("end", [EARLIEST, LATEST])
def test_an_end_of_the_log_is_asked_for_every_partition(end: int) -> None:
    configured = ConfiguredOffsets(end)
    assert lookups(configured, [A, B]) == {A: end, B: end}
    assert resolve(configured, [A, B], {A: (5, -1), B: (0, -1)}) == {A: 5, B: 0}


def test_explicit_offsets_are_not_asked_for() -> None:
    configured = ConfiguredOffsets(LATEST, offsets={A: 23, B: EARLIEST, C: LATEST})
    assert lookups(configured, [A, B, C]) == {B: EARLIEST, C: LATEST}
    assert resolve(configured, [A, B, C], {B: (4, -1), C: (9, -1)}) == {A: 23, B: 4, C: 9}


def test_one_timestamp_goes_before_timestamps_by_partition_before_offsets() -> None:
    offsets, timestamps = {A: 1, B: 2}, {A: 1_000}
    assert lookups(ConfiguredOffsets(LATEST, offsets, timestamps, 9_000), [A, B]) == {A: 9_000, B: 9_000}
    assert lookups(ConfiguredOffsets(LATEST, offsets, timestamps), [A, B]) == {A: 1_000}
    assert lookups(ConfiguredOffsets(LATEST, timestamp=0), [A]) == {A: 0}, "0 is a timestamp"
    assert lookups(ConfiguredOffsets(LATEST, timestamps={A: 0}), [A]) == {A: 0}


@pytest.mark.parametrize(
    ("bound", "option", "numbers"),
    [
        (RangeBound.STREAM_START, "startingOffsets", r" \(-2 is the earliest offset, -1 the latest\)"),
        (RangeBound.BATCH_START, "startingOffsets", r" \(-2 is the earliest offset\)"),
        (RangeBound.BATCH_END, "endingOffsets", r" \(-1 is the latest offset\)"),
    ],
)
def test_a_partition_that_is_not_listed_is_an_error_that_names_it_and_the_option_that_was_given(
    bound: RangeBound, option: str, numbers: str
) -> None:
    said = rf"^invalid {option}: it lists offsets by partition, but lacks t-1, t-2\. .*are read{numbers}$"
    with pytest.raises(ConfigError, match=said):
        lookups(ConfiguredOffsets(LATEST, offsets={A: 1}), [A, C, B], bound=bound)
    option += "ByTimestamp"
    said = rf"^invalid {option}: it lists timestamps by partition, but lacks t-1, t-2\. .*are read$"
    with pytest.raises(ConfigError, match=said):
        resolve(ConfiguredOffsets(LATEST, timestamps={A: 1}), [A, C, B], {}, bound=bound)


def test_a_partition_that_another_member_holds_need_not_be_there() -> None:
    assert resolve(ConfiguredOffsets(LATEST, offsets={A: 1, B: 2}), [B], {}) == {B: 2}


def test_a_timestamp_beyond_the_last_record_is_an_error_that_names_partition_and_timestamp() -> None:
    configured = ConfiguredOffsets(LATEST, timestamp=5_000)
    with pytest.raises(ConfigError, match="t-1 at timestamp 5000"):
        fallbacks(configured, {A: (3, 5_000), B: (-1, -1)})
    with pytest.raises(ConfigError, match="t-1 at timestamp 5000"):
        resolve(configured, [A, B], {A: (3, 5_000), B: (-1, -1)})


def test_under_the_strategy_latest_such_a_partition_starts_at_its_end() -> None:
    configured = ConfiguredOffsets(LATEST, timestamps={A: 1, B: 2}, no_match_is_latest=True)
    listed = {A: (3, 1), B: (-1, -1)}
    again = fallbacks(configured, listed)
    assert again == {B: LATEST}
    assert resolve(configured, [A, B], {**listed, B: (70, -1)}) == {A: 3, B: 70}


def test_the_end_of_an_empty_log_needs_no_second_question() -> None:
    assert fallbacks(ConfiguredOffsets(LATEST), {A: (0, -1)}) == {}


@pytest.mark.parametrize("listed", [{}, {A: (-1, -1)}])
def test_an_answer_that_was_not_fetched_is_a_mistake_of_the_caller(
    listed: dict[TopicPartition, tuple[int, int]],
) -> None:
    with pytest.raises(ValueError, match="t-0"):
        resolve(ConfiguredOffsets(LATEST, timestamp=5, no_match_is_latest=True), [A], listed)


SPECS = st.builds(
    ConfiguredOffsets,
    st.sampled_from([EARLIEST, LATEST]),
    st.just({}) | st.fixed_dictionaries({tp: st.integers(-2, 100) for tp in (A, B, C)}),
    st.just({}) | st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 100)),
    st.none() | st.integers(0, 100),
    st.just(True),
)


@given(SPECS, st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 50)))
def test_the_steps_together_resolve_every_partition(
    configured: ConfiguredOffsets, matches: dict[TopicPartition, int]
) -> None:
    if configured.timestamp is None and not configured.offsets and 0 < len(configured.timestamps) < 3:
        return  # refused: tested above
    asked = lookups(configured, [A, B, C])
    listed = {tp: (7 if what < 0 else matches.get(tp, -1), -1) for tp, what in asked.items()}
    again = fallbacks(configured, listed)
    assert all(asked[tp] >= 0 and tp not in matches for tp in again)
    resolved = resolve(configured, [A, B, C], {**listed, **dict.fromkeys(again, (99, -1))})
    assert resolved.keys() == {A, B, C}
    assert all(offset >= 0 for offset in resolved.values())


def test_what_is_listed_beside_what_is_read() -> None:
    assert unread(ConfiguredOffsets(LATEST, {C: 1, A: 2}, {B: 3}), [A]) == [B, C]
    assert unread(ConfiguredOffsets(LATEST, {A: 2}), [A, B]) == []
    assert unread(ConfiguredOffsets(LATEST, {C: 1}, timestamp=5), [A]) == [], "the timestamp of all goes before"


def test_a_batch_read_reads_nothing_of_partitions_that_end_before_they_start() -> None:
    assert ranges({C: 5, A: 0, B: 3}, {A: 4, B: 3, C: 2}) == [OffsetRange(A, 0, 4)]
    assert ranges({A: 0}, {B: 4}) == []


GIVEN_9, GIVEN_4 = ConfiguredOffsets(EARLIEST, offsets={A: 9}), ConfiguredOffsets(LATEST, offsets={A: 4})
TIME_9, TIME_4 = ConfiguredOffsets(EARLIEST, timestamp=9), ConfiguredOffsets(LATEST, timestamp=4)


@pytest.mark.parametrize(
    ("starting", "ending", "options"),
    [
        (GIVEN_9, GIVEN_4, "startingOffsets is above endingOffsets"),
        (TIME_9, GIVEN_4, "startingTimestamp is above endingOffsets"),
        (GIVEN_9, ConfiguredOffsets(LATEST, timestamps={A: 1}), "startingOffsets is above endingOffsetsByTimestamp"),
        (TIME_9, TIME_4, "startingTimestamp is above endingTimes"),
    ],
)
def test_a_start_above_the_end_names_both_options(
    starting: ConfiguredOffsets, ending: ConfiguredOffsets, options: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{options}.*t-0 starts at offset 9 and ends at 4"):
        refuse_crossed(starting, ending, {A: 9}, {A: 4})
    refuse_crossed(starting, ending, {A: 4}, {A: 4})


def test_a_starting_timestamp_above_the_ending_one_is_refused_even_where_both_are_one_offset() -> None:
    later = ConfiguredOffsets(EARLIEST, timestamps={A: 7_000})
    said = r"^startingOffsetsByTimestamp.*t-0 starts at timestamp 7000 and ends at 6999"
    with pytest.raises(ConfigError, match=said):
        refuse_crossed(later, ConfiguredOffsets(LATEST, timestamps={A: 6_999}), {A: 9}, {A: 9})
    refuse_crossed(later, ConfiguredOffsets(LATEST, timestamps={A: 7_000}), {A: 9}, {A: 9})
    refuse_crossed(later, ConfiguredOffsets(LATEST), {A: 9}, {A: 9})


@pytest.mark.parametrize(
    ("starting", "ending"),
    [
        (ConfiguredOffsets(EARLIEST), GIVEN_4),
        (ConfiguredOffsets(EARLIEST, offsets={A: EARLIEST}), GIVEN_4),
        (GIVEN_9, ConfiguredOffsets(LATEST)),
        (GIVEN_9, ConfiguredOffsets(LATEST, offsets={A: LATEST})),
    ],
)
def test_whether_the_log_reaches_the_other_bound_is_no_question_of_options(
    starting: ConfiguredOffsets, ending: ConfiguredOffsets
) -> None:
    refuse_crossed(starting, ending, {A: 9}, {A: 4})


@pytest.mark.parametrize(
    ("start", "end", "kept", "lost"),
    [
        (20, 80, (20, 80), None),
        (10, 90, (10, 90), None),
        (90, 90, None, None),
        (50, 40, None, None),
        (5, 50, (10, 50), "t-0[5, 50): the log holds [10, 90)"),
        (50, 95, (50, 90), "t-0[50, 95): the log holds [10, 90)"),
        (0, 5, None, "t-0[0, 5): the log holds [10, 90)"),
        (10, 5, None, "t-0 up to offset 5: the log holds [10, 90)"),
        (5, 5, None, None),
        (91, 90, None, "t-0 from offset 91: the log holds [10, 90)"),
        (95, 99, None, "t-0 from offset 95: the log holds [10, 90)"),
    ],
)
def test_what_a_log_does_not_hold_is_reported_once_and_the_rest_is_kept(
    start: int, end: int, kept: tuple[int, int] | None, lost: str | None
) -> None:
    found = within({A: start}, {A: end}, {A: LogRange(10, 90)})
    assert found == ([OffsetRange(A, *kept)] if kept else [], [lost] if lost else [])
