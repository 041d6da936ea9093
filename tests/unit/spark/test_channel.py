"""A user's process reaches the coordinators of its queries on this machine, or through Spark Connect."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

import streamgroup
from streamgroup.coordinator.control import channel as control
from streamgroup.coordinator.planning.document import to_value
from streamgroup.errors import ConfigError
from streamgroup.model import INITIAL_DOCUMENT, Document
from streamgroup.spark.channel import LocalCoordinatorChannel, SunkNotifier, channel_of, is_remote
from streamgroup.spark.connect import ConnectChannel
from streamgroup.spark.queries import document as document_of
from streamgroup.spark.queries import is_initial
from tests.unit.coordinator.channels import JVM, FakeCoordinator, document, home, serve
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
    query = test_connect.ClientQuery(session)
    assert is_remote(query)
    assert is_remote(session)
    assert isinstance(channel_of(query, "drain"), ConnectChannel)


@pytest.mark.parametrize("context", [None, SimpleNamespace(_jvm=None)], ids=["no context", "it has ended"])
@pytest.mark.parametrize("name", ["drain", "listen", "metrics", "open_telemetry", "ranges"])
def test_a_call_outside_of_the_driver_is_refused_with_where_to_call_it(
    name: str, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", context)
    given = [] if name == "ranges" else [SimpleNamespace(id="q-1")]
    with pytest.raises(ConfigError, match=rf"cannot call {name} in this process: .*Spark Connect .*\. Call it in"):
        getattr(streamgroup, name)(*given)


# -- the channel of this machine --------------------------------------------------------------------------------------


def test_a_drain_answers_in_the_order_of_its_runs_and_calls_back_while_it_waits(serve: Serve) -> None:
    one, two = serve("r1", "l1"), serve("r2", "l2")
    two.drained = False
    called = threading.Event()
    one.while_draining = lambda: called.wait(5)
    answers = LocalCoordinatorChannel(JVM).drain(["r2", "r1"], 5.0, called.set)
    assert called.is_set()
    drained = [(answer["group"], answer["drained"]) for answer in answers]
    assert drained == [("group of r2", False), ("group of r1", True)]
    assert (len(one.drains), len(two.drains)) == (1, 1)


QUERY = {"id": "q-1", "name": "orders"}


@pytest.fixture
def notifier() -> SunkNotifier:
    return SunkNotifier(JVM)


def end(run: str) -> None:
    """End the run: its channel is gone."""
    (control.directory(JVM) / f"{run}.sock").unlink()


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
    assert "cannot report a completed batch to the coordinator process of run r1" in warning
    assert "which commits it only at the next trigger: " in warning
    assert "cannot reach the coordinator of run r1 " in warning


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


ROWS = [["t", 0, 10, 20], ["t", 1, 0, 5]]
RANGES = (
    streamgroup.OffsetRange(streamgroup.TopicPartition("t", 0), 10, 20),
    streamgroup.OffsetRange(streamgroup.TopicPartition("t", 1), 0, 5),
)


class Driver:
    """A SparkContext whose JVM is this process, in the thread of one query's foreachBatch."""

    def __init__(self) -> None:
        self._jvm = Context()._jvm
        self._jvm.java.util = SimpleNamespace(UUID=SimpleNamespace(fromString=lambda text: text))
        self.query_id: str | None = "q-1"
        self.planned: dict[str, list[str]] | None = {}

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802  (Spark's name)
        return self.query_id if name == "sql.streaming.queryId" else None

    def sharedState(self) -> Any:  # noqa: N802
        if self.planned is None:
            raise AttributeError("a Spark that keeps it elsewhere")
        planned = self.planned
        return SimpleNamespace(activeStreamingQueries=lambda: SimpleNamespace(get=lambda key: execution(planned[key])))


def execution(offsets: list[str]) -> Any:
    values = SimpleNamespace(mkString=lambda separator: separator.join(offsets))
    return SimpleNamespace(availableOffsets=lambda: SimpleNamespace(values=lambda: values))


INITIAL = json.dumps(to_value(INITIAL_DOCUMENT))
"""The end of a source that has not planned a batch yet (R2)."""


def planned(lineage: str, sequence: int = 3) -> str:
    return json.dumps(to_value(Document("g", lineage, "any", sequence)))


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, home: Any) -> Driver:
    made = Driver()
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", made)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", SimpleNamespace(_jsparkSession=made))
    return made


def in_batch(serve: Serve, run: str = "r1", lineage: str = "l1") -> FakeCoordinator:
    coordinator = serve(run, lineage)
    coordinator.batch = [list(row) for row in ROWS]
    return coordinator


def test_the_query_of_the_thread_is_asked_for(serve: Serve, driver: Driver) -> None:
    in_batch(serve)
    in_batch(serve, "r2", "l2").batch = [["another", 0, 0, 1]]
    driver.planned = {"q-1": [planned("l1")], "q-2": [planned("l2")]}
    assert streamgroup.ranges() == RANGES
    driver.query_id = "q-2"
    assert streamgroup.ranges()[0].partition.topic == "another"


