"""The session that a job starts: Spark hides options of secrets in plans, and its own token manager is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(180)]

PROGRAM = """
from streamgroup.jobs.job_file import SparkSettings
from streamgroup.jobs.session import build_session

conf = {"spark.master": "local[1]", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false", "spark.driver.memory": "500m"}
spark = build_session(SparkSettings("redaction", conf))
for kind in ("TEMPORARY VIEW", "TABLE"):
    options = f"`kafka.bootstrap.servers` '127.0.0.1:1', subscribe 't', `kafka.ssl.keystore.key` 'canary of {kind}'"
    statement = f"EXPLAIN EXTENDED CREATE {kind} v USING streamgroup OPTIONS ({options})"
    print(spark.sql(statement).collect()[0][0])
print("memory:", spark.conf.get("spark.driver.memory"))
spark.stop()
"""


REFUSED = """
import json, sys
from streamgroup.errors import ConfigError
from streamgroup.jobs.job_file import SparkSettings
from streamgroup.jobs.session import build_session
from pyspark import SparkContext

conf = {"spark.master": "local[1]", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false"}
try:
    build_session(SparkSettings("refused", {**conf, **json.loads(sys.argv[1])}))
except ConfigError as error:
    print("refused:", error, "context:", SparkContext._active_spark_context)
"""
CLUSTER = "spark.kafka.clusters.x.auth.bootstrap.servers"


def ran_by_a_job(program: str, *arguments: str, submit: tuple[str, ...] = ()) -> str:
    """Run a program in a Python of its own, with options of spark-submit for its JVM. Return its output."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    if submit:
        environment["PYSPARK_SUBMIT_ARGS"] = " ".join((*submit, "pyspark-shell"))
    argv = [sys.executable, "-c", program, *arguments]
    ended = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr[-4000:]
    return ended.stdout


def explained_by_a_job(*submit: str) -> str:
    """The plan that a job's session shows for SQL with a private key among the options."""
    shown = ran_by_a_job(PROGRAM, submit=submit)
    assert "memory: 500m" in shown, "the settings of the job file reach the JVM"
    assert "kafka.bootstrap.servers -> 127.0.0.1:1" in shown, "the plan shows options"
    return shown


def test_a_job_hides_private_keys_of_views_and_spark_shows_those_of_tables() -> None:
    """`docs/secrets.md` warns of tables: Spark 4.2 redacts no options of CREATE TABLE."""
    explained = explained_by_a_job()
    assert "canary of TEMPORARY VIEW" not in explained
    assert "canary of TABLE" in explained


def test_a_job_leaves_the_users_own_redaction_alone() -> None:
    assert "canary of TEMPORARY VIEW" in explained_by_a_job("--conf", "spark.redaction.regex=mine")


@pytest.mark.parametrize(
    ("conf", "submit"),
    [({CLUSTER: "broker-1:9093"}, ()), ({}, ("--conf", f"{CLUSTER}=broker-1:9093"))],
    ids=["in the job file", "by spark-submit"],
)
def test_a_job_refuses_the_token_manager_of_sparks_connector(conf: dict[str, str], submit: tuple[str, ...]) -> None:
    said = ran_by_a_job(REFUSED, json.dumps(conf), submit=submit)
    assert f"refused: cannot use {CLUSTER}: Spark passes these delegation tokens only to Java classes" in said
    assert "context: None" in said, "no session has begun"
