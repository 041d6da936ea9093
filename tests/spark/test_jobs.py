"""The ingest job as users run it: spark-submit, a process of its own, signals and exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
import venv
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import sqlalchemy as sa
from pyspark.sql import SparkSession

from streamgroup.errors import ConfigError
from streamgroup.jobs import ingest
from streamgroup.jobs.config import load as load_job
from streamgroup.sql.database import open_engine, url_of
from streamgroup.testing import PostgresServer
from streamgroup.testing.kafka07 import Kafka07Server
from streamgroup.testing.zookeeper_mode import zookeeper_client
from tests.cluster07 import Cluster
from tests.collector import collector, sums
from tests.spark.submitting import (
    ROOT,
    SMALL,
    START_S,
    SUBMIT,
    Job,
    ingest_file,
    submitted,
    toml_lines,
    until,
    values,
)
from tests.spark.support import Load, committed, log_ends, rows_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live]

STATIC = {"kafka.group.instance.id": "{member}"}


def configured(home: Path, load: Load, checkpoints: str = "checkpoints") -> Path:
    """The job's file; its directories are relative to where it runs."""
    return ingest_file(home, load, {"kafka.bootstrap.servers": load.server.bootstrap_servers, **STATIC}, checkpoints)


def to_the_group(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM to the JVM, to Python and to whatever else lasts in their process group.

    Not to the programs that Hadoop runs for an instant, such as chmod: without one of them Spark fails the batch.
    """
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            name, _, fields = (path / "stat").read_text().rpartition(")")
            if int(fields.split()[2]) == process.pid and not name.endswith(("jspawnhelper", "chmod")):
                os.kill(int(path.name), signal.SIGTERM)


def to_spark_submit(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM to the JVM alone."""
    process.terminate()


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "send", [to_the_group, pytest.param(to_spark_submit, marks=pytest.mark.long)], ids=lambda send: send.__name__
)
def test_sigterm_drains_the_job(tmp_path: Path, load: Load, send: Callable[[subprocess.Popen[bytes]], None]) -> None:
    load.send(200)
    file = configured(tmp_path, load)
    with collector() as (url, received):
        file.write_text(f'{file.read_text()}\n[metrics]\nport = 0\notlp_endpoint = "{url}"\n')
        with submitted(tmp_path, file, "--member", "a") as job:
            wait_until(lambda: len(values(tmp_path, "a")) >= 120 or job.process.poll() is not None, "batches", START_S)
            assert "streamgroup_rows_total{" in scraped(job)
            load.send(2_000)
            send(job.process)
            assert job.exit_code() == 0, job.log()
    # Spark's own log goes through the same pipe and may begin before the job's line has ended.
    said = "\n".join(job.said())
    assert (tmp_path / "checkpoints" / "a" / "commits" / "0").exists()
    sunk = values(tmp_path, "a")
    offsets = committed(load.server, load.topic, load.topic)
    done = [v for p, end in offsets.items() for v in load.sent[p::2][:end]]
    assert 120 <= len(sunk) < 2_200
    if send is to_the_group and "SIGTERM has ended a command of Hadoop too" in said:
        assert set(done) <= set(sunk), "the query ended at once, and lost nothing"
        return
    assert "SIGTERM: waiting up to 60 s for the batch in flight. Send it again to stop at once" in said
    assert "stopped; nothing will be repeated" in said
    assert sorted(sunk) == sorted(done)
    (rows,) = sums(received, "streamgroup_rows")
    assert 120 <= rows <= len(sunk), "exported as the job ended"


def scraped(job: Job) -> str:
    """Return the page of the job's metrics, at the port that it names."""
    (url,) = re.findall(r"metrics: (http://\S+)", job.log())
    with urllib.request.urlopen(url, timeout=10) as page:
        return str(page.read().decode())


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_job_that_is_drained_from_a_shell_ends_clean(tmp_path: Path, load: Load) -> None:
    load.send(2_000)
    with submitted(tmp_path, configured(tmp_path, load), "--member", "a") as job:
        wait_until(lambda: len(values(tmp_path, "a")) >= 80 or job.process.poll() is not None, "some batches", START_S)
        command = [Path(sys.executable).with_name("streamgroup"), "drain", "--group", load.topic]
        drained = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
        assert drained.returncode == 0, drained.stderr
        assert job.exit_code() == 0, job.log()
    assert f"group {load.topic}: the query was drained, and no batch will be repeated" in "\n".join(job.said())
    sunk = values(tmp_path, "a")
    assert sum(committed(load.server, load.topic, load.topic).values()) == len(sunk) < 2_000


