"""The Spark session of a job, and the check that its executors can run the source."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext, cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import streamgroup
from streamgroup.errors import ConfigError, StreamGroupError, TransportError
from streamgroup.jobs import probe
from streamgroup.jobs.job_file import SparkSettings
from streamgroup.options.sasl import TOKEN_MANAGER, TOKEN_MANAGER_HINT
from streamgroup.options.secrets import REDACTION_REGEX, has_secret

log = logging.getLogger("streamgroup.jobs")

PYTHON = "PYSPARK_PYTHON"
PYTHON_SETTING = "spark.pyspark.python"
REDACTION = "spark.redaction.regex"
EXECUTORS_TIMEOUT_S = 300.0

_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""The variable that spark-submit sets, whose JVM starts before Python."""
_JVM_SETTINGS = (
    "spark.driver.memory",
    "spark.driver.extraClassPath",
    "spark.driver.extraJavaOptions",
    "spark.driver.extraLibraryPath",
    "spark.driver.defaultJavaOptions",
    "spark.jars.packages",
    "spark.jars.excludes",
    "spark.jars.ivy",
    "spark.jars.repositories",
    "spark.submit.deployMode",
    "spark.submit.pyFiles",
)
"""Settings that take effect only when Spark's JVM starts."""
_EXECUTOR_SIDE = "Install streamgroup, with pyarrow, for the Python that the executors run"
_PACKED = "ship a packed environment with spark.archives (docs/clusters.md)"


def build_session(settings: SparkSettings, environment: Mapping[str, str] | None = None) -> SparkSession:
    """Return the session, with the source registered. Sets PYSPARK_PYTHON to this Python unless it is set.

    Raises ConfigError for settings that have no effect because spark-submit has started the JVM already.
    """
    refuse_late_settings(settings.conf, os.environ if environment is None else environment)
    choose_python(settings.conf)
    redaction = _redaction(settings.conf)
    refuse_token_manager({*settings.conf, *(name for name, _ in SparkConf().getAll())})
    builder: Any = SparkSession.builder.appName(settings.app_name)
    for name, value in {**redaction, **settings.conf}.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    _register(spark)
    return spark


