"""`drain(query)` with queries that are objects of the test, and coordinators behind real control channels."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

from streamgroup.coordinator.control import drains
from streamgroup.coordinator.planning.document import to_value
from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.model import INITIAL_DOCUMENT, Document
from streamgroup.spark import drain as module
from streamgroup.spark.drain import DrainResult, drain
from tests.unit.coordinator.channels import JVM, FakeCoordinator, home, serve
from tests.unit.spark.test_listener import Context
from tests.waiting import wait_until

__all__ = ["home", "serve"]

Serve = Callable[..., FakeCoordinator]

NO_COORDINATOR = "none of its coordinators responds, or it has just planned its first batch"


def offset(run: str, lineage: str) -> str:
    return json.dumps(to_value(Document("g", lineage, run, 3)))


def progress(*offsets: tuple[Any, Any], batch: int = 0) -> dict[str, Any]:
    return {"batchId": batch, "sources": [{"startOffset": start, "endOffset": end} for start, end in offsets]}


class Execution:
    """Spark's StreamExecution, as far as it tells what is planned."""

    def __init__(self, *offsets: str) -> None:
        self.offsets = offsets

    def availableOffsets(self) -> Any:  # noqa: N802  (Spark's name)
        return SimpleNamespace(values=lambda: SimpleNamespace(mkString=lambda separator: separator.join(self.offsets)))


@dataclass
class FakeQuery:
    """The part of a StreamingQuery that `drain` needs."""

    recentProgress: list[dict[str, Any]] = field(default_factory=list)  # noqa: N815  (Spark's name)
    isActive: bool = True  # noqa: N815
    name: str | None = "orders"
    id: str = "q-1"
    stops: int = 0
    execution: Any = None
    at_stop: Callable[[], Any] = lambda: None

    @property
    def _jsq(self) -> Any:
        if self.execution is None:
            raise AttributeError("a Spark that keeps it elsewhere")
        return SimpleNamespace(streamingQuery=lambda: self.execution)

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802
        return self.recentProgress[-1] if self.recentProgress else None

    def stop(self) -> None:
        self.at_stop()
        self.stops += 1
        self.isActive = False


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """A driver whose JVM is this process."""
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", Context())
    monkeypatch.setattr(module, "FIRST_DOCUMENT_S", 0.1)
    monkeypatch.setattr(drains, "POLL_S", 0.01)
    monkeypatch.setattr(module, "POLL_S", 0.01)


def of_r1(**others: Any) -> FakeQuery:
    """A query whose first batch was planned by the run r1."""
    return FakeQuery([progress((None, offset("r1", "l1")))], **others)


def run_drain(query: FakeQuery, timeout: float = 5.0) -> DrainResult:
    return drain(query, timeout)  # type: ignore[arg-type]


@pytest.mark.parametrize("is_planned", [False, True], ids=["by its progress", "by its planned offsets"])
def test_the_coordinator_of_the_query_is_drained_and_the_query_stopped(serve: Serve, *, is_planned: bool) -> None:
    ours, other = serve("r1", "l1"), serve("r2", "l2")
    query = FakeQuery(execution=Execution(offset("r1", "l1"))) if is_planned else of_r1()
    assert run_drain(query) == DrainResult(True, ("group of r1",))
    assert (len(ours.drains), other.drains, query.stops) == (1, [], 1)
    assert 4 < ours.drains[0] <= 5, "what is left of the timeout"


def test_all_sources_of_a_query_are_drained_and_other_sources_passed_over(serve: Serve) -> None:
    both = [serve("r1", "l1"), serve("r2", "l2")]
    sources = ((offset("r1", "l1"), None), ('{"t": {"0": 5}}', "17"), (None, json.loads(offset("r2", "l2"))))
    assert run_drain(FakeQuery([progress(*sources)])).groups == ("group of r1", "group of r2")
    both[1].drained = False
    assert run_drain(FakeQuery([progress(*sources)])) == DrainResult(False, ("group of r1", "group of r2"))