def test_a_directory_that_another_checkpoint_has_written_is_refused(
    tmp_path: Path, load: Load, spark: SparkSession
) -> None:
    """In this process, which saves a start of Spark; the next test has the end of a job that is refused."""
    load.send(10)
    left_behind = tmp_path / "rows" / "a" / "_spark_metadata" / "3"
    left_behind.parent.mkdir(parents=True)
    left_behind.write_text("v1\n")
    file = configured(tmp_path, load)
    file.write_text(re.sub(r'^(path|checkpoint) = "', rf"\g<0>{tmp_path}/", file.read_text(), flags=re.MULTILINE))
    job = load_job(file, "a")
    with pytest.raises(ConfigError) as refused:
        ingest.start(spark, job, ingest.store_of(spark, job))
    assert "rows/a: its _spark_metadata lists batches up to 3, but the checkpoint " in str(refused.value)
    assert "another or a deleted checkpoint has written them" in str(refused.value)
    assert ingest.query_name(job) not in [query.name for query in spark.streams.active]
    assert committed(load.server, load.topic, load.topic) == {}


@pytest.mark.long
@pytest.mark.timeout(240)
def test_a_job_goes_on_where_it_was_and_never_from_another_checkpoint(tmp_path: Path, load: Load) -> None:
    def file(checkpoints: str) -> Path:
        settings = configured(tmp_path, load, checkpoints)
        settings.write_text(settings.read_text().replace("[sink]", "[trigger]\navailable_now = true\n\n[sink]"))
        return settings

    member = {"STREAMGROUP_MEMBER": "b"}
    for _ in range(2):
        load.send(100)
        with submitted(tmp_path, file("checkpoints"), environment=member) as job:
            assert job.exit_code() == 0, job.log()
        assert "the query has ended: it has read the whole backlog" in job.said()
        assert sorted(values(tmp_path, "b")) == sorted(load.sent)
        assert committed(load.server, load.topic, load.topic) == log_ends(load.server, load.topic, 2)

    with submitted(tmp_path, file("elsewhere"), environment=member) as job:
        assert job.exit_code() == 2, job.log()
    (said,) = job.said()
    assert "rows/b: another checkpoint writes into it: " in said
    assert "checkpoints/b (query " in said
    assert sorted(values(tmp_path, "b")) == sorted(load.sent)


def test_an_unknown_key_is_refused_with_the_nearest_one(tmp_path: Path, load: Load) -> None:
    file = configured(tmp_path, load)
    file.write_text(file.read_text().replace("checkpoint =", "chekpoint ="))
    with submitted(tmp_path, file, "--member", "a") as job:
        assert job.exit_code() == 2, job.log()
    assert "unknown key 'chekpoint' in section [sink]. Did you mean 'checkpoint'?" in job.log()
    assert "Traceback" not in job.log()


def test_executors_whose_python_lacks_the_package_are_reported_plainly(tmp_path: Path, load: Load) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    python = str(tmp_path / "bare" / "bin" / "python")
    file = configured(tmp_path, load)
    with submitted(tmp_path, file, "--member", "a", environment={"PYSPARK_PYTHON": python}) as job:
        assert job.exit_code() == 2, job.log()
    (said,) = job.said()
    assert f"the executor's Python {python} (" in said
    assert "lacks the package streamgroup" in said
    assert "PYSPARK_PYTHON" in said
    assert not (tmp_path / "rows").exists()


