from __future__ import annotations

import ast
import json
import os
import pickle
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyspark
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import streamgroup
from streamgroup.errors import ConfigError, TransportError
from streamgroup.jobs import executors as module
from streamgroup.jobs import probe, session
from streamgroup.jobs.executors import look_at_executors
from streamgroup.jobs.job_file import SparkSettings
from streamgroup.jobs.session import (
    build_session,
    choose_python,
    refuse_late_settings,
    refuse_token_manager,
    what_is_missing,
)
from streamgroup.spark.parsing.parser import Parser

SUBMITTED = {"PYSPARK_GATEWAY_PORT": "1"}
AVRO_SCHEMA = '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "int"}]}'
HEALTHY = probe.look(0)


def without(*names: str) -> dict[str, str]:
    return {name: value for name, value in HEALTHY.items() if name not in names}


def test_a_python_without_the_package_is_named() -> None:
    look = without("streamgroup", "pyarrow") | {"python": "/usr/bin/python3", "host": "worker-1"}
    message = what_is_missing([HEALTHY, look, look])
    assert message is not None
    version = HEALTHY["python_version"]
    assert message.startswith(
        "cannot run the source on the executors: "
        f"the executor's Python /usr/bin/python3 ({version}) on worker-1 lacks the package streamgroup. "
    )
    assert "set PYSPARK_PYTHON" in message


def test_the_package_of_the_jobs_parser_is_asked_for() -> None:
    needed = (*probe.NEEDED, *Parser("avro", schema=AVRO_SCHEMA).packages)
    assert what_is_missing([probe.look(0, needed)], needed) is None
    message = str(what_is_missing([HEALTHY], needed))
    assert "has streamgroup but cannot import fastavro" in message
    assert Parser("json", schema="id INT").packages == ()


@pytest.mark.parametrize(
    ("looks", "said"),
    [
        ([without("pyarrow")], ["has streamgroup but cannot import pyarrow"]),
        (
            [{**HEALTHY, "streamgroup": "0.0.1"}],
            [f"has streamgroup 0.0.1, but the driver has {streamgroup.__version__}"],
        ),
        ([without("streamgroup") | {"host": host} for host in ("w1", "w2")], ["on w1 lacks", "on w2 lacks"]),
    ],
    ids=["without pyarrow", "another version", "two workers"],
)
def test_every_worker_with_a_problem_is_named(looks: list[dict[str, str]], said: list[str]) -> None:
    message = str(what_is_missing(looks))
    assert all(each in message for each in said)


@pytest.mark.slow
def test_the_probe_runs_where_the_package_is_not_installed(tmp_path: Path) -> None:
    with session._by_value():
        pickled = cloudpickle.dumps(probe.look)
    (tmp_path / "probe.pickle").write_bytes(pickled)
    # -S leaves out what .pth files bring: this package's editable installation. PySpark is there, as on workers.
    program = "import pickle, sys; sys.path.append(sys.argv[2]); print(sorted(pickle.load(open(sys.argv[1], 'rb'))(0)))"
    packages = str(Path(pyspark.__file__).parents[1])
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(tmp_path / "probe.pickle"), packages],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    if (Path(packages) / "streamgroup").exists():
        # An installation that is not editable, as a user may have: this Python cannot stand for a worker without it.
        pytest.skip(
            "streamgroup is installed beside PySpark, so this Python cannot lack it; make venv installs it editable"
        )
    assert "'python'" in ran.stdout
    assert "'streamgroup'" not in ran.stdout


def test_the_probe_is_pickled_by_reference_again_afterwards() -> None:
    with session._by_value():
        pass
    assert len(pickle.dumps(probe.look)) < 100


def test_settings_of_the_jvm_are_refused_once_it_runs() -> None:
    conf = {"spark.driver.memory": "4g", "spark.sql.shuffle.partitions": "2"}
    with pytest.raises(ConfigError, match=r"spark-submit --conf spark.driver.memory=4g …"):
        refuse_late_settings(conf, SUBMITTED)
    with pytest.raises(ConfigError) as refused:
        refuse_late_settings({"spark.driver.extraJavaOptions": "-Djavax.net.ssl.keyStorePassword=hunter2"}, SUBMITTED)
    assert "--conf spark.driver.extraJavaOptions=…" in str(refused.value)
    assert "hunter2" not in str(refused.value)
    refuse_late_settings(conf, {})  # python jobs/ingest.py starts the JVM itself
    refuse_late_settings({"spark.sql.shuffle.partitions": "2"}, SUBMITTED)


