"""The content of a task, and what it must not hold."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import TaskContext

from streamgroup.errors import DataLossError
from streamgroup.executor import fetcher
from streamgroup.model import FetchTask
from streamgroup.options.parse import parse_source
from streamgroup.options.types import FetchOptions
from streamgroup.remediation import StoredIn
from streamgroup.spark.source import GroupBatchReader
from streamgroup.spark.tasks import TaskPartition, network_timeout_ms, read_task, task_options
from tests.unit.driver.test_log_output import no_logging

REGISTERED = {
    "zookeeper.connect": "zk1:2181/kafka",
    "zookeeper.username": "etl",
    "zookeeper.password": "swordfish",
    "subscribe": "events",
}


@pytest.mark.parametrize(
    ("given", "group", "stored_in"),
    [
        ({"kafka.group.id": "drain"}, "drain", StoredIn.ZOOKEEPER),
        ({"kafka.group.id": "drain", "kafka.offsets.storage": "kafka"}, "drain", StoredIn.BOTH),
        ({"group.mode": "off"}, None, StoredIn.KAFKA),
    ],
)
def test_a_task_knows_where_offsets_are_stored_but_no_zookeeper_address(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], group: str | None, stored_in: StoredIn
) -> None:
    told: dict[str, Any] = {}
    monkeypatch.setattr(fetcher, "read", lambda *args, **others: told.update(others) or iter(()))
    sent = pickle.dumps(task_options(parse_source(REGISTERED | given, streaming=True)))
    assert not any(word in sent for word in (b"zk1", b"swordfish"))
    assert list(read_task(TaskPartition(FetchTask(())), pickle.loads(sent))) == []
    assert (told["group"], told["stored_in"]) == (group, stored_in)


def test_a_batch_read_has_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {}
    monkeypatch.setattr(fetcher, "read", lambda *args, **others: told.update(others) or iter(()))
    options = task_options(parse_source(REGISTERED, streaming=False))
    assert list(read_task(TaskPartition(FetchTask(())), options)) == []
    assert told["group"] is None


@pytest.mark.parametrize(
    ("given", "setting", "seconds"),
    [
        ({}, "77s", 77.0),
        ({}, "90", 90.0),  # a number alone counts seconds, as in Spark
        ({}, "2min", 120.0),
        ({}, None, 120.0),
        ({"kafkaConsumer.pollTimeoutMs": "512"}, "77s", 0.512),
    ],
)
def test_a_task_waits_for_records_as_long_as_spark_waits_for_its_network(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], setting: str | None, seconds: float
) -> None:
    properties = {} if setting is None else {"spark.network.timeout": setting}
    monkeypatch.setattr(TaskContext, "get", lambda: SimpleNamespace(getLocalProperty=properties.get))
    fetches: list[FetchOptions] = []
    monkeypatch.setattr(fetcher, "read", lambda _, __, fetch, **others: fetches.append(fetch) or iter(()))
    options = task_options(parse_source(REGISTERED | given, streaming=True))
    assert list(read_task(TaskPartition(FetchTask(())), options)) == []
    assert [fetch.poll_timeout_s for fetch in fetches] == [seconds]


def test_outside_of_a_task_the_timeout_is_sparks_default() -> None:
    assert network_timeout_ms() is None
    assert FetchOptions().poll_timeout_s == 120.0


def test_records_that_a_batch_read_has_lost_since_its_plan_are_an_error_that_tells_how_to_plan_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lose(*_: Any, **__: Any) -> Iterator[Any]:
        yield "rows"
        raise DataLossError("t-0: the offsets [0, 3) were planned and cannot be read any more")

    monkeypatch.setattr(fetcher, "read", lose)
    rows = GroupBatchReader(parse_source(REGISTERED, streaming=False)).read(TaskPartition(FetchTask(())))
    assert next(rows) == "rows"  # type: ignore[comparison-overlap]
    with pytest.raises(DataLossError, match=r"^t-0: the offsets .* any more\. Spark plans .*\. Call load\(\) again"):
        next(rows)


def test_a_warning_of_a_read_has_its_time_and_level_in_the_executors_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with no_logging(monkeypatch) as logger:
        monkeypatch.setattr(fetcher, "read", lambda *_, **__: logger.warning("throttled") or iter(()))
        assert list(read_task(TaskPartition(FetchTask(())), parse_source(REGISTERED, streaming=True))) == []
    assert re.search(r"^\S+ \S+ WARNING streamgroup: throttled$", capsys.readouterr().err, re.MULTILINE)
