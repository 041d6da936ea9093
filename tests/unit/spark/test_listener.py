"""`listen(spark)` with events that are objects of the test, and coordinators behind real control channels."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

from streamgroup.coordinator.control import channel as control
from streamgroup.coordinator.control.drains import recorded_failures
from streamgroup.coordinator.planning.document import to_value
from streamgroup.errors import StreamGroupError
from streamgroup.logline import message_of, parse
from streamgroup.model import Document, Position, TopicPartition
from streamgroup.spark import channel as sunk_notifier
from streamgroup.spark import listener as module
from streamgroup.spark.channel import LocalCoordinatorChannel
from streamgroup.spark.listener import GroupListener, lines_of, listen
from tests.unit.coordinator.channels import JVM, FakeCoordinator, home, serve
from tests.unit.coordinator.shells import SOON, until

__all__ = ["home", "serve"]

pytestmark = pytest.mark.usefixtures("home")
Serve = Callable[..., FakeCoordinator]


def document(run: str, lineage: str, sequence: int = 3) -> str:
    return json.dumps(to_value(Document("g", lineage, run, sequence)))


def progress(
    *ends: Any, batch: int = 7, operators: tuple[str, ...] = (), name: str | None = "orders", latest: Any = None
) -> Any:
    """A QueryProgressEvent."""
    return SimpleNamespace(
        progress=SimpleNamespace(
            id="q-1",
            name=name,
            batchId=batch,
            timestamp="2026-01-01T00:00:00.000Z",
            durationMs={"addBatch": 40},
            sources=[
                SimpleNamespace(endOffset=end, startOffset=None, latestOffset=latest, numInputRows=50) for end in ends
            ],
            stateOperators=[SimpleNamespace(operatorName=operator) for operator in operators],
        )
    )


@pytest.fixture
def heard() -> GroupListener:
    return GroupListener(LocalCoordinatorChannel(JVM), lambda: 6)


def test_a_mark_that_was_cleaned_away_between_queries_is_made_anew_with_the_next_query(
    home: Path, heard: GroupListener
) -> None:
    assert not control.is_listened(JVM)
    heard.onQueryStarted(SimpleNamespace())  # type: ignore[arg-type]
    assert control.is_listened(JVM)


# -- notifying coordinators -------------------------------------------------------------------------------------------


def test_the_coordinators_of_all_streamgroup_sources_are_notified(serve: Serve, heard: GroupListener) -> None:
    one, two, other = serve("r1", "l1"), serve("r2", "l2"), serve("r3", "l3")
    heard.onQueryProgress(progress(document("r1", "l1"), '{"t": {"0": 5}}', "17", None, document("r2", "l2")))
    until(lambda: bool(one.told and two.told), "told")
    assert one.told == [(json.loads(document("r1", "l1")), 7)]
    assert (two.told[0][0]["run"], other.told) == ("r2", [])
    figures = {"batch": 7, "began": "2026-01-01T00:00:00.000Z", "rows": 250, "durations_ms": {"addBatch": 40}}
    assert one.query == {"id": "q-1", "name": "orders", "batch": figures}


def test_a_batch_whose_figures_cannot_be_read_is_reported_all_the_same(serve: Serve, heard: GroupListener) -> None:
    coordinator, event = serve("r1", "l1"), progress(document("r1", "l1"))
    del event.progress.durationMs
    heard.onQueryProgress(event)
    until(lambda: bool(coordinator.told), "told")
    assert coordinator.query == {"id": "q-1", "name": "orders"}


def test_a_hung_coordinator_delays_no_event(
    serve: Serve, heard: GroupListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve("r1", "l1").may_answer.clear()
    began = time.monotonic()
    heard.onQueryProgress(progress(document("r1", "l1")))
    assert time.monotonic() - began < sunk_notifier.REQUEST_TIMEOUT_S
    hung, well = 0.2, serve("r2", "l2")
    monkeypatch.setattr(sunk_notifier, "REQUEST_TIMEOUT_S", hung)
    heard.onQueryProgress(progress(document("r2", "l2")))
    until(lambda: bool(well.told), "told")


@pytest.mark.parametrize(
    "event", [None, SimpleNamespace(progress=None), progress(object())], ids=["nothing", "no progress", "no text"]
)
def test_nothing_is_raised_into_sparks_bus(heard: GroupListener, event: Any) -> None:
    heard.onQueryStarted(event)
    heard.onQueryProgress(event)
    heard.onQueryIdle(event)
    heard.onQueryTerminated(event)


# -- state ------------------------------------------------------------------------------------------------------------


def stateful(heard: GroupListener, times: int = 1) -> None:
    for _ in range(times):
        heard._notify([json.loads(document("r1", "l1"))], 7, {"id": "q-1", "name": "orders"}, ["dedupe"])


def test_a_stateful_query_with_a_member_is_warned_of_once(
    serve: Serve, heard: GroupListener, caplog: pytest.LogCaptureFixture
) -> None:
    serve("r1", "l1")
    stateful(heard, 3)
    assert caplog.text.count("query orders keeps state (dedupe), but its source is a member of group group of r1") == 1
    assert "option('group.mode', 'commit')" in caplog.text
    heard._notify([json.loads(document("r1", "l1"))], 7, {"id": "q-2", "name": ""}, ["stateStoreSave"])
    assert "query q-2 keeps state (stateStoreSave)" in caplog.text


@pytest.mark.parametrize("mode", ["commit", "off"])
def test_a_stateful_query_that_shares_no_partitions_is_not_warned_of(
    serve: Serve, heard: GroupListener, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    serve("r1", "l1").mode = mode
    stateful(heard)
    assert caplog.text == ""


def test_a_query_without_state_is_not_warned_of(
    serve: Serve, heard: GroupListener, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator = serve("r1", "l1")
    with caplog.at_level(logging.WARNING):
        heard.onQueryProgress(progress(document("r1", "l1")))
        until(lambda: bool(coordinator.told), "told")
    assert caplog.text == ""


class Bus:
    """A session's StreamingQueryManager, Python's and Java's in one."""

    def __init__(self) -> None:
        self.listeners: list[Any] = []

    def addListener(self, listener: Any) -> None:  # noqa: N802  (Spark's name)
        self.listeners.append(listener)

    def equals(self, other: object) -> bool:
        return self is other