@pytest.mark.parametrize("end", [INITIAL, planned("l1")], ids=["batch 0 without records", "a batch for state"])
def test_a_batch_that_reads_nothing_has_no_ranges(serve: Serve, driver: Driver, end: str) -> None:
    serve()
    driver.planned = {"q-1": [end]}
    assert streamgroup.ranges() == streamgroup.ranges("group of r1") == ()
    if end != INITIAL:  # before the first batch no group is known
        with pytest.raises(ConfigError, match="the query has no source of group 'g2', only group 'group of r1'"):
            streamgroup.ranges("g2")


@pytest.mark.parametrize("end", [INITIAL, planned("l2")], ids=["planned nothing yet", "read an earlier batch"])
def test_a_batch_that_spark_runs_for_another_source_reads_nothing_of_this_one(
    serve: Serve, driver: Driver, end: str
) -> None:
    in_batch(serve)
    serve("r2", "l2")
    driver.planned = {"q-1": [planned("l1"), end]}
    assert streamgroup.ranges() == streamgroup.ranges("group of r1") == RANGES
    assert streamgroup.ranges("group of r2") == ()


@pytest.mark.parametrize(("is_asked_for", "sequence"), [(True, 4), (False, 3)], ids=["another batch", "not asked for"])
def test_a_batch_that_is_not_in_flight_or_whose_tasks_spark_has_not_asked_for_is_an_error(
    serve: Serve, driver: Driver, *, is_asked_for: bool, sequence: int
) -> None:
    coordinator = in_batch(serve)
    if not is_asked_for:
        coordinator.batch, coordinator.flies = None, True
    driver.planned = {"q-1": [planned("l1", sequence)]}
    with pytest.raises(ConfigError, match="no coordinator process reads a part of this batch"):
        streamgroup.ranges()


def test_a_source_whose_coordinator_does_not_answer_is_not_taken_for_an_empty_one(driver: Driver) -> None:
    driver.planned = {"q-1": [planned("l1")]}
    with pytest.raises(ConfigError, match="or a control channel could not be opened"):
        streamgroup.ranges()


def test_of_several_sources_one_is_chosen_by_group_or_member(serve: Serve, driver: Driver) -> None:
    in_batch(serve).name = "a"
    in_batch(serve, "r2", "l2").name = "b"
    driver.planned = {"q-1": [planned("l1"), planned("l2")]}
    assert streamgroup.ranges("group of r1") == streamgroup.ranges(member="b") == RANGES
    said = "more than one source reads in this batch: group 'group of r1' as 'a', group 'group of r2'"
    with pytest.raises(ConfigError, match=said):
        streamgroup.ranges()
    with pytest.raises(ConfigError, match=r"no source of group 'group of r1' as member 'b'"):
        streamgroup.ranges("group of r1", "b")


def test_a_source_without_a_batch_is_passed_over(serve: Serve, driver: Driver) -> None:
    in_batch(serve)
    serve("r2", "l2")
    driver.planned = {"q-1": [planned("l1"), planned("l2"), "17"]}
    assert streamgroup.ranges() == RANGES


def test_where_spark_does_not_tell_the_listener_does(serve: Serve, driver: Driver) -> None:
    in_batch(serve).query = {"id": "q-1"}
    in_batch(serve, "r2", "l2").query = {"id": "q-2"}
    driver.planned = None
    assert streamgroup.ranges() == RANGES


def test_unknown_coordinators_are_not_guessed(serve: Serve, driver: Driver) -> None:
    driver.planned = None
    in_batch(serve)
    with pytest.raises(ConfigError, match=r"does not show its coordinators. Call streamgroup\.listen"):
        streamgroup.ranges()


def test_outside_of_foreach_batch_the_error_says_where_to_call_it(driver: Driver) -> None:
    driver.query_id = None
    with pytest.raises(ConfigError, match=r"Call ranges\(\) inside a foreachBatch function, in the thread"):
        streamgroup.ranges()


def test_a_document_is_known_as_text_and_as_value_and_the_initial_one_by_its_lack_of_a_lineage() -> None:
    for text, has_lineage in ((planned("l1"), True), (INITIAL, False)):
        for offset in (text, json.loads(text)):
            assert document_of(offset) == (json.loads(text) if has_lineage else None)
            assert is_initial(offset) is not has_lineage


@pytest.mark.parametrize(
    "offset", [None, 7, "", "7", "no json", "[" * 5_000, '{"streamgroup": {"0": 5}}', '{"orders": {"0": 5}}']
)
def test_offsets_of_other_sources_are_no_documents(offset: Any) -> None:
    assert document_of(offset) is None
    assert not is_initial(offset)