def _redaction(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the setting that hides all secret options in Spark's UI and logs, unless the user has set another one.

    The user's own setting may come from spark-submit or spark-defaults.conf, which only Spark's JVM has read. So this
    starts the JVM, with the settings `conf` that it needs then.
    """
    launch: Any = SparkConf()
    for name, value in conf.items():
        launch = launch.set(name, value)
    SparkContext._ensure_initialized(conf=launch)
    return {} if SparkConf().contains(REDACTION) else {REDACTION: REDACTION_REGEX}


def refuse_token_manager(names: Collection[str]) -> None:
    """Raise ConfigError for settings of the manager of delegation tokens in Spark's Kafka connector."""
    of_clusters = sorted(name for name in names if name.startswith(TOKEN_MANAGER))
    if of_clusters:
        raise ConfigError(f"cannot use {', '.join(of_clusters)}: {TOKEN_MANAGER_HINT} (docs/security.md)")


def refuse_late_settings(conf: Mapping[str, str], environment: Mapping[str, str]) -> None:
    """Raise ConfigError for settings that have no effect once the JVM runs."""
    late = [name for name in _JVM_SETTINGS if name in conf]
    if late and _SUBMITTED in environment:
        shown = {name: "…" if has_secret(f"{name}={conf[name]}") else conf[name] for name in late}
        options = " ".join(f"--conf {name}={value}" for name, value in shown.items())
        raise ConfigError(
            f"cannot set {', '.join(late)} in [spark.conf]: spark-submit has started its JVM before the job file was "
            f"read. Set it on the command line: spark-submit {options} …"
        )


def choose_python(conf: Mapping[str, str]) -> str:
    """Set and return the executors' Python: PYSPARK_PYTHON, else `spark.pyspark.python`, else this Python.

    PySpark reads the variable when it creates its context. Without spark-submit the setting alone has no effect (tested
    with 4.2). Without both, Spark would start the first `python3` on each worker's PATH.
    """
    return os.environ.setdefault(PYTHON, conf.get(PYTHON_SETTING, sys.executable))


def _register(spark: SparkSession) -> None:
    """Register the source with this session.

    Spark's own discovery runs the JVM's `python3`, which may be another one, without the package.
    """
    from pyspark_streamgroup import DefaultSource  # noqa: PLC0415  (the session's Python must be chosen first)

    spark.dataSource.register(DefaultSource)


def check_executors(spark: SparkSession, packages: Sequence[str] = (), timeout_s: float = EXECUTORS_TIMEOUT_S) -> None:
    """Run tasks on the executors that import what the source needs, and `packages`. Raises ConfigError if one cannot.

    Local mode with this same Python needs no check. Raises TransportError if no executor runs a task in `timeout_s`.
    """
    if _is_local(str(spark.sparkContext.master)) and os.environ[PYTHON] == sys.executable:
        return
    needed = (*probe.NEEDED, *packages)
    problem = what_is_missing(run_probe(spark, partial(probe.look, packages=needed), timeout_s), needed)
    if problem is not None:
        raise ConfigError(problem)


def run_probe(spark: SparkSession, look: Callable[[int], dict[str, str]], timeout_s: float) -> list[dict[str, str]]:
    """Run `look`, a function of the probe, in a task for each core, and return the results.

    Raises ConfigError if a task cannot run, and TransportError if the tasks have not run after `timeout_s`.
    """
    context = spark.sparkContext
    python = os.environ[PYTHON]
    tasks = max(2, context.defaultParallelism)
    group = f"streamgroup-executors-{uuid.uuid4()}"
    timer = threading.Timer(timeout_s, context.cancelJobGroup, [group])
    timer.daemon = True
    context.setJobGroup(group, "streamgroup: check the executors' Python", interruptOnCancel=True)
    timer.start()
    try:
        with _by_value():
            return list(context.parallelize(range(tasks), tasks).map(look).collect())
    except (Py4JError, PySparkException) as error:
        raise _probe_error(error, python, timed_out=not timer.is_alive(), timeout_s=timeout_s) from None
    finally:
        timer.cancel()
        context.setLocalProperty("spark.jobGroup.id", "")
        context.setLocalProperty("spark.job.description", "")


@contextlib.contextmanager
def _by_value() -> Iterator[None]:
    """Pickle the probe by value, because an executor without the package could not unpickle a reference to it."""
    cloudpickle.register_pickle_by_value(probe)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(probe)  # type: ignore[no-untyped-call]


def what_is_missing(found: Iterable[Mapping[str, str]], needed: Sequence[str] = probe.NEEDED) -> str | None:
    """Return the error for packages that the executors' Pythons lack, from the results of the probe, or None."""
    problems: dict[str, None] = {}
    for look in found:
        where = f"the executor's Python {look['python']} ({look['python_version']}) on {look['host']}"
        absent = [name for name in needed if name not in look]
        if "streamgroup" in absent:
            problems[f"{where} lacks the package streamgroup"] = None
        elif absent:
            problems[f"{where} has streamgroup but cannot import {', '.join(absent)}"] = None
        elif look["streamgroup"] != streamgroup.__version__:
            theirs = look["streamgroup"]
            problems[f"{where} has streamgroup {theirs}, but the driver has {streamgroup.__version__}"] = None
    if not problems:
        return None
    return (
        f"cannot run the source on the executors: {'; '.join(problems)}. {_EXECUTOR_SIDE} in the driver's version, "
        f"set {PYTHON} or {PYTHON_SETTING} to a Python on the workers that has it, or {_PACKED}"
    )


def _probe_error(error: Exception, python: str, *, timed_out: bool, timeout_s: float) -> StreamGroupError:
    text = str(error)
    if timed_out:
        return TransportError(
            f"cannot check the executors: no executor has run a task within {timeout_s:.0f} s. Check in the master's "
            "web UI that workers are registered and have free cores and memory"
        )
    if "Cannot run program" in text:
        return ConfigError(
            f"the executors cannot start the Python {python}: the file does not exist on them. {_EXECUTOR_SIDE}, and "
            f"set {PYTHON} to its path on the workers, or {_PACKED}"
        )
    if "PYTHON_VERSION_MISMATCH" in text:
        ours = ".".join(map(str, sys.version_info[:2]))
        return ConfigError(
            f"the executors' Python {python} is of another version than the driver's ({ours}, {sys.executable}). Set "
            f"{PYTHON} to a Python of the driver's minor version that has streamgroup"
        )
    first = next((line for line in reversed(text.splitlines()) if "Error" in line or "Exception" in line), text[:300])
    return ConfigError(f"the executors' Python {python} cannot run a task: {first.strip()}. {_EXECUTOR_SIDE}")


def _is_local(master: str) -> bool:
    return master.startswith("local") and not master.startswith("local-cluster")
