"""The metrics of coordinators in several states, and of queries with several groups."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.coordinator.run.run_events import RunEventKind
from streamgroup.group.events import JoinCause
from streamgroup.monitoring.metric_families import (
    KEPT_S,
    MOST_POINTS,
    Family,
    LogTimes,
    MetricKind,
    Sample,
    families,
    log_ends,
)
from streamgroup.monitoring.query_totals import QueryTotals
from tools.reference.metrics import NAME, page

MEMBER = ("a-1", "billing-job", "/10.0.0.7")
"""The labels of the member of `status`."""


def status(group: str | None = "orders", **fields: Any) -> dict[str, Any]:
    trouble = {kind.value: {"count": 0, "last": None, "reason": None} for kind in RunEventKind}
    return {
        "group": group,
        "name": "a",
        "run": "r1",
        "member": "a-1",
        "generation": 4,
        "state": "stable",
        "draining": False,
        "in_flight_s": None,
        "paused": [],
        "positions": {},
        "starts": {},
        "ends": {},
        "trouble": trouble,
        "rebalances": dict.fromkeys(JoinCause, 0),
        "without_assignment_s": 0.0,
        "commits": {"count": 0, "seconds": 0.0},
        "client": {"id": "billing-job", "host": "10.0.0.7"},
        "connections": {"open": 0, "opened": 0, "failed": 0, "lost": 0, "unanswered": 0, "throttled_s": 0.0},
        "retries": {"group": 0, "logs": 0},
        **fields,
    }


def figures(made: list[Family], name: str) -> dict[tuple[str, ...], float]:
    (family,) = (each for each in made if each.name == name)
    return {sample.labels: sample.value for sample in family.samples}


def test_a_member_without_a_connection_has_no_host() -> None:
    made = families([status(client={"id": "c", "host": ""}, positions={"t-0": 1})], [], "prod")
    assert figures(made, "kafka_consumergroup_group_offset") == {("prod", "orders", "t", "0", "a-1", "c", ""): 1}


def test_lag_is_what_the_logs_have_beyond_the_positions() -> None:
    holding = status(
        positions={"big-orders-0": 10, "big-orders-1": 7},
        starts={"big-orders-0": 4, "big-orders-1": 0},
        ends={"big-orders-0": 25, "big-orders-1": 7},
    )
    older = status("billing", starts={"big-orders-0": 3}, ends={"big-orders-0": 24})
    made = families([holding, older], [], "prod")
    partition = ("prod", "orders", "big-orders")
    assert figures(made, "kafka_consumergroup_group_lag") == {
        (*partition, "0", *MEMBER): 15,
        (*partition, "1", *MEMBER): 0,
    }
    assert figures(made, "kafka_consumergroup_group_offset") == {
        (*partition, "0", *MEMBER): 10,
        (*partition, "1", *MEMBER): 7,
    }
    assert figures(made, "kafka_consumergroup_group_max_lag") == {("prod", "orders"): 15}
    assert figures(made, "kafka_consumergroup_group_sum_lag") == {("prod", "orders"): 15}
    assert figures(made, "kafka_partition_earliest_offset") == {
        ("prod", "big-orders", "0"): 4,
        ("prod", "big-orders", "1"): 0,
    }
    assert figures(made, "kafka_partition_latest_offset") == {
        ("prod", "big-orders", "0"): 25,
        ("prod", "big-orders", "1"): 7,
    }


def test_an_end_that_is_not_listed_yet_gives_no_lag_and_one_behind_the_position_none_below_zero() -> None:
    made = families([status(positions={"t-0": 10, "t-1": 10}, ends={"t-1": 8})], [], "c")
    assert figures(made, "kafka_consumergroup_group_lag") == {("c", "orders", "t", "1", *MEMBER): 0}
    assert len(figures(made, "kafka_consumergroup_group_offset")) == 2


def test_members_of_one_group_add_up_by_group_and_topic() -> None:
    first = status(positions={"t-0": 1, "u-0": 0}, ends={"t-0": 4, "u-0": 2})
    second = status(run="r2", member="b-1", positions={"t-1": 0}, ends={"t-1": 10})
    made = families([first, second], [], "c")
    assert figures(made, "kafka_consumergroup_group_max_lag") == {("c", "orders"): 10}
    assert figures(made, "kafka_consumergroup_group_sum_lag") == {("c", "orders"): 15}
    by_topic = {("c", "orders", "t"): 13, ("c", "orders", "u"): 2}
    assert figures(made, "kafka_consumergroup_group_topic_sum_lag") == by_topic


def test_the_lag_in_seconds_is_known_of_some_partitions_and_the_longest_is_the_groups() -> None:
    first = status(positions={"t-0": 1, "t-1": 9}, ends={"t-0": 4, "t-1": 9})
    second = status(run="r2", member="b-1", positions={"t-2": 0, "t-3": 5}, ends={"t-2": 10})
    times = {("r1", "t-0", 1): 7.5, ("r1", "t-1", 9): 0.0, ("r2", "t-2", 0): 3.0}
    asked = lambda log, position: times.get((*log, position))  # noqa: E731
    made = families([first, second, status(None, positions={"t-0": 1})], [], "c", seconds_behind=asked)
    assert figures(made, "kafka_consumergroup_group_lag_seconds") == {
        ("c", "orders", "t", "0", *MEMBER): 7.5,
        ("c", "orders", "t", "1", *MEMBER): 0.0,
        ("c", "orders", "t", "2", "b-1", *MEMBER[1:]): 3.0,
    }
    assert figures(made, "kafka_consumergroup_group_max_lag_seconds") == {("c", "orders"): 7.5}


def test_a_query_without_a_group_has_no_lag_of_a_group() -> None:
    made = families([status(None, name="", member="", positions={"t-0": 1}, ends={"t-0": 4})], [], "c")
    assert figures(made, "kafka_consumergroup_group_lag") == {}
    assert figures(made, "kafka_consumergroup_group_offset") == {}
    assert figures(made, "kafka_partition_latest_offset") == {("c", "t", "0"): 4}
    assert figures(made, "streamgroup_partitions") == {("", "", "r1"): 1}
    found = log_ends([status(ends={"t-0": 4}), status(None, run="r2", ends={"t-0": 5})])
    assert found == {("r1", "t-0"): 4, ("r2", "t-0"): 5}, "the ends of logs are by coordinator"


def test_a_member_shows_the_age_of_its_batch_in_flight_and_none_is_no_age() -> None:
    made = families([status(in_flight_s=312.5), status(name="b", run="r2")], [], "c")
    assert figures(made, "streamgroup_batch_in_flight_seconds") == {
        ("orders", "a", "r1"): 312.5,
        ("orders", "b", "r2"): 0.0,
    }


def test_a_member_shows_its_state_and_its_events() -> None:
    rejoining = status(state="joining", draining=True)
    rejoining["trouble"]["fence"] = {"count": 2, "last": "2026-11-24T00:00:00+00:00", "reason": "session over"}
    made = families([rejoining], [], "c")
    who = ("orders", "a", "r1")
    assert figures(made, "streamgroup_member_state") == {(*who, "joining"): 1}
    assert figures(made, "streamgroup_draining") == {who: 1}
    assert figures(made, "streamgroup_generation") == {who: 4}
    events = figures(made, "streamgroup_events_total")
    assert events[(*who, "fence")] == 2
    assert set(events) == {(*who, kind.value) for kind in RunEventKind}


def test_a_member_shows_its_rebalances_by_cause_its_commits_and_its_time_without_an_assignment() -> None:
    member = status(without_assignment_s=2.5, commits={"count": 4, "seconds": 0.2}, revoked=2)
    member["rebalances"] = {"start": 1, "group": 3}
    made = families([member], [], "c")
    who = ("orders", "a", "r1")
    assert figures(made, "streamgroup_rebalances_total") == {(*who, "start"): 1, (*who, "group"): 3}
    assert figures(made, "streamgroup_without_assignment_seconds_total") == {who: 2.5}
    moving = figures(made, "streamgroup_moving_partitions")
    assert moving == {(*who, "revoked"): 2, (*who, "awaited"): 0}, "an earlier release does not report it"
    (commits,) = (each for each in made if each.name == "streamgroup_commit_seconds")
    assert [(sample.labels, sample.value, sample.count) for sample in commits.samples] == [(who, 0.2, 4)]


def test_a_coordinator_shows_its_connections_their_failures_and_its_retries() -> None:
    connections = {"open": 3, "opened": 7, "failed": 1, "lost": 4, "unanswered": 2, "throttled_s": 1.5}
    made = families([status(connections=connections, retries={"group": 5, "logs": 6})], [], "c")
    who = ("orders", "a", "r1")
    assert figures(made, "streamgroup_connections") == {who: 3}
    assert figures(made, "streamgroup_connections_opened_total") == {who: 7}
    assert figures(made, "streamgroup_connection_failures_total") == {(*who, "setup"): 1, (*who, "open"): 4}
    assert figures(made, "streamgroup_unanswered_requests_total") == {who: 2}
    assert figures(made, "streamgroup_throttle_seconds_total") == {who: 1.5}
    assert figures(made, "streamgroup_retries_total") == {(*who, "group"): 5, (*who, "logs"): 6}


def test_two_coordinators_that_hold_the_same_partition_give_no_sample_twice() -> None:
    both = [status(run=run, member="", positions={"t-0": 1}, ends={"t-0": 4}) for run in ("r1", "r2")]
    for family in families(both, [], "c"):
        labels = [sample.labels for sample in family.samples]
        assert len(labels) == len(set(labels)), family.name


def test_the_phases_of_batches_are_summed_and_counted() -> None:
    totals = QueryTotals("ingest", "orders")
    totals.add(10, {"addBatch": 500, "triggerExecution": 700}, [4, 9], 1000.0)
    totals.add(5, {"addBatch": 250, "triggerExecution": 300}, [], 1010.5)
    made = families([], [totals], "c")
    query = ("ingest", "orders")
    assert figures(made, "streamgroup_batches_total") == {query: 2}
    assert figures(made, "streamgroup_rows_total") == {query: 15}
    assert figures(made, "streamgroup_last_batch_timestamp_seconds") == {query: 1010.5}
    assert figures(made, "streamgroup_max_offsets_behind") == {}, "the ends were unknown at the last batch"
    (phases,) = (each for each in made if each.name == "streamgroup_batch_phase_seconds")
    assert {sample.labels[2]: (sample.value, sample.count) for sample in phases.samples} == {
        "add_batch": (0.75, 2),
        "trigger_execution": (1.0, 2),
    }


def test_a_query_counts_dead_letters_once_for_all_of_its_groups_and_failures_by_error() -> None:
    plain, of_two = QueryTotals("plain", "orders"), [QueryTotals("two", name, dead_letters=4) for name in "ab"]
    made = families([], [plain, *of_two], "c", {("ingest", "DataLossError"): 2})
    assert figures(made, "streamgroup_dead_letters_total") == {("two",): 4}
    assert figures(made, "streamgroup_query_failures_total") == {("ingest", "DataLossError"): 2}


def test_every_name_is_there_once_whether_there_is_a_sample_or_not() -> None:
    names = [family.name for family in families([], [], "c")]
    assert len(names) == len(set(names)) == 33
    assert all(
        (family.kind is MetricKind.COUNTER) == family.name.endswith("_total") for family in families([], [], "c")
    )


def test_a_label_that_a_sample_lacks_is_empty_and_the_same_labels_replace_a_sample() -> None:
    lag = Family("lag", MetricKind.GAUGE, "Records behind.", ("group", "topic"))
    lag.add({"topic": "t", "partition": "0"}, 7)  # the metric lacks this label: it is dropped
    assert lag.samples == [Sample(("", "t"), 7)]
    lag.add({"group": "g", "topic": "a"}, 1)
    lag.add({"group": "g", "topic": "b"}, 2)
    lag.add({"group": "g", "topic": "a"}, 3)
    assert lag.samples == [Sample(("", "t"), 7), Sample(("g", "a"), 3), Sample(("g", "b"), 2)]


def test_a_summary_has_a_sum_and_a_count_and_other_samples_count_nothing() -> None:
    commits = Family("commit_seconds", MetricKind.SUMMARY, "Commits.", ())
    commits.add({}, 0.5, 4)
    assert commits.samples == [Sample((), 0.5, 4)]
    commits.add({}, 0.6)
    assert commits.samples == [Sample((), 0.6, 0)]


def times(*readings: tuple[float, int]) -> LogTimes[str]:
    found = LogTimes[str]()
    for now, end in readings:
        found.add(now, {"a": end})
    return found


@pytest.mark.parametrize(
    ("position", "seconds"),
    [
        (300, 0.0),
        (310, 0.0),  # committed after the ends were listed
        (200, 20.0),  # the log ended there at 120
        (150, 30.0),  # between 100 and 200, at 110
        (299, 0.2),
        (50, 50.0),  # before the first reading, at 10 records a second
    ],
)
def test_a_position_is_behind_since_the_log_ended_there(position: int, seconds: float) -> None:
    found = times((100, 100), (120, 200), (140, 300))
    assert found.seconds_behind("a", position, 140) == pytest.approx(seconds)


def test_a_log_that_stands_still_leaves_its_last_records_to_age() -> None:
    found = times((0, 0), (10, 100), (20, 100), (500, 100))
    assert found.seconds_behind("a", 90, 500) == pytest.approx(491)
    found = times((0, 100), (1800, 100), (3600, 100), (3615, 101))
    assert found.seconds_behind("a", 100, 3615) == pytest.approx(15), "as old as the reading before the record"


def test_a_reading_that_is_older_than_another_changes_nothing() -> None:
    found = times((0, 0), (20, 200), (10, 100))
    assert found.seconds_behind("a", 150, 20) == pytest.approx(5)


def test_nothing_is_known_of_a_lag_before_the_log_has_grown() -> None:
    assert times((0, 100), (10, 100)).seconds_behind("a", 90, 10) is None
    assert times((0, 100)).seconds_behind("a", 100, 0) == 0
    assert times((0, 100)).seconds_behind("b", 0, 0) is None


def test_a_log_that_readings_lack_for_minutes_or_that_was_made_anew_is_forgotten() -> None:
    found = times((0, 100), (10, 200))
    found.add(20, {"b": 1})
    assert found.seconds_behind("a", 150, 20) == pytest.approx(15)
    found.add(10 + KEPT_S + 1, {"b": 1})
    assert found.seconds_behind("a", 150, 20) is None
    again = times((0, 100), (10, 200), (20, 50), (30, 60))
    assert again.seconds_behind("a", 55, 30) == pytest.approx(5)


@pytest.mark.slow
@given(st.lists(st.integers(0, 1000), min_size=MOST_POINTS, max_size=10 * MOST_POINTS))
def test_points_are_bounded_and_a_position_nearer_to_the_end_is_never_further_behind(steps: list[int]) -> None:
    found, end = LogTimes[str](), 0
    for now, step in enumerate(steps):
        end += step
        found.add(float(now), {"a": end})
        assert len(found._points["a"]) <= MOST_POINTS
    seconds = [found.seconds_behind("a", position, float(len(steps))) for position in range(0, end, max(1, end // 50))]
    known = [one for one in seconds if one is not None]
    assert known == sorted(known, reverse=True)
    assert len(known) == len(seconds) or not any(known)


DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_is_that_of_the_metrics() -> None:
    assert (DOCS / NAME).read_text() == page(), "write it anew: make docs"


def test_the_page_lists_every_metric_with_what_it_is() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*) \| (\S.*) \|$", page(), re.MULTILINE)
    served = families([], [], "")
    assert sorted(row[:2] for row in rows) == sorted((family.name, family.kind.value) for family in served)
    assert all(family.doc.endswith(".") for family in served)


def test_every_label_is_explained() -> None:
    labels = {label for family in families([], [], "") for label in family.labels}
    assert labels <= set(re.findall(r"`(\w+)`", (DOCS / "metrics.md").read_text()))