def test_the_token_manager_of_sparks_connector_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"cannot use spark\.kafka\.clusters\.a\.x, .*b\.y: .* tokenauth=true"):
        refuse_token_manager({"spark.kafka.clusters.b.y", "spark.app.name", "spark.kafka.clusters.a.x"})
    refuse_token_manager({"spark.kafka.consumer.cache.capacity"})


def test_a_job_with_settings_of_the_token_manager_gets_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(session.PYTHON, sys.executable)
    monkeypatch.setattr(session, "_redaction", lambda conf: {})  # it would start the JVM
    monkeypatch.setattr(session, "SparkSession", None)
    conf = {"spark.kafka.clusters.x.auth.bootstrap.servers": "broker-1:9093"}
    said = r"cannot use spark\.kafka\.clusters\.x\.auth\.bootstrap\.servers: Spark passes"
    with pytest.raises(ConfigError, match=said):
        build_session(SparkSettings("refused", conf))


@pytest.mark.parametrize(
    ("variable", "conf", "chosen"),
    [
        (None, {}, sys.executable),
        (None, {"spark.pyspark.python": "/opt/python"}, "/opt/python"),
        ("/env/python", {"spark.pyspark.python": "/opt/python"}, "/env/python"),
    ],
)
def test_which_python_executors_run(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, conf: dict[str, str], chosen: str
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "x")  # so that it is put back afterwards
    monkeypatch.delenv("PYSPARK_PYTHON")
    if variable is not None:
        monkeypatch.setenv("PYSPARK_PYTHON", variable)
    assert choose_python(conf) == chosen


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ('java.io.IOException: Cannot run program "/opt/py": error=2', ConfigError, "cannot start the Python /opt/py"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker", ConfigError, "is of another version than the driver's"),
        ("Traceback\nModuleNotFoundError: No module named 'pyspark'\n", ConfigError, "No module named 'pyspark'"),
        ("cancelled", TransportError, "no executor has run a task within 300 s"),
    ],
)
def test_why_a_probe_failed(text: str, kind: type[Exception], said: str) -> None:
    timed_out = kind is TransportError
    error = session._probe_error(RuntimeError(text), "/opt/py", timed_out=timed_out, timeout_s=300)
    assert isinstance(error, kind)
    assert said in str(error)
    assert timed_out or "PYSPARK_PYTHON" in str(error) or "Install streamgroup" in str(error)


def test_only_real_local_modes_are_local() -> None:
    masters = ("local", "local[*]", "local[2]", "local-cluster[2,1,1024]", "spark://m:7077", "yarn")
    assert [session._is_local(master) for master in masters] == [True, True, True, False, False, False]


class Driver:
    """`known[n]` executors have registered at the n-th question, the last number from then on."""

    def __init__(self, known: list[int], rounds: list[list[str] | Exception]) -> None:
        self._known, self._rounds = known, rounds
        self.ran = 0
        tracker = SimpleNamespace(getExecutorInfos=self._infos)
        context = SimpleNamespace(sc=lambda: SimpleNamespace(statusTracker=lambda: tracker))
        self.session = cast("SparkSession", SimpleNamespace(sparkContext=SimpleNamespace(_jsc=context), stop=str))

    def _infos(self) -> list[object]:
        count = self._known.pop(0) if len(self._known) > 1 else self._known[0]
        return [object()] * (count + 1)  # the driver is one of them

    def run(self, _: SparkSession, look: Callable[[int], dict[str, str]], timeout_s: float) -> list[dict[str, str]]:
        assert look is probe.look_and_hold
        assert timeout_s >= 1
        self.ran += 1
        parents = self._rounds.pop(0) if len(self._rounds) > 1 else self._rounds[0]
        if isinstance(parents, Exception):
            raise parents
        return [HEALTHY | {"parent": parent} for parent in parents]


