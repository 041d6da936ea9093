"""The live page of a group whose member is a query of this machine: its batches by phase, its state, its end."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyspark.sql import DataFrame

import streamgroup
from streamgroup.cli._cluster import ClusterAddress
from streamgroup.monitoring.page.history import views
from streamgroup.testing import KafkaServer
from tests.browser import Browser
from tests.conftest import MakeTopic
from tests.spark.support import Load, Streams
from tests.ui.served import polled, served
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.long, pytest.mark.timeout(240)]

TIMEOUT_S = 120.0


@pytest.fixture
def rows_of(streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic) -> Callable[[str, int], DataFrame]:
    """A stream of a group over so many records of two partitions, ten in a batch. The application listens."""

    def read(group: str, records: int) -> DataFrame:
        load = Load(kafka4, make_topic(kafka4, 2), 2)
        load.send(records)
        streamgroup.listen(streams.spark)
        return streams.read(kafka4, load.topic, group, maxOffsetsPerTrigger=10)

    return read


def test_the_page_shows_the_error_that_has_ended_a_query(
    rows_of: Callable[[str, int], DataFrame], kafka4: KafkaServer
) -> None:
    name = f"failing-{uuid.uuid4().hex}"  # errors of an earlier run of the test are kept for an hour

    def write(rows: DataFrame, batch: int) -> None:
        if batch == 1:
            raise OSError("no space left on the disk of the test")
        rows.count()

    query = rows_of(name, 20).writeStream.foreachBatch(write).queryName("to-disk").start()
    with polled(ClusterAddress(kafka4.bootstrap_servers), name) as board:

        def failures() -> list[str]:
            text = board.answer(name, lambda found: views.group_view(found, name))[1]
            return [mark["text"] for mark in json.loads(text)["marks"] if mark["kind"] == "failure"] if text else []

        wait_until(failures, "the error is shown", TIMEOUT_S)
        (shown,) = failures()
        assert shown.startswith("query to-disk has ended with FOREACH_BATCH_USER_FUNCTION_ERROR: ")
        assert "no space left on the disk of the test" in shown
        with served(board, interval=0.5) as url, Browser() as page:
            page.open(f"{url}/#/group/{name}")
            page.wait_for("document.querySelector('.events')?.innerText.includes('no space left')")
            page.open(f"{url}/#/cluster")
            page.wait_for("document.body.innerText.includes('no space left')")
    assert not query.isActive


def test_the_page_shows_the_batches_of_a_query_and_its_end(
    streams: Streams, rows_of: Callable[[str, int], DataFrame], kafka4: KafkaServer
) -> None:
    name = "paged"
    query = streams.to_parquet(rows_of(name, 100), "paged").query
    assert query is not None

    with polled(ClusterAddress(kafka4.bootstrap_servers), name) as board:

        def view() -> dict[str, Any]:
            text = board.answer(name, lambda found: views.group_view(found, name))[1]
            return json.loads(text) if text else {}

        wait_until(lambda: any(run["batches"] for run in view().get("batches", ())), "a batch is shown", TIMEOUT_S)
        wait_until(lambda: view()["lag"] == 0, "all is committed", TIMEOUT_S)
        shown = view()
        (member,) = shown["members_list"]
        assert (member["partitions"], member["local"]["state"]) == (2, "stable")
        assert {row["owner"] for row in shown["partitions"]} == {0}
        phases = shown["batches"][0]["batches"][-1]["phases"]
        assert phases["addBatch"] > 0
        with served(board, interval=0.5) as url, Browser() as page:
            page.open(f"{url}/#/group/{name}")
            page.wait_for("document.querySelector('.flow')?.innerText.includes('add batch')")
            page.wait_for("document.body.innerText.includes('stable')")
        assert streamgroup.drain(query, 60).drained
        wait_until(lambda: view()["members"] == 0, "the member has left", TIMEOUT_S)
        kinds = [mark["kind"] for mark in view()["marks"]]
        assert {"rebalance", "leave"} <= set(kinds), kinds


def test_the_page_marks_the_drain_of_a_batch_in_flight(
    rows_of: Callable[[str, int], DataFrame], kafka4: KafkaServer
) -> None:
    name, may_end = "draining", threading.Event()

    def write(rows: DataFrame, batch: int) -> None:
        rows.count()
        assert may_end.wait(TIMEOUT_S)

    query = rows_of(name, 20).writeStream.foreachBatch(write).start()
    with polled(ClusterAddress(kafka4.bootstrap_servers), name) as board, ThreadPoolExecutor() as threads:

        def view() -> dict[str, Any]:
            text = board.answer(name, lambda found: views.group_view(found, name))[1]
            return json.loads(text) if text else {}

        def marked() -> bool:
            return any(mark["kind"] == "drain" for mark in view().get("marks", ()))

        wait_until(lambda: view().get("members"), "the member is shown", TIMEOUT_S)
        drained = threads.submit(streamgroup.drain, query, TIMEOUT_S)
        try:
            wait_until(marked, "the drain is marked", TIMEOUT_S)
        finally:
            may_end.set()
        assert drained.result().drained
