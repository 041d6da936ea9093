"""An Airflow DAG that reads the backlog of a consumer group once an hour, by the ingest job (docs/airflow.md).

The job file has `[trigger] available_now = true`: the job reads what is there, commits it, leaves the group and ends.
"""

from __future__ import annotations

from datetime import timedelta

import pendulum
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG

HOME = "/opt/streamgroup"
"""Where the package, its jobs and the job file are, on the worker of Airflow and on the executors of Spark."""

with DAG(
    dag_id="orders_ingest",
    schedule="@hourly",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,  # one run reads everything that has come since the last one
    max_active_runs=1,  # two runs would use one checkpoint
) as dag:
    SparkSubmitOperator(
        task_id="ingest",
        conn_id="spark_default",
        application=f"{HOME}/jobs/ingest.py",
        application_args=["--config", f"{HOME}/conf/orders.toml", "--member", "hourly"],
        env_vars={"PYSPARK_PYTHON": f"{HOME}/bin/python"},
        execution_timeout=timedelta(minutes=50),
        retries=2,  # a run that failed is read again from its checkpoint
        retry_delay=timedelta(minutes=2),
    )