@pytest.mark.timeout(180)
def test_the_job_that_stores_each_record_once_in_postgresql(
    tmp_path: Path, load: Load, streamgroup_postgres: PostgresServer
) -> None:
    """The job of conf/ingest-postgres.toml but for the addresses, the names of group and topic, and SMALL."""
    url = sa.make_url(streamgroup_postgres.url)
    password = tmp_path / "password"
    password.write_text(f"{url.password}\n")
    replaced = {
        "127.0.0.1:9092": load.server.bootstrap_servers,
        "orders-postgres": load.topic,
        'subscribe = "orders"': f'subscribe = "{load.topic}"',
        "postgresql://127.0.0.1/shop": f"postgresql://{url.host}:{url.port}/{url.database}",
        '"writer"': f'"{url.username}"',
        "/run/secrets/shop-password": str(password),
        'dbtable = "orders"': f'dbtable = "{load.topic}"',
        "[spark.conf]": f"[spark.conf]\n{toml_lines(SMALL)}",
    }
    text = (ROOT / "conf" / "ingest-postgres.toml").read_text()
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "job.toml").write_text(text)
    engine = open_engine(url_of(streamgroup_postgres.url))

    def stored() -> list[str]:
        with engine.connect() as connection:
            if not sa.inspect(connection).has_table(load.topic):
                return []
            return list(connection.execute(sa.text(f'SELECT value FROM "{load.topic}"')).scalars())

    load.send(300)
    with submitted(tmp_path, tmp_path / "job.toml", "--member", "a", hooks=True) as job:
        until(job, lambda: len(stored()) >= 300, "all rows are stored", START_S)
        load.send(2_000)
        to_spark_submit(job.process)
        assert job.exit_code() == 0, job.log()
    assert "stopped; nothing will be repeated" in "\n".join(job.said())
    found = stored()
    assert len(found) == len(set(found) & set(load.sent))
    with engine.connect() as connection:
        select = sa.text("SELECT sum(next_offset) FROM streamgroup_offsets WHERE group_id = :group")
        assert connection.execute(select, {"group": load.topic}).scalar_one() == len(found)
    assert sum(committed(load.server, load.topic, load.topic).values()) == len(found)
    assert str(url.password) not in job.log()
    engine.dispose()


@pytest.mark.long
@pytest.mark.timeout(180)
def test_the_job_that_drains_a_0_7(tmp_path: Path) -> None:
    """Two members share what there is, as conf/drain-0.7.toml has it but for the address, and leave together."""
    with (
        Kafka07Server(brokers=2, config={"num.partitions": 3}) as kafka,
        zookeeper_client(kafka.zookeeper_connect) as client,
    ):
        cluster = Cluster(kafka, client, "drain")
        cluster.topic = "events"
        config = tmp_path / "drain.toml"
        text = (ROOT / "conf" / "drain-0.7.toml").read_text()
        config.write_text(text.replace("127.0.0.1:2181", kafka.zookeeper_connect))
        homes = {member: tmp_path / f"at-{member}" for member in "ab"}
        cluster.send()
        with ExitStack() as running:
            jobs = []
            for member, home in homes.items():
                home.mkdir()
                jobs.append(running.enter_context(submitted(home, config, "--member", member)))

            def until(condition: Callable[[], bool], what: str) -> None:
                def is_over() -> bool:
                    return condition() or any(job.process.poll() is not None for job in jobs)

                wait_until(is_over, what, START_S, every=0.3)

            until(lambda: [len(owned) for owned in cluster.owned().values()] == [3, 3], "they share the partitions")
            cluster.send()
            until(lambda: len(drained(homes)) >= len(cluster.sent), "all is there")
            for job in jobs:
                job.process.terminate()
            for job in jobs:
                assert job.exit_code() == 0, job.log()
                assert "stopped; nothing will be repeated" in "\n".join(job.said())
        rows = drained(homes)
        cluster.check(((partition, value) for _, partition, _, _, value in rows), repeats=0)
        assert {row[0] for row in rows} == homes.keys(), "each has read its share"
        assert len({row[1:4] for row in rows}) == len(rows), "partition, offset and inner index tell rows apart"
        command = [SUBMIT.with_name("streamgroup"), "groups", "-z", kafka.zookeeper_connect, "--json"]
        shown = subprocess.run(
            [*command, "--describe", "--group", "drain"], capture_output=True, timeout=60, check=True
        ).stdout
        assert [row["lag"] for row in json.loads(shown)] == [0] * 6, shown


def drained(homes: Mapping[str, Path]) -> list[tuple[str, int, int, int, str]]:
    """The records that members have written: by which member; partition, offset, inner index and value."""
    columns = "partition", "offset", "inner", "value"
    return [
        (member, partition, offset, inner, value)
        for member, home in homes.items()
        for partition, offset, inner, value in rows_of(home / "demo-output" / "drain" / "rows" / member, *columns)
    ]
