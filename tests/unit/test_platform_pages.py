"""Checks the pages of EMR, Databricks and Airflow without these platforms, and the names of wheels on all pages."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from streamgroup.jobs.ingest import command as ingest
from tests.wheels import TAG, version
from tools.symbols import symbols

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MARK = re.compile(r"^\*\*(Tried|Not tried)\.\*\* ", re.MULTILINE)
TRIED = ("migrate-from-spark", "security", "kerberos", "old-brokers", "clusters", "connect")
NOT_TRIED = ("kubernetes-yarn", "emr", "databricks", "airflow")


def parameters(arguments: list[str]) -> dict[str, Any]:
    """What the ingest job's own parser makes of arguments; the file need not exist."""
    with ingest.make_context("ingest", list(arguments)) as context:
        return context.params


# --- the marks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", TRIED + NOT_TRIED)
def test_a_page_says_whether_it_was_tried_and_by_what(page: str) -> None:
    text = (DOCS / f"{page}.md").read_text()
    (mark,) = MARK.findall(text)
    assert mark == ("Tried" if page in TRIED else "Not tried")
    said = text[text.index(f"**{mark}.**") :].partition("\n\n")[0]
    files = [symbols().test_called(name).path for name in re.findall(r"`(test_[\w…]+)`", said)]
    assert files, "name the tests"
    assert not (page in TRIED and any(file.startswith("tests/unit/") for file in files)), "they try no real cluster"


# --- wheels ----------------------------------------------------------------------------------------------------------


def wheels_in(text: str) -> list[str]:
    """The names of wheels of streamgroup in a text."""
    return re.findall(r"streamgroup-\d[^\s/\"'`]*\.whl", text)


def is_published(wheel: str) -> bool:
    """Whether `make wheel` may build a wheel of this name: of this version, and not for this machine alone."""
    return wheel.startswith(f"streamgroup-{version()}-") and TAG.search(wheel) is not None


@pytest.mark.parametrize("page", [*sorted(DOCS.glob("*.md")), ROOT / "README.md"], ids=lambda page: page.name)
def test_a_page_names_wheels_of_this_version_that_are_published(page: Path) -> None:
    assert [wheel for wheel in wheels_in(page.read_text()) if not is_published(wheel)] == []


def test_the_wheel_of_another_version_or_of_one_machine_is_noticed() -> None:
    named = [f"streamgroup-{version()}-cp311-abi3-linux_x86_64.whl", "streamgroup-0.0.1-cp311-abi3-manylinux2014.whl"]
    assert wheels_in(f"pip install /tmp/{named[0]}\nWHEEL='{named[1]}'\n") == named
    assert not any(map(is_published, named))


# --- EMR -------------------------------------------------------------------------------------------------------------


def test_the_job_of_emr_serverless_has_valid_arguments_and_one_python_from_its_archive() -> None:
    (block,) = re.findall(r"^```json\n(.*?)^```", (DOCS / "emr.md").read_text(), re.MULTILINE | re.DOTALL)
    driver = json.loads(block)["sparkSubmit"]
    assert parameters(driver["entryPointArguments"]) == {
        "file": Path("ingest.toml"),
        "member": "a",
        "check": False,
        "print_config": False,
    }
    words = shlex.split(driver["sparkSubmitParameters"])
    assert words[::2] == ["--conf"] * (len(words) // 2)
    settings = dict(word.split("=", 1) for word in words[1::2])
    directory = settings["spark.archives"].partition("#")[2]
    pythons = {value for name, value in settings.items() if name.endswith("_PYTHON")}
    assert pythons == {f"./{directory}/bin/python"}
    assert settings["spark.files"].endswith(f"/{driver['entryPointArguments'][1]}")
    assert {name.rpartition(".")[2] for name in settings if "driverEnv" in name} == {
        "PYSPARK_PYTHON",
        "PYSPARK_DRIVER_PYTHON",
    }


# --- Airflow ---------------------------------------------------------------------------------------------------------


class Dag:
    """Keeps what the DAG's file gives to Airflow."""

    made: ClassVar[list[dict[str, Any]]] = []

    def __init__(self, **settings: Any) -> None:
        self.made.append(settings)

    def __enter__(self) -> Dag:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> None:
    """Put a module of this name, and the packages that it is in, where an import finds them."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        monkeypatch.setitem(sys.modules, ".".join(parts[:end]), ModuleType(".".join(parts[:end])))
    vars(sys.modules[name]).update(content)


def test_the_dag_submits_the_job_one_run_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks: list[dict[str, Any]] = []
    operator = "airflow.providers.apache.spark.operators.spark_submit"
    stand_in(monkeypatch, operator, SparkSubmitOperator=lambda **settings: tasks.append(settings))
    stand_in(monkeypatch, "airflow.sdk", DAG=Dag)
    stand_in(monkeypatch, "pendulum", datetime=lambda *day, tz: (*day, tz))
    monkeypatch.setattr(Dag, "made", [])
    file = ROOT / "examples" / "airflow_dag.py"
    exec(compile(file.read_text(), str(file), "exec"), {"__name__": "airflow_dag"})
    (dag,), (task,) = Dag.made, tasks
    assert (dag["max_active_runs"], dag["catchup"]) == (1, False)
    assert parameters(task["application_args"])["member"] == "hourly"
    assert (ROOT / task["application"].removeprefix("/opt/streamgroup/")).is_file()
    assert "PYSPARK_PYTHON" in task["env_vars"]
