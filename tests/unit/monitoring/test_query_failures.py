from __future__ import annotations

import pytest

from streamgroup.monitoring.query_failures import MOST_CHARACTERS, OTHER, failure_of, is_ours, message_of

TRACE = """org.apache.spark.SparkException: Failed when running Python data source: Traceback (most recent call last):
  File "streamgroup/run/lifecycle.py", line 142, in wait_for_end
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
    assert (
        message_of("Traceback (most recent call last):\n" + "  at x\n" * 200_000)
        == "Traceback (most recent call last):"
    )


@pytest.mark.parametrize(
    ("text", "message"), [("\n boom: x \n\tat y", "boom: x"), ("", ""), ("x" * 9999, "x" * MOST_CHARACTERS)]
)
def test_the_message_of_any_other_error_is_its_first_line(text: str, message: str) -> None:
    assert message_of(text) == message
    assert not is_ours(text)