def test_the_first_progress_is_waited_for(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_DOCUMENT_S", 5.0)
    serve("r1", "l1")
    query = FakeQuery()
    looks = iter([0.0, 0.0])

    def look(seconds: float) -> None:
        if next(looks, None) is None:
            query.recentProgress.append(progress((None, offset("r1", "l1"))))

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=time.monotonic, sleep=look))
    assert run_drain(query).drained


@pytest.mark.slow
def test_a_first_batch_that_takes_long_is_waited_for_until_the_deadline(serve: Serve) -> None:
    coordinator = serve("r1", "l1")
    coordinator.idle = False
    query = FakeQuery()
    sunk = threading.Timer(0.4, lambda: query.recentProgress.append(progress((None, offset("r1", "l1")))))
    sunk.start()
    assert run_drain(query).drained, "longer than FIRST_DOCUMENT_S, which is for queries that plan nothing"


def test_a_query_behind_an_abandoned_socket_is_stopped_but_not_drained(
    serve: Serve, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = serve("r1", "l1")
    status = coordinator.status

    def die() -> dict[str, Any]:
        (home / str(JVM) / "r1.sock").unlink()  # between the question who it is and the drain
        return status()

    monkeypatch.setattr(coordinator, "status", die)
    query = of_r1()
    result = run_drain(query)
    assert (result.drained, result.groups) == (False, ())
    assert "cannot reach the coordinator of run r1 " in result.reason
    assert query.stops == 1


def test_leftovers_of_coordinators_that_were_killed_are_passed_over(serve: Serve, home: Path) -> None:
    serve("r1", "l1")
    (home / str(JVM) / "r0.sock").touch()
    assert run_drain(of_r1()).drained


@pytest.mark.slow
def test_a_coordinator_that_hangs_is_not_drained_and_the_query_is_stopped(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drains, "ANSWER_GRACE_S", 0.05)
    coordinator = serve("r1", "l1")
    monkeypatch.setattr(coordinator, "drain", lambda timeout, ends: time.sleep(2.0))
    query = of_r1()
    assert run_drain(query, 1.0) == DrainResult(
        False, (), f"the coordinator of run r1 (driver pid {JVM}) has not responded to request drain within 1 s"
    )
    assert query.stops == 1


def test_a_drain_that_is_refused_is_not_drained_and_the_query_is_stopped(serve: Serve) -> None:
    serve("r1", "l1").refusal = StreamGroupError("not now")
    query = of_r1()
    assert run_drain(query) == DrainResult(False, (), "not now")
    assert query.stops == 1


def test_a_query_that_has_ended_is_not_drained(serve: Serve) -> None:
    assert run_drain(of_r1(isActive=False)) == DrainResult(False, (), "it had ended before")


@pytest.mark.parametrize(
    "query",
    [
        FakeQuery(),
        FakeQuery([progress((None, '{"t": {"0": 5}}'))]),
        FakeQuery(execution=Execution('{"t": {"0": 5}}', "17")),
    ],
    ids=["no progress", "progress of another source", "planned offsets of other sources"],
)
def test_a_query_without_a_member_is_named_and_continues(serve: Serve, query: FakeQuery) -> None:
    other = serve("r1", "")
    with pytest.raises(ConfigError, match=r"cannot drain query orders: none of its sources is a str.* query\.stop\(\)"):
        run_drain(query)
    assert (query.stops, other.drains) == (0, [])


@pytest.mark.parametrize("timeout", [float("inf"), float("nan"), 1e9])
def test_a_drain_without_an_end_is_refused_and_the_query_goes_on(serve: Serve, timeout: float) -> None:
    ours = serve("r1", "l1")
    query = of_r1()
    with pytest.raises(ConfigError, match="604800"):
        run_drain(query, timeout)
    assert (query.stops, ours.drains) == (0, [])


# -- before a first progress -------------------------------------------------------------------------------------------


def test_a_replay_is_found_by_the_lineage_of_the_run_that_planned_it(serve: Serve) -> None:
    ours = serve("r7", "l1")
    assert run_drain(FakeQuery(execution=Execution(offset("r6", "l1")))).drained
    assert len(ours.drains) == 1


@pytest.mark.parametrize("offsets", [(), (json.dumps(to_value(INITIAL_DOCUMENT)),)], ids=["nothing", "an empty batch"])
def test_a_query_that_has_planned_nothing_is_stopped_at_once_and_repeats_nothing(
    serve: Serve, offsets: tuple[str, ...]
) -> None:
    coordinator = serve("r1", "l1")
    query = FakeQuery(execution=Execution(*offsets))
    assert run_drain(query) == DrainResult(True, ())
    assert (query.stops, coordinator.drains) == (1, [])


def test_a_batch_planned_between_the_last_look_and_the_stop_is_not_drained(serve: Serve) -> None:
    serve("r1", "l1")
    execution = Execution()
    query = FakeQuery(execution=execution, at_stop=lambda: setattr(execution, "offsets", (offset("r1", "l1"),)))
    assert run_drain(query) == DrainResult(False, (), NO_COORDINATOR)


def test_coordinators_that_cannot_be_found_are_not_drained_and_the_query_is_stopped(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    query = FakeQuery(execution=Execution(offset("r1", "l1")))
    assert run_drain(query) == DrainResult(False, (), NO_COORDINATOR)
    assert query.stops == 1
    assert "none of its coordinators responds, or it has just planned its first batch. One batch" in caplog.text


def test_a_drain_that_is_not_clean_logs_the_reason_of_the_coordinator(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator = serve("r1", "l1")
    coordinator.drained, coordinator.why = False, "the timeout expired before the batch in flight was complete"
    result = run_drain(FakeQuery(execution=Execution(offset("r1", "l1"))))
    assert result == DrainResult(False, ("group of r1",), coordinator.why)
    assert f": {coordinator.why}. One batch may be repeated" in caplog.text


# -- several sources ---------------------------------------------------------------------------------------------------


def test_the_coordinators_of_one_query_are_drained_at_the_same_time(serve: Serve) -> None:
    """None of them plans while another waits for its last batch."""
    both = [serve("r1", "l1"), serve("r2", "l2")]
    together = threading.Barrier(2)
    for one in both:
        one.while_draining = lambda: together.wait(5)
    query = FakeQuery(execution=Execution(offset("r1", "l1"), offset("r2", "l2")))
    assert run_drain(query) == DrainResult(True, ("group of r1", "group of r2"))


def test_a_source_that_plans_its_first_batch_meanwhile_is_drained_too(serve: Serve) -> None:
    one, two = serve("r1", "l1"), serve("r2", "l2")
    execution = Execution(offset("r1", "l1"))
    one.while_draining = lambda: setattr(execution, "offsets", (offset("r1", "l1"), offset("r2", "l2")))
    assert run_drain(FakeQuery(execution=execution)).groups == ("group of r1", "group of r2")
    assert len(two.drains) == 1


def test_a_copied_checkpoint_of_another_query_is_not_drained(serve: Serve) -> None:
    ours, copy = serve("r1", "l1"), serve("r2", "l1")
    ours.query, copy.query = {"id": "q-1"}, {"id": "q-2"}
    assert run_drain(FakeQuery(execution=Execution(offset("r1", "l1")))).groups == ("group of r1",)
    assert copy.drains == []


def test_a_drain_notifies_the_coordinators_of_the_last_batch_as_a_listener_would(serve: Serve) -> None:
    """So it waits for no trigger, and Trigger.Once, which asks for nothing more, is drained too."""
    ours = serve("r1", "l1")
    last = offset("r1", "l1")
    query = FakeQuery([progress((None, offset("r1", "l0")), batch=4)], execution=Execution(last))

    def sink() -> None:
        wait_until(lambda: [batch for _, batch in ours.told] == [4], "the batch before is told", 5)
        query.recentProgress.append(progress((None, last), batch=5))
        wait_until(lambda: (json.loads(last), 5) in ours.told, "the last batch is told", 5)

    ours.while_draining = sink
    assert run_drain(query).drained
    assert [batch for _, batch in ours.told] == [4, 5], "each once"
    assert ours.query == {"id": "q-1", "name": "orders"}
