"""One Spark session for all tests that a process runs with it; each query has a checkpoint and directory of its own."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from benchmarks.batch_read import connector_jars
from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.servers import older_servers
from tests.spark.class_archive import LAUNCHER, jvm_flags
from tests.spark.submitting import HOOKS
from tests.spark.support import Load, Streams

kafka39, kafka11, kafka010, kafka09, kafka08 = older_servers()

WITHOUT_LINKS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""It writes the same files. The default one asks `readlink` four times for each file of a checkpoint that it renames,
which takes a tenth of a small query's CPU time."""


class Hearing(StreamingQueryListener):
    """Hear that a query has ended."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Ignore it."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Ignore it."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Ignore it."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        self.ended.set()


def warm_up(session: SparkSession, home: Path) -> None:
    """Do once what the first query of a session waits for, so that no test's deadline has to allow for it.

    Spark loads its classes for streams, Parquet and listeners, and starts the processes that it forks Python workers
    from.
    """
    listener = Hearing()
    session.streams.addListener(listener)
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "nobody", "subscribe": "nothing"}
    session.readStream.format("streamgroup").options(**options).load()
    (home / "lines").mkdir()
    (home / "lines" / "one").write_text("a line\n")
    same = udf(lambda line: line, "string", useArrow=False)
    lines = session.readStream.text(str(home / "lines")).select(same("value").alias("value"))
    writer = lines.writeStream.format("parquet").option("checkpointLocation", str(home / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(home / "rows"))
    assert query.awaitTermination(120), "the session does not get warm"
    assert listener.ended.wait(60), "the session's listeners do not get warm"
    session.streams.removeListener(listener)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    home = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        environment.setenv("PYTHONPATH", str(HOOKS), prepend=os.pathsep)
        for name, value in LAUNCHER.items():
            environment.setenv(name, value)
        session = (
            SparkSession.builder.master("local[2]")
            .appName("streamgroup-tests")
            .config("spark.driver.extraJavaOptions", jvm_flags())
            .config("spark.jars", connector_jars())  # Spark's own sink, which this one is compared with
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.network.timeout", "119s")  # for the test that a task finds it
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", str(home / "warehouse"))
            .config("spark.sql.streaming.numRecentProgressUpdates", "200")
            .config("spark.sql.streaming.minBatchesToRetain", "10000")  # tests look at the documents of all batches
            .config("spark.sql.streaming.pollingDelay", "50ms")  # of a query that has nothing to read
            .config("spark.sql.streaming.checkpointFileManagerClass", WITHOUT_LINKS)
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("ERROR")
        warm_up(session, home)
        yield session
        session.stop()


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> Iterator[Streams]:
    """Queries of one test; whatever still runs at its end is stopped."""
    made = Streams(spark, tmp_path)
    yield made
    made.stop_all()


@pytest.fixture
def load(kafka4: KafkaServer, make_topic: MakeTopic) -> Load:
    """Records for a topic of two partitions."""
    return Load(kafka4, make_topic(kafka4, 2), 2)
