"""Checks the pages of Kubernetes, YARN, EMR, Databricks and Airflow without these platforms, and names of wheels."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pyspark
import pytest
import yaml

import streamgroup
from streamgroup.jobs.config import load
from streamgroup.jobs.ingest import command as ingest
from streamgroup.testing.java import pyspark_jar_files
from tests.wheels import TAG, version
from tools.symbols import symbols

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MARK = re.compile(r"^\*\*(Tried|Not tried)\.\*\* ", re.MULTILINE)
TRIED = ("migrate-from-spark", "security", "kerberos", "old-brokers", "clusters", "connect")
NOT_TRIED = ("kubernetes-yarn", "emr", "databricks", "airflow")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


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
    (block,) = blocks("emr.md", "json")
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
    variables = {name.rpartition(".")[2] for name in settings if "driverEnv" in name}
    assert variables == {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"}


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


# --- Kubernetes and YARN ---------------------------------------------------------------------------------------------

SPARK_HOME = Path(pyspark.__file__).parent
SPARK_JARS = ("spark-core_*.jar", "spark-kubernetes_*.jar", "spark-yarn_*.jar")
KINDS = {
    "ServiceAccount": ("v1", set()),
    "ConfigMap": ("v1", {"data"}),
    "Service": ("v1", {"spec"}),
    "Role": ("rbac.authorization.k8s.io/v1", {"rules"}),
    "RoleBinding": ("rbac.authorization.k8s.io/v1", {"roleRef", "subjects"}),
    "StatefulSet": ("apps/v1", {"spec"}),
}
"""The API version of each kind, and the fields that it needs besides apiVersion, kind and metadata."""


@pytest.fixture(scope="module")
def manifests() -> dict[str, dict[str, Any]]:
    """The manifests by kind; the page has one of each."""
    found = [manifest for block in blocks("kubernetes-yarn.md", "yaml") for manifest in yaml.safe_load_all(block)]
    assert len({manifest["kind"] for manifest in found}) == len(found)
    return {manifest["kind"]: manifest for manifest in found}


@pytest.fixture(scope="module")
def pod(manifests: dict[str, Any]) -> Any:
    return manifests["StatefulSet"]["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def driver(pod: dict[str, Any]) -> Any:
    (container,) = pod["containers"]
    return container


def confs(argv: list[str]) -> dict[str, str]:
    pairs = [argv[at + 1].split("=", 1) for at, argument in enumerate(argv) if argument == "--conf"]
    return dict(pairs)


def yarn_command() -> list[str]:
    (block,) = blocks("kubernetes-yarn.md", "sh")
    return shlex.split(block.replace("\\\n", " "))


def test_each_manifest_has_the_fields_of_its_kind(manifests: dict[str, Any]) -> None:
    assert set(manifests) == set(KINDS)
    for kind, (api, fields) in KINDS.items():
        manifest = manifests[kind]
        assert manifest["apiVersion"] == api
        assert set(manifest["metadata"]) == {"name", "namespace"}
        assert set(manifest) - {"apiVersion", "kind", "metadata"} == fields
    assert {manifest["metadata"]["namespace"] for manifest in manifests.values()} == {"ingest"}


def test_the_manifests_name_each_other(manifests: dict[str, Any], pod: dict[str, Any]) -> None:
    account = manifests["ServiceAccount"]["metadata"]["name"]
    binding = manifests["RoleBinding"]
    assert binding["roleRef"]["name"] == manifests["Role"]["metadata"]["name"]
    assert [subject["name"] for subject in binding["subjects"]] == [account] == [pod["serviceAccountName"]]
    stateful = manifests["StatefulSet"]["spec"]
    labels = stateful["template"]["metadata"]["labels"]
    assert stateful["selector"]["matchLabels"] == labels == manifests["Service"]["spec"]["selector"]
    assert stateful["serviceName"] == manifests["Service"]["metadata"]["name"]
    assert pod["volumes"][0]["configMap"]["name"] == manifests["ConfigMap"]["metadata"]["name"]


def test_the_driver_is_reached_by_the_name_and_the_ports_of_the_service(
    manifests: dict[str, Any], driver: dict[str, Any]
) -> None:
    settings = confs(driver["args"])
    service, namespace = (manifests["Service"]["metadata"][key] for key in ("name", "namespace"))
    assert settings["spark.driver.host"] == f"$(POD_NAME).{service}.{namespace}.svc"
    ports = {settings["spark.driver.port"], settings["spark.blockManager.port"]}
    assert ports == {str(port["port"]) for port in manifests["Service"]["spec"]["ports"]}


def test_driver_and_executors_run_one_image_of_this_version(driver: dict[str, Any]) -> None:
    assert confs(driver["args"])["spark.kubernetes.container.image"] == driver["image"]
    assert driver["image"].endswith(f":{streamgroup.__version__}")
    (image,) = blocks("kubernetes-yarn.md", "dockerfile")
    assert f"FROM streamgroup:{streamgroup.__version__}\n" in image
    assert f"COPY --from=apache/spark:{pyspark.__version__}-scala2.13-" in image


def test_the_variables_that_the_pod_uses_are_set(driver: dict[str, Any], manifests: dict[str, Any]) -> None:
    variables = {variable["name"]: variable["valueFrom"] for variable in driver["env"]}
    used = set(re.findall(r"\$\((\w+)\)", " ".join(driver["args"])))
    used |= set(re.findall(r'"env:(\w+)"', manifests["ConfigMap"]["data"]["ingest.toml"]))
    assert used | {"STREAMGROUP_MEMBER"} == set(variables)
    secret = variables["KAFKA_PASSWORD"]["secretKeyRef"]
    of_executors = confs(driver["args"])["spark.kubernetes.executor.secretKeyRef.KAFKA_PASSWORD"]
    assert of_executors == f"{secret['name']}:{secret['key']}"


def test_the_job_file_is_valid_and_a_drain_fits_into_the_grace_period(
    manifests: dict[str, Any], pod: dict[str, Any], driver: dict[str, Any], tmp_path: Path
) -> None:
    (mount,) = driver["volumeMounts"]
    ((name, text),) = manifests["ConfigMap"]["data"].items()
    assert driver["args"][-1] == f"{mount['mountPath']}/{name}"
    assert mount["name"] == pod["volumes"][0]["name"]
    (tmp_path / name).write_text(text)
    job = load(tmp_path / name, member="ingest-0", environment={})
    assert job.stop.timeout_seconds < pod["terminationGracePeriodSeconds"]


@pytest.mark.slow
def test_spark_submit_knows_every_flag(driver: dict[str, Any]) -> None:
    command = [SPARK_HOME / "bin" / "spark-submit", "--help"]
    environment = {**os.environ, "SPARK_HOME": str(SPARK_HOME)}
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    known = set(re.findall(r"--[a-z-]+", shown.stderr + shown.stdout))
    for argv in (driver["args"], yarn_command()):
        script = next(at for at, argument in enumerate(argv) if argument.endswith("ingest.py"))
        flags = {argument for argument in argv[:script] if argument.startswith("--")}
        assert {"--master"} <= flags <= known


@pytest.mark.slow
def test_spark_knows_every_setting(driver: dict[str, Any]) -> None:
    """The names are constants in Spark's classes; a family of settings has a prefix there."""
    classes = b"".join(classes_with_settings(jar) for jar in pyspark_jar_files(*SPARK_JARS))
    for name in {**confs(driver["args"]), **confs(yarn_command())}:
        prefix = name[: name.rindex(".") + 1]
        family = name.startswith(
            ("spark.executorEnv.", "spark.yarn.appMasterEnv.", "spark.kubernetes.executor.secretKey")
        )
        assert (prefix if family else name).encode() in classes, name


def classes_with_settings(jar: Path) -> bytes:
    with zipfile.ZipFile(jar) as archive:
        names = [name for name in archive.namelist() if re.search(r"[cC]onfig|Conf|Client", name)]
        return b"".join(archive.read(name) for name in names if name.endswith(".class"))
