"""The source that Spark finds by the name streamgroup, without a Spark."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StringType, StructField, StructType

import streamgroup
from pyspark_streamgroup import DefaultSource
from streamgroup.coordinator import log_output
from streamgroup.coordinator.planning.document import from_value
from streamgroup.errors import ConfigError
from streamgroup.model import INITIAL_DOCUMENT, FetchRange, FetchTask, OffsetRange, TopicPartition
from streamgroup.options.types import LimitOptions
from streamgroup.spark.source import (
    UNLIMITED,
    AloneByDefault,
    GroupBatchReader,
    GroupStreamReader,
    StreamGroupDataSource,
    require_pyspark,
    row_schema,
)
from streamgroup.spark.tables import OPTIONS_KEY, table_options, with_table_options
from streamgroup.spark.tasks import TaskPartition

STREAM = {"kafka.bootstrap.servers": "localhost:1", "kafka.group.id": "g", "subscribe": "t"}


def test_only_an_older_pyspark_is_refused() -> None:
    for version in ("4.2.0", "4.3.0.dev1", "5.0.0"):
        require_pyspark(version)
    for version in ("3.5.1", "4.0.0", "4.1.2"):
        with pytest.raises(ConfigError, match=f"cannot limit batches with PySpark {version}: .* 4.2 or newer"):
            require_pyspark(version)


HEADERS = "headers:array<struct<key:string,value:binary>>"


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ({"includeHeaders": "false"}, []),
        ({"includeHeaders": " TRUE "}, [HEADERS]),
        ({"includeInnerIndex": "true", "includeHeaders": "true"}, [HEADERS, "inner:int"]),
        ({"includeDamagedBatches": "true", "includeInnerIndex": "true"}, ["inner:int", "damage:string"]),
    ],
)
@pytest.mark.parametrize("is_table", [False, True], ids=["load", "table"])
def test_some_columns_are_there_only_if_options_ask_for_them(
    given: dict[str, str], added: list[str], is_table: bool
) -> None:
    source = DefaultSource(TABLE | created(**given) if is_table else {**STREAM, **given})
    assert [field.simpleString() for field in source.schema().fields[7:]] == added


def test_a_schema_of_ones_own_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"fixed schema.*key:binary,value:binary.*headers:array.*Remove .schema"):
        DefaultSource({**STREAM, "includeHeaders": "true"}).reader(ROWS)
    with pytest.raises(ConfigError, match=r"fixed schema.*Remove .schema"):
        DefaultSource(dict(STREAM)).streamReader(ROWS).initialOffset()


@pytest.mark.parametrize("wrong", [{"startingOfsets": "latest"}, {"includeHeaders": "yes"}, {"subscribe": ""}])
def test_options_that_are_always_wrong_fail_when_spark_asks_for_the_schema_in_load(wrong: dict[str, str]) -> None:
    (name,) = wrong
    with pytest.raises(ConfigError, match=f"^(unknown option '{name}'|invalid value .* for option {name}:)"):
        DefaultSource({**STREAM, **wrong}).schema()


def test_options_that_a_batch_read_may_have_fail_in_the_first_call_of_a_streams_reader() -> None:
    source = DefaultSource({**STREAM, "endingOffsets": "latest"})
    assert source.schema() == row_schema(False)
    source.reader(row_schema(False))
    reader = pickle.loads(pickle.dumps(source.streamReader(row_schema(False))))
    assert isinstance(reader, SupportsTriggerAvailableNow)
    calls: list[Callable[[], Any]] = [
        reader.initialOffset,
        reader.getDefaultReadLimit,
        reader.prepareForTriggerAvailableNow,
        lambda: reader.latestOffset({}, ReadAllAvailable()),
        lambda: reader.partitions({}, {}),
    ]
    for call in calls:
        with pytest.raises(ConfigError, match=r"^cannot use option endingOffsets: a stream has no end"):
            call()
    reader.stop()  # PySpark's runner calls it after any error: a second one would hide the first


def test_spark_finds_the_source_where_the_checkout_is_not_the_current_directory(tmp_path: Path) -> None:
    """PySpark looks as here, in a process of its own; an editable install may be hidden from it."""
    look = "import pkgutil; print(*(m.name for m in pkgutil.iter_modules() if m.name.startswith('pyspark_')))"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", look]
    found = subprocess.check_output(command, cwd=tmp_path, env=environment, text=True, timeout=30)
    assert "pyspark_streamgroup" in found.split()


def test_a_reader_travels_to_the_executors_without_its_coordinator() -> None:
    reader = DefaultSource(dict(STREAM)).streamReader(row_schema(False))
    assert isinstance(reader, GroupStreamReader)
    copied = pickle.loads(pickle.dumps(reader))
    assert copied.__getstate__() == reader.__getstate__()
    assert copied.__getstate__()["_coordinator"] is None


def modes(options: dict[str, str], made_by: type[DefaultSource] = DefaultSource) -> list[str]:
    """The mode of a stream's coordinator, behind the pickles of Spark's two processes."""
    planner = pickle.loads(pickle.dumps(made_by(options)))
    reader = planner.streamReader(row_schema(False))
    assert isinstance(reader, GroupStreamReader)
    group = pickle.loads(pickle.dumps(reader))._options.group
    return [group.mode.value, group.group_id]


def test_the_environment_of_the_driver_gives_all_streams_with_a_group_another_mode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert modes(dict(STREAM)) == ["member", "g"]
    monkeypatch.setenv("STREAMGROUP_GROUP_MODE", "off")
    assert modes(dict(STREAM)) == ["off", ""]
    assert modes({**STREAM, "group.mode": "commit"}) == ["commit", "g"]


def test_the_mode_is_the_one_of_the_environment_in_which_spark_made_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMGROUP_GROUP_MODE", "off")
    source = pickle.dumps(DefaultSource(dict(STREAM)))
    monkeypatch.delenv("STREAMGROUP_GROUP_MODE")
    reader = pickle.loads(source).streamReader(row_schema(False))
    assert (reader._options.group.mode.value, reader._options.notes[-1]) == (
        "off",
        "group.mode is off: STREAMGROUP_GROUP_MODE sets it",
    )


def test_a_wrong_mode_in_the_environment_fails_streams_and_not_batch_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMGROUP_GROUP_MODE", "alone")
    source = DefaultSource(dict(STREAM))
    with pytest.raises(ConfigError, match="invalid value 'alone' for the environment variable STREAMGROUP_GROUP_MODE"):
        source.streamReader(row_schema(False)).initialOffset()
    source.reader(row_schema(False))


OLD = {"zookeeper.connect": "localhost:2181", "zookeeper.username": "bob", "zookeeper.password": "canary"}


@pytest.mark.parametrize("method", ["reader", "streamReader"])
def test_no_secret_travels_to_the_executors(method: str) -> None:
    """Spark pickles the reader into each task, and the source with it."""
    source = DefaultSource({**OLD, "subscribe": "t", "sfLogin": "canary of another source"})
    planner = pickle.loads(pickle.dumps(source))
    assert planner.options["zookeeper.password"] == "canary", "who plans needs it"
    reader = getattr(planner, method)(row_schema(False))
    travels = pickle.dumps((reader, planner))
    assert b"canary" not in travels
    assert b"2181" not in pickle.dumps(reader)
    assert planner.options["zookeeper.password"] == "canary"


WRITE = {"kafka.bootstrap.servers": "localhost:9092", "topic": "t"}
ROWS = StructType([StructField("value", StringType())])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({**WRITE, "verify": "true"}, "cannot write with verify=true"),
        ({**WRITE, "kafka.acks": "7"}, "kafka.acks"),
        ({}, r"cannot write into a table of format streamgroup without options: .* INSERT INTO <table> WITH"),
    ],
)
def test_a_write_that_cannot_be_is_refused_by_batch_and_stream(options: dict[str, str], said: str) -> None:
    for method in ("writer", "streamWriter"):
        with pytest.raises(ConfigError, match=said):
            getattr(DefaultSource(dict(options)), method)(ROWS, overwrite=False)


def test_a_topic_is_not_overwritten() -> None:
    with pytest.raises(ConfigError, match="cannot overwrite a topic"):
        DefaultSource(dict(WRITE)).writer(ROWS, overwrite=True)


class Session:
    """A session that keeps the source registered last."""

    def __init__(self) -> None:
        self.dataSource = self

    def register(self, source: type[DefaultSource]) -> None:
        self.source = pickle.loads(pyspark.cloudpickle.dumps(source))  # as PySpark sends it to its workers


def test_a_session_may_have_another_default_than_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    session: Any = Session()
    monkeypatch.setenv("STREAMGROUP_GROUP_MODE", "member")
    streamgroup.default_mode(session, " OFF ")
    assert session.source.name() == "streamgroup"
    assert modes(dict(STREAM), session.source) == ["off", ""]
    assert modes({**STREAM, "GROUP.mode": "member"}, session.source) == ["member", "g"]
    streamgroup.default_mode(session, "member")
    assert session.source.name() == "streamgroup"
    assert modes(dict(STREAM), session.source) == ["member", "g"]
    with pytest.raises(
        ConfigError, match=r"invalid value 'commit' for the mode of streamgroup\.default_mode: expected off"
    ):
        streamgroup.default_mode(session, "commit")


def test_the_log_of_a_stream_names_the_call_that_has_set_its_mode_and_a_batch_read_has_none() -> None:
    source = AloneByDefault(dict(STREAM))
    stream: Any = source.streamReader(row_schema(False))
    batch: Any = source.reader(row_schema(False))
    assert stream._options.notes[-1] == "group.mode is off: streamgroup.default_mode sets it"
    assert [note for note in batch._options.notes if "group.mode" in note] == []


class FakeCoordinator:
    """The query's coordinator as the reader calls it: a list of the calls is all that its tests look at."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def prepare_available_now(self) -> None:
        self.calls.append("prepare")

    def latest_offset(self, start: dict[str, Any], *, limits: LimitOptions, once: bool = False) -> dict[str, Any]:
        self.calls.append((limits, once))
        return start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[FetchTask]:
        return [FetchTask((FetchRange(OffsetRange(TopicPartition("t", 0), 1, 5), None),))]

    def stop(self) -> None:
        self.calls.append("stop")


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> FakeCoordinator:
    made = FakeCoordinator()
    monkeypatch.setattr("streamgroup.coordinator.process.start_coordinator", lambda options: made)
    return made


