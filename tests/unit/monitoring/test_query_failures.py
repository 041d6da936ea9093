from __future__ import annotations

import pytest

from streamgroup.monitoring.query_failures import OTHER, failure_of

TRACE = """org.apache.spark.SparkException: Failed when running Python data source: Traceback (most recent call last):
  File "streamgroup/run/shutdown.py", line 142, in wait_for_end
streamgroup.errors.TransportError: no answer

The above exception was the direct cause of the following exception:

{error}
\tat org.apache.spark.sql.execution.streaming.MicroBatchExecution
"""


@pytest.mark.parametrize(
    ("error", "name"),
    [
        ("streamgroup.errors.DataLossError: orders-0: the offsets [3, 9) are gone", "DataLossError"),
        ("streamgroup.zookeeper.errors.CredentialsError", "CredentialsError"),
        ("streamgroup.errors.DrainedError: group g: drained: nothing will be repeated", None),
    ],
)
def test_the_last_error_of_ours_is_the_failure(error: str, name: str | None) -> None:
    assert failure_of(TRACE.format(error=error), "STREAM_FAILED") == name


def test_any_other_error_has_the_class_that_spark_gives_it() -> None:
    text = "org.apache.spark.SparkException: the message mentions streamgroup.errors.DrainedError: in its midst"
    assert failure_of(text, "TASK_WRITE_FAILED") == "TASK_WRITE_FAILED"
    assert failure_of(text, None) == OTHER
