"""A user's process reaches the coordinators of its queries on this machine, or through Spark Connect."""

from __future__ import annotations

import logging
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
from streamgroup.monitoring.query_totals import QueryFailure
from streamgroup.spark.channel import LocalCoordinatorChannel, SunkNotifier, channel_of, is_remote
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


QUERY = {"id": "q-1", "name": "orders"}


@pytest.fixture
def notifier() -> SunkNotifier:
    return SunkNotifier(JVM)


def end(run: str) -> None:
    """End the run: its channel is gone."""
    (control.directory(JVM) / f"{run}.sock").unlink()


def test_each_document_of_a_batch_goes_to_the_coordinator_of_its_run(serve: Serve, notifier: SunkNotifier) -> None:
    one, two, other = serve("r1", "l1"), serve("r2", "l2"), serve("r3", "l3")
    notifier.notify([document("r1", "l1"), document("r2", "l2")], 7, QUERY)
    assert one.told == [(document("r1", "l1"), 7)]
    assert two.told == [(document("r2", "l2"), 7)]
    assert (one.query, other.told) == (QUERY, [])


def test_a_batch_without_a_document_of_streamgroup_is_reported_to_nobody(serve: Serve, notifier: SunkNotifier) -> None:
    coordinator = serve("r1", "l1")
    notifier.notify([], 7, QUERY)
    assert coordinator.told == []


def test_a_replayed_batch_is_reported_to_the_run_that_has_its_lineage_now(serve: Serve, notifier: SunkNotifier) -> None:
    before = document("r1", "l1")
    second = serve("r2", "l1")
    notifier.notify([before], 7, QUERY)
    assert second.told == [(before, 7)]
    end("r2")
    third = serve("r3", "l1")
    notifier.notify([before], 8, QUERY)
    assert (len(second.told), third.told) == (1, [(before, 8)])


def test_two_copies_of_a_checkpoint_get_no_report_until_one_of_them_has_ended(
    serve: Serve, notifier: SunkNotifier
) -> None:
    copies = serve("r2", "l1"), serve("r3", "l1")
    notifier.notify([document("r1", "l1")], 7, QUERY)
    assert [copy.told for copy in copies] == [[], []], "the batch may be of either"
    end("r3")
    notifier.notify([document("r1", "l1")], 8, QUERY)
    assert [len(copy.told) for copy in copies] == [1, 0]


def test_the_ends_of_logs_come_from_the_coordinator_of_the_document(serve: Serve, notifier: SunkNotifier) -> None:
    serve("r1", "l1")
    assert notifier.log_ends(document("r1", "l1")) == {"t": {"0": 20}}
    assert notifier.log_ends(document("r2", "l2")) == {}, "its query has ended"


def test_a_query_that_has_ended_is_passed_over_and_the_others_are_told(
    serve: Serve, notifier: SunkNotifier, caplog: pytest.LogCaptureFixture
) -> None:
    alive = serve("r2", "l2")
    notifier.notify([document("r1", "l1"), document("r2", "l2")], 7, QUERY)
    assert alive.told == [(document("r2", "l2"), 7)]
    assert caplog.text == ""


def cut_off(run: str) -> None:
    """Take the token of the run's channel away, so that its coordinator lives and cannot be reached."""
    (control.directory(JVM) / f"{run}.token").unlink()


def test_a_coordinator_that_cannot_be_reached_is_named_once_and_the_next_is_told(
    serve: Serve, notifier: SunkNotifier, caplog: pytest.LogCaptureFixture
) -> None:
    serve("r1", "l1")
    well = serve("r2", "l2")
    cut_off("r1")
    for batch in (7, 8):
        notifier.notify([document("r1", "l1"), document("r2", "l2", batch)], batch, QUERY)
    assert [batch for _, batch in well.told] == [7, 8]
    (warning,) = (record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)
    assert "cannot report a sunk batch to the coordinator process of run r1" in warning
    assert "commits it with the next trigger instead" in warning
    assert "cannot be reached" in warning


def test_a_run_that_ends_while_it_is_told_is_not_a_failure(
    serve: Serve, notifier: SunkNotifier, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve("r1", "l1")
    cut_off("r1")
    ask = control.ask

    def end_and_ask(*given: Any, **named: Any) -> dict[str, Any]:
        end("r1")
        return ask(*given, **named)

    monkeypatch.setattr(control, "ask", end_and_ask)
    notifier.notify([document("r1", "l1")], 7, QUERY)
    assert caplog.text == ""


def test_the_groups_whose_partitions_may_move_are_those_of_members(serve: Serve, notifier: SunkNotifier) -> None:
    for number in (3, 1, 2, 4):
        serve(f"r{number}", f"l{number}").mode = "commit" if number == 2 else "member"
    documents = [document(f"r{number}", f"l{number}") for number in (3, 2, 1, 9)]
    assert notifier.groups_joined(documents) == ["group of r1", "group of r3"]
    assert notifier.groups_joined([document("before", "l1"), document("r1", "l1")]) == ["group of r1"]
    assert notifier.groups_joined([]) == []
