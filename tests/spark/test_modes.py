"""Modes `commit` and `off` under Spark: what arrives, what is committed. More of them: `tests/live/test_modes.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

import streamgroup
from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.spark.submitting import ROOT
from tests.spark.support import Load, Streams, Sunk, assigned, committed
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.timeout(240)]

TIMEOUT_S = 120.0
FOR_EVER = {"retention.ms": "-1"}
QUICK = {"kafka.metadata.max.age.ms": "500"}


def read(streams: Streams, server: KafkaServer, **options: Any) -> DataFrame:
    """A stream with these options alone; `__` in a name is a dot."""
    return (
        streams.spark.readStream.format("streamgroup")
        .option("kafka.bootstrap.servers", server.bootstrap_servers)
        .options(**QUICK)
        .options(**{name.replace("__", "."): str(value) for name, value in options.items()})
        .load()
    )


def groups(server: KafkaServer) -> set[str]:
    """The groups of the cluster, as another client sees them."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers, "log_level": 3})
    return {group.group_id for group in admin.list_consumer_groups().result(20).valid}


def have(sunk: Sunk, *values: list[str]) -> bool:
    return sorted(sunk.values()) == sorted(v for some in values for v in some)


def subscription(kind: str, load: Load) -> dict[str, str]:
    return {
        "subscribe": {"subscribe": load.topic},
        "assign": {"assign": json.dumps({load.topic: [0, 2]})},
        "pattern": {"subscribePattern": f"{load.topic[:-1]}[{load.topic[-1]}]"},
    }[kind]


@pytest.mark.parametrize(("mode", "kind"), [("off", "pattern"), ("off", "assign"), ("commit", "subscribe")])
def test_alone_everything_subscribed_is_read_once_over_a_restart(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic, mode: str, kind: str
) -> None:
    load = Load(kafka4, make_topic(kafka4, 3), 3)
    group = f"alone-{mode}-{kind}"
    options = {**subscription(kind, load), "startingOffsets": "earliest"}
    if mode == "commit":
        options |= {"kafka__group__id": group, "group__mode": "commit"}
    for _ in range(2):
        load.send(30)
        sunk = streams.to_parquet(read(streams, kafka4, **options), "q", availableNow=True)
        sunk.finish(TIMEOUT_S)
    wanted = [v for v in load.sent if kind != "assign" or int(v.split("-")[-2]) != 1]
    assert have(sunk, wanted)
    ends = {p: 20 for p in range(3) if kind != "assign" or p != 1}
    assert committed(kafka4, group, load.topic) == (ends if mode == "commit" else {})
    assert (group in groups(kafka4)) == (mode == "commit")


def test_two_queries_without_a_group_both_read_everything_from_where_they_started(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    """As two of Spark's own: `latest` is the default, and stands in the checkpoint before anything has come (R6)."""
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    load.send(20)
    before = groups(kafka4)
    queries = [streams.to_parquet(read(streams, kafka4, subscribe=load.topic), name) for name in ("a", "b")]
    for sunk in queries:
        wait_until(lambda sunk=sunk: assigned(sunk.query) == [0, 1], "its start is documented", TIMEOUT_S)
    queries[1].query.stop()
    new = load.send(10)
    queries[1] = streams.to_parquet(read(streams, kafka4, subscribe=load.topic), "b")
    more = load.send(30)
    for sunk in queries:
        wait_until(lambda sunk=sunk: have(sunk, new, more), "all of both", TIMEOUT_S)
    assert groups(kafka4) <= before  # Kafka removes groups of earlier tests meanwhile


def test_starting_offsets_by_timestamp_and_a_batch_that_waits_until_it_is_worth_it(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4, 1, config=FOR_EVER), 1)
    load.send(10, timestamp=1_700_000_000_000)
    wanted = load.send(10, timestamp=1_700_000_001_000)
    frame = read(
        streams,
        kafka4,
        subscribe=load.topic,
        startingOffsetsByTimestamp=json.dumps({load.topic: {"0": 1_700_000_000_500}}),
        minOffsetsPerTrigger=25,
        maxTriggerDelay="1h",
    )
    sunk = streams.to_parquet(frame)
    wait_until(lambda: have(sunk, wanted), "the first batch waits for nothing", TIMEOUT_S)
    few = load.send(20)
    with pytest.raises(AssertionError, match="not within"):
        wait_until(lambda: len(sunk.values()) > len(wanted), "too few are read", 1.0)
    enough = load.send(5)
    wait_until(lambda: have(sunk, wanted, few, enough), "all at once", TIMEOUT_S)
    wait_until(lambda: sizes(sunk) == [10, 25], "two batches", TIMEOUT_S)


def sizes(sunk: Sunk) -> list[int]:
    """The rows of each batch that had some, as far as they were reported."""
    assert sunk.query is not None
    return [p["numInputRows"] for p in sunk.query.recentProgress if p["numInputRows"]]


