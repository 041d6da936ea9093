"""`streamgroup.progress` beside the progress of Spark's own source, over the same records."""

from __future__ import annotations

import json

import pytest

import streamgroup
from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.spark.support import Load, Streams
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.timeout(240)]

TIMEOUT_S = 120.0


def test_only_streamgroup_progress_has_the_metrics_of_sparks_own_source_and_says_what_is_read(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    load.send(30)
    options = {
        "kafka.bootstrap.servers": kafka4.bootstrap_servers,
        "subscribe": load.topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "16",
    }
    queries = {}
    for name in ("kafka", "streamgroup"):
        frame = streams.spark.readStream.format(name).options(**options).load()
        sunk = streams.to_parquet(frame, name, availableNow=True)
        sunk.finish(TIMEOUT_S)
        queries[name] = sunk.query
    own = [source.metrics for p in queries["kafka"].recentProgress for source in p.sources]
    ours = [source.metrics for p in queries["streamgroup"].recentProgress for source in streamgroup.progress(p).sources]
    assert ours == own
    assert [source.metrics for p in queries["streamgroup"].recentProgress for source in p.sources] == [{}, {}]
    assert [metrics["maxOffsetsBehindLatest"] for metrics in ours] == ["7", "0"]
    last = streamgroup.progress(queries["streamgroup"])
    assert last.sources[0].description == f"streamgroup[Subscribe[{load.topic}], mode=off]"
    assert json.loads(last.json)["sources"][0]["latestOffset"] == {load.topic: {"0": 15, "1": 15}}


def test_the_progress_of_a_running_member_names_its_group_where_a_listener_sees_it(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4, 1), 1)
    load.send(5)
    frame = streams.read(kafka4, load.topic, "described")
    query = streams.to_parquet(frame).query
    seen = wait_until(lambda: query.lastProgress, "the query has a progress", TIMEOUT_S)
    source = streamgroup.progress(seen).sources[0]
    assert source.description == f"streamgroup[Subscribe[{load.topic}], group=described, mode=member]"
    assert set(source.metrics.values()) == {"0", "0.0"}
    assert streamgroup.progress(streams.spark.streams.get(query.id)).sources[0].description == source.description
    shown = streamgroup.progress(streams.spark).where(f"query_id = '{query.id}'")
    (total, most) = (
        shown.agg({"rows": "sum", "max_offsets_behind": "max"}).select("sum(rows)", "max(max_offsets_behind)").first()
    )
    assert (total, most) == (5, 0)
    (row,) = shown.orderBy("batch").tail(1)
    assert (row.group, row.source, row.positions) == ("described", source.description, {f"{load.topic}-0": 5})
    assert row.duration_ms["triggerExecution"] > 0