def stream(**options: str) -> GroupStreamReader:
    reader = StreamGroupDataSource({**STREAM, **options}).streamReader(row_schema(False))
    assert isinstance(reader, GroupStreamReader)
    return reader


def test_each_trigger_has_its_own_limits(coordinator: FakeCoordinator) -> None:
    assert stream(maxOffsetsPerTrigger="7").getDefaultReadLimit() == ReadMaxRows(7)
    reader = stream()
    assert reader.getDefaultReadLimit() == ReadMaxRows(UNLIMITED)
    reader.prepareForTriggerAvailableNow()
    for limit in (ReadMaxRows(7), ReadMaxRows(UNLIMITED), ReadAllAvailable()):
        assert reader.latestOffset({"a": 1}, limit) == {"a": 1}
    assert coordinator.calls == ["prepare", (LimitOptions(7), False), (LimitOptions(), False), (LimitOptions(), True)]
    with pytest.raises(ConfigError, match="maxOffsetsPerTrigger"):
        reader.latestOffset({}, ReadMinRows(5))


def test_the_first_offset_is_a_constant_that_needs_no_coordinator(coordinator: FakeCoordinator) -> None:
    reader = stream()
    assert from_value(reader.initialOffset()) == INITIAL_DOCUMENT
    assert reader.initialOffset() == stream().initialOffset()
    reader.commit({})
    reader.stop()
    assert coordinator.calls == []


