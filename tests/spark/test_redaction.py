"""Spark hides the options of secrets in the plans of SQL, where a job has started the session."""

from __future__ import annotations

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


def explained_by_a_job(*submit: str) -> str:
    """The plan that a job's session shows for SQL with a private key among the options."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    if submit:
        environment["PYSPARK_SUBMIT_ARGS"] = " ".join((*submit, "pyspark-shell"))
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    assert "memory: 500m" in ended.stdout, "the settings of the job file reach the JVM"
    assert "kafka.bootstrap.servers -> 127.0.0.1:1" in ended.stdout, "the plan shows options"
    return ended.stdout


def test_a_job_hides_private_keys_of_views_and_spark_shows_those_of_tables() -> None:
    """`docs/secrets.md` warns of tables: Spark 4.2 redacts no options of CREATE TABLE."""
    explained = explained_by_a_job()
    assert "canary of TEMPORARY VIEW" not in explained
    assert "canary of TABLE" in explained


def test_a_job_leaves_the_users_own_redaction_alone() -> None:
    assert "canary of TEMPORARY VIEW" in explained_by_a_job("--conf", "spark.redaction.regex=mine")
