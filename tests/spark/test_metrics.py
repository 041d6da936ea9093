"""`streamgroup.metrics` of real queries: scraped by the test, and by a real Prometheus for Grafana's board."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import DataFrame

import streamgroup
from streamgroup.errors import DeadLetterError
from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.prometheus import scraping
from tests.spark.support import Load, Streams
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.timeout(240)]

TIMEOUT_S = 120.0
BOARD = Path(__file__).parents[2] / "conf" / "grafana" / "streamgroup.json"


@pytest.fixture
def port(streams: Streams) -> Iterator[int]:
    server = streamgroup.metrics(streams.spark, 0, cluster_name="test")
    yield server.port
    server.close()


def scrape(port: int) -> dict[tuple[str, str], Any]:
    """The samples by name and, where they have one, topic and partition."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return {
            (sample.name, sample.labels.get("event") or sample.labels.get("partition", "")): sample
            for family in text_string_to_metric_families(answer.read().decode())
            for sample in family.samples
        }


def test_a_scrape_shows_the_lag_the_batches_and_the_rebalances_of_a_member(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic, port: int
) -> None:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    load.send(30)
    query = streams.to_parquet(streams.read(kafka4, load.topic, "measured"), "measured").query
    wait_until(lambda: ("streamgroup_rows_total", "") in scrape(port), "a batch has sunk", TIMEOUT_S)
    wait_until(
        lambda: scrape(port)[("kafka_consumergroup_group_sum_lag", "")].value == 0, "all is committed", TIMEOUT_S
    )
    found = scrape(port)
    assert found["streamgroup_rows_total", ""].value == 30
    assert found["streamgroup_rows_total", ""].labels["group"] == "measured"
    assert [found["kafka_consumergroup_group_offset", number].value for number in "01"] == [15, 15]
    labels = found["kafka_consumergroup_group_lag", "0"].labels
    assert (labels["cluster_name"], labels["group"], labels["topic"]) == ("test", "measured", load.topic)
    assert labels["consumer_id"]
    assert (labels["client_id"].split("-")[0], labels["member_host"]) == ("streamgroup", "/127.0.0.1")
    assert found["kafka_partition_earliest_offset", "0"].value == 0
    assert 0 < found["streamgroup_connections", ""].value <= found["streamgroup_connections_opened_total", ""].value
    assert found["streamgroup_partitions", ""].value == 2
    assert found["streamgroup_member_state", ""].labels["state"] == "stable"
    assert found["streamgroup_events_total", "rebalance"].value == 1
    assert found["streamgroup_events_total", "data_loss"].value == 0
    query.stop()
    wait_until(lambda: ("streamgroup_rows_total", "") not in scrape(port), "a query that ended is gone", TIMEOUT_S)


def test_the_errors_that_end_queries_are_counted_by_their_names(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic, port: int
) -> None:
    load = Load(kafka4, make_topic(kafka4, 1), 1)
    load.send(30)

    def refuse(rows: DataFrame, batch: int) -> None:
        raise DeadLetterError("all of them")

    for name, options in (("sink", {}), ("source", {"includeInnerIndex": "true"})):  # for Kafka 0.7 only
        rows = streams.read(kafka4, load.topic, f"fails-{name}", **options)
        query = rows.writeStream.queryName(name).foreachBatch(refuse).start()
        wait_until(lambda query=query: query.exception() is not None, f"{name} has failed", TIMEOUT_S)  # type: ignore[misc]

    def failures() -> dict[str, str]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            families = {family.name: family for family in text_string_to_metric_families(answer.read().decode())}
        return {s.labels["query"]: s.labels["error"] for s in families["streamgroup_query_failures"].samples}

    wait_until(lambda: len(failures()) == 2, "both are counted", TIMEOUT_S)
    assert failures() == {"sink": "DeadLetterError", "source": "ConfigError"}


@pytest.mark.long
def test_each_query_of_the_board_has_data(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic, port: int, tmp_path: Path
) -> None:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    streams.to_parquet(streams.read(kafka4, load.topic, "shown"), "shown")
    # No value of the load is JSON, so each is a dead letter.
    letters = streamgroup.dead_letters(
        streamgroup.Parser("json", "id BIGINT"), lambda rows, batch: None, path=str(tmp_path / "dead"), max_share=1
    )
    garbage = streams.read(kafka4, load.topic, "garbage").writeStream.foreachBatch(letters).queryName("garbage")
    of_garbage = garbage.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    board = json.loads(BOARD.read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    with scraping(tmp_path, port) as prometheus:

        def missing() -> list[str]:
            load.send(10)
            return [each for each in expressions if not prometheus.query(each.replace("$group", "shown"))]

        wait_until(lambda: not missing(), "each query of the board has data", TIMEOUT_S, every=1.0)
    of_garbage.stop()