def test_the_coordinator_is_stopped_once_and_only_where_it_lives(coordinator: FakeCoordinator) -> None:
    reader = stream()
    reader.latestOffset({}, ReadMaxRows(1))
    pickle.loads(pickle.dumps(reader)).stop()
    assert coordinator.calls == [(LimitOptions(1), False)]
    reader.stop()
    reader.stop()
    assert coordinator.calls == [(LimitOptions(1), False), "stop"]


def test_tasks_travel_as_partitions_that_name_their_ranges(coordinator: FakeCoordinator) -> None:
    (partition,) = stream().partitions({}, {})
    again = pickle.loads(pickle.dumps(partition))
    assert isinstance(again, TaskPartition)
    assert repr(again) == "TaskPartition(t-0[1, 5))"
    assert len(again.task) == 4


def test_a_partition_of_another_source_is_refused() -> None:
    reader = StreamGroupDataSource(READ).reader(row_schema(False))
    with pytest.raises(ConfigError, match="not a partition of streamgroup"):
        reader.read(object())  # type: ignore[arg-type]


def test_a_batch_read_of_nothing_is_one_task_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamgroup.coordinator.batch_read.plan_batch", lambda options: [])
    (partition,) = StreamGroupDataSource(READ).reader(row_schema(False)).partitions()
    assert isinstance(partition, TaskPartition)
    assert partition.task == FetchTask(())