class Session:
    def __init__(self) -> None:
        self.streams = Bus()
        self._jsparkSession = SimpleNamespace(streams=lambda: self.streams)


class Context:
    """A SparkContext whose JVM is this process."""

    def __init__(self) -> None:
        handle = SimpleNamespace(pid=lambda: JVM)
        handles = SimpleNamespace(current=lambda: handle)
        self._jvm = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(ProcessHandle=handles)))
        self.cores = [0, 4, 8]
        self.conf: dict[str, str] = {}
        self.defaultParallelism = 3
        self._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(statusStore=lambda: self))

    def getConf(self) -> dict[str, str]:  # noqa: N802
        return self.conf

    def executorList(self, active: bool) -> Any:  # noqa: N802
        assert active
        summaries = [SimpleNamespace(totalCores=lambda cores=cores: cores) for cores in self.cores]
        return SimpleNamespace(size=lambda: len(summaries), apply=lambda n: summaries[n])


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Context:
    made = Context()
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", made)
    return made


def test_a_session_is_listened_to_once_and_every_session_by_its_own(context: Context) -> None:
    one, two = Session(), Session()
    first = listen(one)  # type: ignore[arg-type]
    assert listen(one) is first  # type: ignore[arg-type]
    assert listen(two) is not first  # type: ignore[arg-type]
    assert (one.streams.listeners, len(two.streams.listeners)) == ([first], 1)
    assert control.cores_announced(JVM) == 12
    context.cores, context.conf = [0], {"spark.executor.instances": "3", "spark.executor.cores": "5"}
    first.onQueryStarted(SimpleNamespace(id="q-1", name="orders"))
    assert control.cores_announced(JVM) == 15, "no executor has registered yet"
    context.conf = {}
    first.onQueryStarted(SimpleNamespace(id="q-1", name="orders"))
    assert control.cores_announced(JVM) == 1
    context._jsc = SimpleNamespace(sc=lambda: None)
    first.onQueryStarted(SimpleNamespace(id="q-1", name="orders"))
    assert control.cores_announced(JVM) == 3, "a Spark that does not show its executors"
    control.unannounce_listener(JVM)