def test_a_stateful_query_goes_on_with_its_state_and_the_lag_tools_see_it(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    group = "stateful"
    for turn in range(2):
        load.send(40)
        Load(kafka4, load.topic, 2).send(40)  # the same values once more
        frame = read(
            streams,
            kafka4,
            subscribe=load.topic,
            kafka__group__id=group,
            group__mode="commit",
            startingOffsets="earliest",
            maxOffsetsPerTrigger=30,
        )
        sunk = streams.to_parquet(frame.dropDuplicates(["value"]).select("value"), "q", availableNow=True)
        sunk.finish(TIMEOUT_S)
        assert have(sunk, load.sent), "each value once over all batches and runs"
        done = 40 * (turn + 1)
        assert committed(kafka4, group, load.topic) == {0: done, 1: done}


def test_a_checkpoint_of_sparks_own_connector_goes_on_without_a_group(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    load.send(20)
    frame = read(streams, kafka4, subscribe=load.topic, startingOffsets="earliest")
    streams.to_parquet(frame, "own", availableNow=True).finish(TIMEOUT_S)
    offsets = sorted((streams.home / "own-checkpoint" / "offsets").glob("[0-9]*"), key=lambda p: int(p.name))
    _rewrite(offsets[-1], {load.topic: {"0": 10, "1": 10}})
    new = load.send(20)
    streams.to_parquet(frame, "own", availableNow=True).finish(TIMEOUT_S)
    sunk = streams.to_parquet(frame, "own", availableNow=True)
    sunk.finish(TIMEOUT_S)
    assert have(sunk, load.sent)
    assert new


def _rewrite(file: Path, offset: dict[str, Any]) -> None:
    """As Spark's own connector has it: the last line is the source's offset."""
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:-1], json.dumps(offset)]))
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)


def test_a_self_join_has_all_of_both_sides_and_the_group_shows_no_lag(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    """Two sources of one group in one query: as members each would have half, so it is a query of mode `commit`."""
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    load.send(40)
    options = {"kafka__group__id": "self-join", "group__mode": "commit", "startingOffsets": "earliest"}
    frame = read(streams, kafka4, subscribe=load.topic, **options)
    same = expr("one.partition = other.partition AND one.offset = other.offset")
    sunk = streams.to_parquet(frame.alias("one").join(frame.alias("other"), same).selectExpr("one.value AS value"))
    wait_until(lambda: have(sunk, load.sent), "each record has found itself", TIMEOUT_S)
    load.send(10)
    wait_until(lambda: have(sunk, load.sent), "and so have those that came later", TIMEOUT_S)
    wait_until(lambda: committed(kafka4, "self-join", load.topic) == {0: 25, 1: 25}, "all is committed", TIMEOUT_S)


def test_a_self_join_of_members_is_refused_with_the_option_that_lets_all_sinks_of_the_dataframe_read_everything(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    load.send(20)
    options = {"subscribe": load.topic, "kafka__group__id": "one-dataframe", "startingOffsets": "earliest"}
    same = expr("one.partition = other.partition AND one.offset = other.offset")

    def joined(frame: DataFrame) -> DataFrame:
        return frame.alias("one").join(frame.alias("other"), same).selectExpr("one.value AS value")

    refused = streams.to_parquet(joined(read(streams, kafka4, **options)), "refused", availableNow=True)
    wait_until(lambda: not refused.query.isActive, "the second member is refused", TIMEOUT_S)
    assert "as with format('kafka'), set .option('group.mode', 'off')" in str(refused.query.exception())

    alone = read(streams, kafka4, **options, group__mode="off")
    sinks = [streams.to_parquet(frame, availableNow=True) for frame in (joined(alone), alone)]
    for sunk in sinks:
        sunk.finish(TIMEOUT_S)
        assert have(sunk, load.sent), "each record once, as with Spark's own source"
    assert committed(kafka4, "one-dataframe", load.topic) == {}


def test_a_session_may_let_all_its_streams_read_alone(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4, 1), 1)
    load.send(5)
    options = {"subscribe": load.topic, "kafka__group__id": "session", "startingOffsets": "earliest"}
    alone = Streams(streams.spark.newSession(), streams.home)
    streamgroup.default_mode(alone.spark, "off")
    sinks = [alone.to_parquet(read(alone, kafka4, **options), availableNow=True) for _ in range(2)]
    for sunk in sinks:
        sunk.finish(TIMEOUT_S)
        assert have(sunk, load.sent)
        progress = streamgroup.progress(sunk.query)
        assert progress is not None
        assert progress.sources[0].description == f"streamgroup[Subscribe[{load.topic}], mode=off]"
    assert committed(kafka4, "session", load.topic) == {}


@pytest.mark.long
def test_the_environment_of_the_driver_lets_two_sinks_of_one_dataframe_read_everything_each(
    kafka4: KafkaServer, make_topic: MakeTopic, tmp_path: Path
) -> None:
    load = Load(kafka4, make_topic(kafka4, 2), 2)
    load.send(20)
    argv = [sys.executable, "-m", "tests.spark.two_sinks", kafka4.bootstrap_servers, load.topic, "environment"]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "STREAMGROUP_GROUP_MODE": "off"}
    ran = subprocess.run(
        [*argv, str(tmp_path)], check=False, cwd=ROOT, env=environment, timeout=200, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert json.loads(ran.stdout.splitlines()[-1]) == {"one": 20, "other": 20}
    assert "group.mode is off: STREAMGROUP_GROUP_MODE sets it" in ran.stderr
    assert "environment" not in groups(kafka4)