def test_the_plan_of_a_batch_read_is_logged_to_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has set up logging in the process where Spark plans a batch read."""
    with monkeypatch.context() as patched:  # pytest's own handlers are back before it takes them away
        logger = logging.Logger("streamgroup")
        patched.setattr(log_output, "log", logger)
        patched.setattr(logging.getLogger(), "handlers", [])
        patched.setattr("streamgroup.coordinator.batch_read.plan_batch", lambda options: [])
        StreamGroupDataSource(READ).reader(row_schema(False)).partitions()
    assert [type(handler) for handler in logger.handlers] == [log_output.StderrHandler]


KAFKAS = "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int"


def test_the_schema_is_that_of_sparks_own_source() -> None:
    assert row_schema(False).simpleString() == KAFKAS + ">"
    assert row_schema(True).simpleString() == KAFKAS + ",headers:array<struct<key:string,value:binary>>>"
    assert all(field.nullable for field in row_schema(True).fields)


def test_the_nullability_of_columns_does_not_matter_for_the_schema() -> None:
    strict = StructType([StructField(f.name, f.dataType, nullable=False) for f in row_schema(False).fields])
    assert isinstance(StreamGroupDataSource(READ).reader(strict), GroupBatchReader)


READ = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "startingOffsets": "earliest"}


def created(**options: str) -> dict[str, str]:
    """The options that Spark 4.2 passes for CREATE TABLE … USING StreamGroup OPTIONS (…) TBLPROPERTIES ('p' = 'q')."""
    table = {"provider": "StreamGroup", "owner": "root", "comment": "c", "p": "q", "path": "file:/warehouse/t"}
    given = {name.replace("__", "."): text for name, text in options.items()}
    return table | given | {f"option.{name}": text for name, text in given.items()}


TABLE = created(kafka__bootstrap__servers="localhost:1", subscribe="t", startingOffsets="earliest")


def test_a_table_keeps_its_options_for_the_reads_from_it() -> None:
    schema = DefaultSource(TABLE).schema()
    assert [(f.name, f.dataType) for f in schema] == [(f.name, f.dataType) for f in row_schema(False)]
    stored = StructType.fromJson(schema.jsonValue())  # as Spark's catalog stores it
    batch = DefaultSource({}).reader(stored)._options
    stream = DefaultSource({}).streamReader(stored)._options
    assert batch == DefaultSource(dict(READ)).reader(row_schema(False))._options
    assert stream == DefaultSource(dict(READ)).streamReader(row_schema(False))._options


def test_the_options_of_a_statement_take_precedence_over_those_of_its_table() -> None:
    schema = DefaultSource(TABLE).schema()
    options = DefaultSource({"Subscribe": "other"}).reader(schema)._options
    assert (options.subscription.topics, options.client.bootstrap_servers) == (("other",), (("localhost", 1),))


def test_an_ordinary_load_has_a_schema_without_metadata() -> None:
    assert [f.metadata for f in DefaultSource(dict(READ)).schema()] == [{}] * 7
    assert table_options({**READ, "owner": "root"}, "streamgroup") is None
    assert table_options({**READ, "provider": "kafka", "owner": "root"}, "streamgroup") is None


def test_wrong_options_fail_when_the_table_is_created() -> None:
    with pytest.raises(ConfigError, match=r"^kafka\.bootstrap\.servers is required"):
        DefaultSource(created(subscribe="t")).schema()


def test_a_table_without_options_takes_those_of_each_statement() -> None:
    schema = DefaultSource(created()).schema()
    assert schema == row_schema(False)
    assert DefaultSource(dict(READ)).reader(schema)._options.subscription.topics == ("t",)
    said = r"cannot read a table of format streamgroup without options: .* SELECT \* FROM <table> WITH"
    with pytest.raises(ConfigError, match=said):
        DefaultSource({}).reader(schema)


SECURED = TABLE | created(kafka__security__protocol="SSL", kafka__ssl__keystore__location="/k.p12")


def test_a_secret_is_not_kept_in_a_table_where_all_its_readers_would_see_it_but_a_reference_is() -> None:
    with pytest.raises(ConfigError, match=r"cannot store option kafka.ssl.keystore.password in a table") as refused:
        DefaultSource(SECURED | created(kafka__ssl__keystore__password="canary")).schema()
    assert "canary" not in str(refused.value)
    schema = DefaultSource(SECURED | created(kafka__ssl__keystore__password="env:STORE")).schema()
    assert "env:STORE" in schema.fields[0].metadata[OPTIONS_KEY]


def test_an_unknown_option_is_not_kept_in_a_table() -> None:
    schema = with_table_options(row_schema(False), {"api.key": "canary", "subscribe": "t"})
    assert schema.fields[0].metadata[OPTIONS_KEY] == '{"subscribe": "t"}'
    assert with_table_options(row_schema(False), {"api.key": "canary"}) == row_schema(False)
