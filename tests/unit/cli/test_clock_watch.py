"""This machine's time is in milliseconds; the broker's is that plus `skew`."""

from __future__ import annotations

import pytest

from streamgroup.cli._clock_watch import APPEND_MS, ClockWatch
from streamgroup.cli._findings import CheckVerdict
from streamgroup.model import TopicPartition

ONE, TWO = TopicPartition("__consumer_offsets", 0), TopicPartition("__consumer_offsets", 1)
LEADERS = {ONE: 1, TWO: 2}
NOW = 1_800_000_000_000
HOUR = 3_600_000


def look(watch: ClockWatch, at: int, *, rtt: int = 20, one: int = -1, two: int = -1) -> None:
    watch.see({ONE: one, TWO: two}, LEADERS, sent=NOW + at, received=NOW + at + rtt)


def watch_of_a_commit(skew: int) -> ClockWatch:
    """A record from a minute before the watch, and one that is stamped 100 ms after the first look was sent."""
    watch = ClockWatch()
    look(watch, 0, one=NOW - 60_000 + skew)
    look(watch, 250, one=NOW + 100 + skew)
    return watch


@pytest.mark.parametrize("skew", [0, 500, -500])
def test_a_commit_during_the_watch_measures_a_clock(skew: int) -> None:
    watch = watch_of_a_commit(skew)
    finding = watch.finding(1, 6)
    low, high = (skew - 170) / 1000, (skew + 100 + APPEND_MS) / 1000
    assert finding.verdict is CheckVerdict.OK
    assert finding.text == f"{low:+.1f} to {high:+.1f} s from this machine's, by commits during the check"
    assert watch.has_measured([1])
    assert not watch.has_measured([1, 2])


@pytest.mark.parametrize(("skew", "said"), [(HOUR, "ahead: +3599.8 to"), (-HOUR, "behind: -3600.2 to")])
def test_a_clock_that_is_an_hour_off_is_warned_of_in_both_directions(skew: int, said: str) -> None:
    finding = watch_of_a_commit(skew).finding(1, 6)
    assert finding.verdict is CheckVerdict.WARN
    assert finding.text.startswith(said)
    assert finding.text.endswith("Synchronize the clocks of both machines (NTP)")


def test_an_old_record_from_the_future_shows_a_clock_that_is_or_was_ahead() -> None:
    watch = ClockWatch()
    look(watch, 0, one=NOW + 30_000)
    look(watch, 250, one=NOW + 30_000)
    finding = watch.finding(1, 6)
    assert finding.verdict is CheckVerdict.WARN
    assert finding.text.startswith("ahead now or earlier: ")
    assert "+30.0 s" in finding.text


def test_old_records_say_nothing_about_a_clock_that_is_behind() -> None:
    watch = ClockWatch()
    for at in (0, 250, 500):
        look(watch, at, one=NOW - HOUR)
    finding = watch.finding(1, 6)
    assert finding.verdict is CheckVerdict.OK
    assert finding.text.startswith("not measured: no group has committed at this broker within 6 s")


def test_the_first_record_that_a_partition_shows_may_be_old() -> None:
    watch = ClockWatch()
    look(watch, 0)
    look(watch, 250, one=NOW - HOUR)
    assert watch.finding(1, 6).text.startswith("not measured")


def test_a_record_that_was_hidden_for_a_look_is_bounded_by_the_look_before() -> None:
    watch = ClockWatch()
    look(watch, 0, one=NOW - 60_000)
    look(watch, 5_000)  # a record stamped at 100 is not replicated: the response has no offset
    look(watch, 5_250, one=NOW + 100)
    finding = watch.finding(1, 6)
    assert (finding.verdict, finding.text[:13]) == (CheckVerdict.OK, "-5.2 to +1.1 ")


def test_a_record_that_only_took_long_to_be_replicated_is_not_a_clock_behind() -> None:
    watch = ClockWatch()
    look(watch, 0, one=NOW - 60_000)
    look(watch, 2_000, one=NOW - 60_000)
    look(watch, 2_250, one=NOW + 2_000 - APPEND_MS)
    assert watch.finding(1, 6).verdict is CheckVerdict.OK


def test_several_commits_narrow_the_bounds() -> None:
    watch = ClockWatch()
    look(watch, 0, one=NOW - 60_000)
    look(watch, 1_000, one=NOW + 10)  # -1.0 to +1.0
    look(watch, 2_000, one=NOW + 1_990)  # -0.0 to +2.0
    assert watch.finding(1, 6).text.startswith("-0.0 to +1.0 s")


def test_each_broker_has_a_clock_of_its_own() -> None:
    watch = ClockWatch()
    look(watch, 0, one=NOW - 60_000, two=NOW - 60_000 + HOUR)
    look(watch, 250, one=NOW + 100, two=NOW + 100 + HOUR)
    assert [watch.finding(node, 6).verdict for node in (1, 2, 3)] == [
        CheckVerdict.OK,
        CheckVerdict.WARN,
        CheckVerdict.OK,
    ]


def test_a_partition_without_a_leader_counts_for_no_broker() -> None:
    watch = ClockWatch()
    for at, newest in ((0, NOW), (250, NOW + HOUR)):
        watch.see({TWO: newest}, {ONE: 1}, sent=NOW + at, received=NOW + at + 20)
    assert not watch.has_measured([2])