def report(monkeypatch: pytest.MonkeyPatch, driver: Driver, seconds: float = 60) -> dict[str, Any]:
    monkeypatch.setattr(module, "run_probe", driver.run)
    return look_at_executors(driver.session, time.monotonic() + seconds)


@pytest.mark.parametrize(
    ("known", "rounds", "reported", "ran"),
    [
        ([2], [["17", "18", "17", "18"]], 2, 1),
        ([1, 2], [["17"], ["17", "18"]], 2, 2),
        ([2], [["17"], TransportError("late")], 1, 2),
    ],
    ids=["tasks of one executor are one result", "an executor registers late", "no time is left for a later round"],
)
def test_tasks_run_until_each_executor_has_run_one(
    monkeypatch: pytest.MonkeyPatch, known: list[int], rounds: list[list[str] | Exception], reported: int, ran: int
) -> None:
    driver = Driver(known, rounds)
    found = report(monkeypatch, driver)
    assert (found["known"], len(found["found"]), found["problem"], driver.ran) == (2, reported, None, ran)


def test_an_executor_that_runs_no_task_is_waited_for_until_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    found = report(monkeypatch, Driver([2], [["17"]]), seconds=probe.HOLD_S + 0.2)
    assert (found["known"], len(found["found"])) == (2, 1)


def test_no_executor_in_time_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TransportError, match="late"):
        report(monkeypatch, Driver([0], [TransportError("late")]))


def test_what_an_executor_lacks_is_the_problem_of_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver([1], [["17"]])
    monkeypatch.setitem(HEALTHY, "streamgroup", "0.0.1")
    assert "has streamgroup 0.0.1" in report(monkeypatch, driver)["problem"]


def test_the_program_writes_an_error_into_its_report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(_: object) -> SparkSession:
        raise ConfigError("cannot use spark.kafka.clusters.a: leave it out")

    monkeypatch.setattr(module, "build_session", refuse)
    monkeypatch.setattr(sys, "argv", ["program.py", str(tmp_path / "report"), "60"])
    module.main()
    written = json.loads((tmp_path / "report").read_text())
    assert written == {"problem": "cannot use spark.kafka.clusters.a: leave it out"}


def test_a_task_reports_its_host_its_python_and_the_version_of_each_package() -> None:
    assert what_is_missing([HEALTHY]) is None
    assert HEALTHY.keys() == {"host", "python", "python_version", *probe.NEEDED}
    assert (HEALTHY["host"], HEALTHY["python"]) == (platform.node(), sys.executable)
    assert HEALTHY["python_version"] == platform.python_version()
    assert HEALTHY["streamgroup"] == streamgroup.__version__


def test_a_package_that_cannot_be_imported_is_left_out_and_the_others_are_reported() -> None:
    found = probe.look(0, ("no_such_package", "streamgroup"))
    assert found.keys() == {"host", "python", "python_version", "streamgroup"}


@pytest.mark.parametrize("error", ["raise RuntimeError('broken')", "import no_such_library", "1 +"])
def test_a_package_whose_installation_is_broken_counts_as_missing(
    error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_package.py").write_text(error)
    monkeypatch.syspath_prepend(tmp_path)
    assert "broken_package" not in probe.look(0, ("broken_package",))


def test_a_package_without_a_version_is_reported_as_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "package_without_version.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert probe.look(0, ("package_without_version",))["package_without_version"] == "unknown"
    finally:
        sys.modules.pop("package_without_version", None)


def test_the_module_imports_the_standard_library_alone_because_an_executor_may_lack_the_package() -> None:
    tree = ast.parse(Path(probe.__file__).read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert imported <= sys.stdlib_module_names
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]


def test_a_held_probe_names_the_process_that_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[float] = []
    monkeypatch.setattr(probe, "time", SimpleNamespace(sleep=held.append))
    assert probe.look_and_hold(0) == HEALTHY | {"parent": str(os.getppid())}
    assert held == [probe.HOLD_S]
