"""The totals of a query since its driver began to count: batches, rows, the time of each phase, and how far behind."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgroup.monitoring.query_totals import (
    MOST_CHARACTERS,
    OTHER,
    QueryTotals,
    failure_of,
    is_ours,
    message_of,
    pauses,
)


def test_only_the_last_batch_tells_how_far_behind_the_furthest_partition_is() -> None:
    totals = QueryTotals("ingest")
    assert (totals.most_behind, totals.dead_letters, totals.last_batch_at) == (None, None, 0.0)
    for now, behind, most in ((1.0, [3], 3), (2.0, [3, 9, 4], 9), (3.0, [0, 0], 0), (4.5, [], None)):
        totals.add(1, {}, behind, now)
        assert (totals.most_behind, totals.last_batch_at) == (most, now)


def test_a_phase_is_counted_only_in_the_batches_that_had_it() -> None:
    totals = QueryTotals("ingest")
    totals.add(1, {"addBatch": 1500, "latestOffset": 20}, [], 1000.0)
    totals.add(1, {"addBatch": 250}, [], 1001.0)
    assert totals.phase_s == {"addBatch": 1.75, "latestOffset": 0.02}
    assert totals.phases == {"addBatch": 2, "latestOffset": 1}


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**7)), max_size=8))
def test_the_totals_are_those_of_all_batches(batches: list[tuple[int, int]]) -> None:
    totals = QueryTotals("ingest")
    for rows, milliseconds in batches:
        totals.add(rows, {"addBatch": milliseconds}, [], 1000.0)
    assert (totals.batches, totals.rows) == (len(batches), sum(rows for rows, _ in batches))
    assert totals.phases["addBatch"] == len(batches)
    assert totals.phase_s.get("addBatch", 0.0) == pytest.approx(sum(ms for _, ms in batches) / 1000)


TRACE = """org.apache.spark.SparkException: Failed when running Python data source: Traceback (most recent call last):
  File "streamgroup/coordinator/run/lifecycle.py", line 142, in wait_for_end
streamgroup.errors.TransportError: no answer

The above exception was the direct cause of the following exception:

{error}
\tat org.apache.spark.sql.execution.streaming.MicroBatchExecution
"""


@pytest.mark.parametrize(
    ("error", "name"),
    [
        ("streamgroup.errors.DataLossError: orders-0: the offsets [3, 9) are gone", "DataLossError"),
        ("streamgroup.zookeeper.client.CredentialsError", "CredentialsError"),
        ("streamgroup.errors.DrainedError: group g: the query was drained, and no batch will be repeated", None),
    ],
)
def test_the_last_error_of_ours_is_the_failure(error: str, name: str | None) -> None:
    assert failure_of(TRACE.format(error=error), "STREAM_FAILED") == name


def test_any_other_error_has_the_class_that_spark_gives_it() -> None:
    text = "org.apache.spark.SparkException: the message mentions streamgroup.errors.DrainedError: in its midst"
    assert failure_of(text, "TASK_WRITE_FAILED") == "TASK_WRITE_FAILED"
    assert failure_of(text, None) == OTHER


def test_the_message_is_that_of_our_error_without_the_traceback() -> None:
    text = TRACE.format(error="streamgroup.errors.DataLossError: orders-0: the offsets [3, 9) are gone")
    assert message_of(text) == "orders-0: the offsets [3, 9) are gone"
    assert is_ours(text)


def test_the_message_of_a_function_of_the_users_is_the_end_of_its_traceback() -> None:
    text = """py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "job.py", line 36, in write
OSError: no space left on the disk

\tat py4j.Protocol.getReturnValue(Protocol.java:476)
"""  # noqa: E501
    assert message_of(text) == "OSError: no space left on the disk"
    assert message_of(text.replace(": no space left on the disk", "")) == "OSError"


def test_a_long_text_without_a_traceback_is_searched_in_linear_time() -> None:
    first = "Traceback (most recent call last):"
    assert message_of(f"{first}\n" + "  at x\n" * 200_000) == first


@pytest.mark.parametrize(
    ("text", "message"), [("\n boom: x \n\tat y", "boom: x"), ("", ""), ("x" * 9999, "x" * MOST_CHARACTERS)]
)
def test_the_message_of_any_other_error_is_its_first_line(text: str, message: str) -> None:
    assert message_of(text) == message
    assert not is_ours(text)


def test_the_partitions_of_all_members_on_this_machine_are_known_and_no_others() -> None:
    statuses: list[dict[str, Any]] = [
        {"group": "g", "positions": {"t-0": 5, "t-1": 7}, "paused": ["t-1"]},
        {"group": "g", "positions": {"t-2": 0}, "paused": ["t-2"]},
        {"group": "g"},
        {"group": "g", "positions": None, "paused": None},
        {"group": "other", "positions": {"t-3": 1}, "paused": ["t-3"]},
    ]
    assert pauses(statuses, "g") == {"t-0": False, "t-1": True, "t-2": True}
