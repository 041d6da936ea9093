"""A metric and its samples, as the page for Prometheus and the export by OpenTelemetry show them."""

from __future__ import annotations

import pytest

from streamgroup.monitoring.family import Family, MetricKind, Sample


@pytest.fixture
def lag() -> Family:
    return Family("lag", MetricKind.GAUGE, "Records behind.", ("group", "topic"))


def test_a_metric_without_a_sample_has_none(lag: Family) -> None:
    assert lag.samples == []


def test_samples_come_in_the_order_in_which_they_were_added(lag: Family) -> None:
    for topic in ("b", "a", "c"):
        lag.add({"group": "g", "topic": topic}, 1)
    assert [sample.labels for sample in lag.samples] == [("g", "b"), ("g", "a"), ("g", "c")]


def test_labels_have_the_order_of_the_metric_whatever_the_order_of_the_sample(lag: Family) -> None:
    lag.add({"topic": "t", "group": "g"}, 7)
    assert lag.samples == [Sample(("g", "t"), 7)]


def test_a_label_that_a_sample_lacks_is_empty_and_one_that_the_metric_lacks_is_dropped(lag: Family) -> None:
    lag.add({"topic": "t", "partition": "0"}, 7)
    assert lag.samples == [Sample(("", "t"), 7)]


def test_a_second_sample_with_the_same_labels_replaces_the_first_in_its_place(lag: Family) -> None:
    lag.add({"group": "g", "topic": "a"}, 1)
    lag.add({"group": "g", "topic": "b"}, 2)
    lag.add({"group": "g", "topic": "a"}, 3)
    assert lag.samples == [Sample(("g", "a"), 3), Sample(("g", "b"), 2)]


def test_a_summary_has_a_sum_and_a_count_and_other_samples_count_nothing() -> None:
    commits = Family("commit_seconds", MetricKind.SUMMARY, "Commits.", ())
    commits.add({}, 0.5, 4)
    assert commits.samples == [Sample((), 0.5, 4)]
    commits.add({}, 0.6)
    assert commits.samples == [Sample((), 0.6, 0)]


def test_a_kind_is_written_as_prometheus_names_it() -> None:
    assert [f"# TYPE x {kind}" for kind in (MetricKind.GAUGE, MetricKind.COUNTER, MetricKind.SUMMARY)] == [
        "# TYPE x gauge",
        "# TYPE x counter",
        "# TYPE x summary",
    ]
