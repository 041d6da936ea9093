"""A user's process reaches the coordinators of its queries on this machine, or through Spark Connect."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

from streamgroup.driver.application import control
from streamgroup.driver.application.drains import recorded_failures
from streamgroup.errors import ConfigError
from streamgroup.monitoring.query_failures import QueryFailure
from streamgroup.spark.channel import LocalCoordinatorChannel, channel_of, is_remote
from streamgroup.spark.connect import ConnectChannel
from tests.unit.driver.channels import JVM, FakeCoordinator, document, home, serve
from tests.unit.spark import test_connect
from tests.unit.spark.test_listener import Context

__all__ = ["home", "serve"]

pytestmark = pytest.mark.usefixtures("home")
Serve = Callable[..., FakeCoordinator]


# -- which channel ----------------------------------------------------------------------------------------------------


def test_a_query_of_this_driver_is_reached_by_the_pid_of_its_jvm(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", Context())
    serve("r1", "l1", jvm=JVM)
    serve("r2", "l2", jvm=JVM + 1)
    query = SimpleNamespace(id="q-1")
    assert not is_remote(query)
    channel = channel_of(query, "drain")
    assert isinstance(channel, LocalCoordinatorChannel)
    assert list(channel.statuses()) == ["r1"]


def test_a_query_of_a_connect_client_is_reached_through_its_session() -> None:
    session = test_connect.Session()
    query = test_connect.Query(session)
    assert is_remote(query)
    assert is_remote(session)
    assert isinstance(channel_of(query, "drain"), ConnectChannel)


@pytest.mark.parametrize("context", [None, SimpleNamespace(_jvm=None)], ids=["no context", "it has ended"])
def test_a_process_without_a_driver_is_told_where_to_call_it(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", context)
    with pytest.raises(ConfigError, match=r"cannot call drain in this process: .*\. Call it in the driver"):
        channel_of(SimpleNamespace(id="q-1"), "drain")


# -- the channel of this machine --------------------------------------------------------------------------------------


def test_a_drain_answers_in_the_order_of_its_runs_and_calls_back_while_it_waits(serve: Serve) -> None:
    one, two = serve("r1", "l1"), serve("r2", "l2")
    two.drained = False
    called = threading.Event()
    one.while_draining = lambda: called.wait(5)
    answers = LocalCoordinatorChannel(JVM).drain(["r2", "r1"], 5.0, called.set)
    assert called.is_set()
    assert [(answer["group"], answer["drained"]) for answer in answers] == [
        ("group of r2", False),
        ("group of r1", True),
    ]
    assert (len(one.drains), len(two.drains)) == (1, 1)


def test_a_sunk_batch_is_reported_to_its_coordinator(serve: Serve) -> None:
    ours, other = serve("r1", "l1"), serve("r2", "l2")
    channel = LocalCoordinatorChannel(JVM)
    channel.notify([document("r1", "l1")], 7, {"id": "q-1", "name": "orders"})
    assert (ours.told, other.told) == ([(document("r1", "l1"), 7)], [])
    assert channel.groups_joined([document("r1", "l1")]) == ["group of r1"]


def test_a_listener_is_announced_to_the_coordinators_of_this_driver_alone() -> None:
    LocalCoordinatorChannel(JVM).announce_listener()
    assert control.is_listened(JVM)
    assert not control.is_listened(JVM + 1)
    control.unannounce_listener(JVM)


def test_the_error_that_ended_a_query_is_kept_for_the_live_page() -> None:
    failure = QueryFailure(time.time(), "orders", ("g",), "DataLossError", "topic orders: offsets are gone")
    LocalCoordinatorChannel(JVM).record_failure(failure)
    assert recorded_failures() == [failure]