def test_coordinators_are_notified_even_if_the_listener_cannot_announce_itself(
    context: Context, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(pid: int, cores: int) -> None:
        raise PermissionError("not a private directory of this user")

    monkeypatch.setattr(module.control, "announce_listener", refuse)
    session = Session()
    assert session.streams.listeners == [listen(session)]  # type: ignore[arg-type]
    assert "not a private directory" in caplog.text


# -- errors that end a query ------------------------------------------------------------------------------------------


def ended(exception: str | None, query: str = "q-1") -> Any:
    """A QueryTerminatedEvent."""
    return SimpleNamespace(id=query, exception=exception, errorClassOnException="STREAM_FAILED")


def test_the_error_of_a_query_is_kept_with_its_groups(heard: GroupListener) -> None:
    heard.onQueryProgress(progress(document("r1", "l1"), name=None))
    heard.onQueryProgress(progress(name="orders"))  # of a batch of another source
    heard.onQueryProgress(progress(document("r1", "l1")))
    heard.onQueryTerminated(ended("java.io.IOException: disk full\n\tat x"))
    (found,) = recorded_failures()
    assert (found.query, found.groups, found.error) == ("orders", ("g",), "STREAM_FAILED")
    assert found.text == "java.io.IOException: disk full"
    assert abs(found.at - time.time()) < SOON
    heard.onQueryTerminated(ended("java.io.IOException: again"))  # it is forgotten: nothing tells whose it is
    assert recorded_failures() == [found]
    assert (heard._names, heard._groups) == ({}, {})


def test_the_error_before_the_first_batch_is_kept_if_it_is_ours(heard: GroupListener) -> None:
    heard.onQueryTerminated(ended("java.io.IOException: another source"))
    heard.onQueryTerminated(ended(None))
    heard.onQueryTerminated(ended("Traceback\nstreamgroup.errors.DrainedError: group g: drained"))
    heard.onQueryTerminated(ended("Traceback\nstreamgroup.errors.ConfigError: topic t does not exist"))
    (found,) = recorded_failures()
    assert (found.query, found.groups, found.error) == ("q-1", (), "ConfigError")
    assert found.text == "topic t does not exist"


def test_a_directory_that_is_not_private_is_a_warning_and_raises_nothing(
    heard: GroupListener, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home.mkdir(mode=0o755)
    heard.onQueryTerminated(ended("Traceback\nstreamgroup.errors.ConfigError: no topic"))
    assert "cannot store the error of query q-1 for the live page" in caplog.text


def test_ended_runs_and_queries_are_forgotten(serve: Serve) -> None:
    channel = LocalCoordinatorChannel(JVM)
    heard, notifier = GroupListener(channel, lambda: 1), channel._notifier
    for number in range(5):
        run = f"r{number}"
        serve(run, f"l{number}")
        assert notifier._run_of(json.loads(document("before", f"l{number}"))) == run
        stateful_query = {"id": f"q-{number}", "name": ""}
        heard._notify([json.loads(document(run, f"l{number}"))], 7, stateful_query, ["dedupe"])
        notifier._warn_once(run, StreamGroupError("hung"))
        (control.directory(JVM) / f"{run}.sock").unlink()
        heard.onQueryTerminated(SimpleNamespace(id=f"q-{number}"))
    assert len(notifier._by_lineage) <= 1
    assert len(notifier._failed) <= 1
    assert heard._stateful == set()


def test_each_sunk_batch_is_a_log_line_with_sparks_metrics(
    serve: Serve, heard: GroupListener, caplog: pytest.LogCaptureFixture
) -> None:
    serve("r1", "l1")
    positions = {TopicPartition("t", 0): Position(10), TopicPartition("t", 1): Position(20)}
    end = json.dumps(to_value(Document("g", "l1", "r1", 3, positions=positions)))
    caplog.set_level(logging.INFO, "streamgroup")
    heard.onQueryProgress(progress(end, '{"t": {"0": 5}}', latest='{"t": {"0": 10, "1": 25}}'))
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert message_of(line) == "query orders: batch 7 is complete, 50 rows, at most 5 offsets behind"
    assert parse(line) == {
        "event": "progress",
        "query": "orders",
        "group": "g",
        "batch": "7",
        "rows": "50",
        "avg_offsets_behind_latest": "2.5",
        "max_offsets_behind_latest": "5",
        "min_offsets_behind_latest": "0",
        "add_batch_ms": "40",
    }


def test_the_line_has_no_metrics_before_the_log_ends_are_known() -> None:
    figures = "event=progress query=q-1 group=g batch=7 rows=50 add_batch_ms=40"
    found = lines_of(progress(document("r1", "l1"), name=None).progress)
    assert list(found) == [f"query q-1: batch 7 is complete, 50 rows | {figures}"]
