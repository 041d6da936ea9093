"""The files of a release: the sdist compiles, the wheel is complete, and the checks notice what is missing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.wheels import (
    PACKAGES,
    ROOT,
    kernel_sources,
    main,
    problems_of_release_wheel,
    problems_of_sbom,
    problems_of_sdist,
    problems_of_wheel,
    requirements,
    sources,
    version,
)
from tools.vendored import with_component

INFO = f"streamgroup-{version()}.dist-info"
METADATA = "Metadata-Version: 2.4\nClassifier: Typing :: Typed\nRequires-Python: >=3.11\n\n"
KERNEL = "streamgroup/kafka/records/_kernel.abi3.so"
WHEEL = f"streamgroup-{version()}-cp311-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"


@pytest.mark.slow
def test_the_wheel_that_is_built_from_the_sdist_is_complete(tmp_path: Path) -> None:
    source = tmp_path / "source"
    copied = [ROOT / name for name in (*PACKAGES, "pyproject.toml", "README.md", "LICENSE")]
    source.mkdir()
    subprocess.run(["cp", "-r", *copied, source], check=True)
    for built in source.rglob("*.so"):
        built.unlink()
    quiet = {**os.environ, "PYTHONWARNINGS": "ignore"}
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path / "dist"), str(source)]
    subprocess.run(build, check=True, env=quiet, capture_output=True)
    (sdist,), (wheel,) = (tmp_path / "dist").glob("*.gz"), (tmp_path / "dist").glob("*.whl")
    assert problems_of_sdist(sdist) == []
    assert problems_of_wheel(wheel) == []
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path / "installed")
    program = "import streamgroup.kafka.records._kernel as kernel; print(kernel.__file__)"
    found = subprocess.check_output(
        [sys.executable, "-c", program], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    )
    assert found.decode().strip() == str(tmp_path / "installed" / KERNEL)


def wheel_of(path: Path, names: set[str], metadata: str = METADATA) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name in sorted(names):
            file.writestr(name, metadata if name.endswith("METADATA") else "")
    return path


COMPLETE = {*sources(), KERNEL, f"{INFO}/METADATA", f"{INFO}/licenses/LICENSE"}


def test_a_complete_wheel_has_no_problem(tmp_path: Path) -> None:
    assert problems_of_release_wheel(wheel_of(tmp_path / WHEEL, COMPLETE)) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda names: names - {"streamgroup/py.typed"}, "streamgroup/py.typed is missing"),
        (lambda names: names - {"streamgroup/kafka/wire/schema.py"}, "streamgroup/kafka/wire/schema.py is missing"),
        (lambda names: names - {"streamgroup/testing/jars.sha256"}, "streamgroup/testing/jars.sha256 is missing"),
        (lambda names: names - {KERNEL}, "the compiled kernel is missing"),
        (lambda names: names - {f"{INFO}/licenses/LICENSE"}, "the license is missing"),
        (lambda names: names | {"tests/conftest.py"}, "tests/conftest.py does not belong there"),
        (lambda names: names | {"streamgroup/kafka/records/_kernel.c"}, "streamgroup/kafka/records/_kernel.c does not"),
    ],
)
def test_a_wheel_that_lacks_a_file_or_has_another_one_is_refused(
    tmp_path: Path, change: Callable[[set[str]], set[str]], problem: str
) -> None:
    (found,) = problems_of_release_wheel(wheel_of(tmp_path / WHEEL, change(COMPLETE)))
    assert found.startswith(problem)


def test_a_wheel_with_the_tag_of_this_machine_is_not_published(tmp_path: Path) -> None:
    wheel = wheel_of(tmp_path / WHEEL.replace("manylinux2014", "linux").partition(".manylinux")[0], COMPLETE)
    wheel = wheel.rename(wheel.with_suffix(".whl"))
    assert problems_of_wheel(wheel) == []
    assert problems_of_release_wheel(wheel) == [f"the tag names no platform of users: {wheel.name}"]


def test_metadata_without_types_is_refused(tmp_path: Path) -> None:
    wheel = wheel_of(tmp_path / WHEEL, COMPLETE, METADATA.replace("Typing", "Topic"))
    assert problems_of_wheel(wheel) == ["the metadata name neither types nor the oldest Python"]


def test_an_sdist_without_a_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "streamgroup.tar.gz"
    names = sources() | kernel_sources() | {"pyproject.toml", "README.md", "LICENSE", "PKG-INFO"}
    with tarfile.open(path, "w:gz") as file:
        for name in sorted(names - {"streamgroup/kafka/records/_crc32.h"}):
            file.addfile(tarfile.TarInfo(f"streamgroup-{version()}/{name}"))
    assert problems_of_sdist(path) == ["streamgroup/kafka/records/_crc32.h is missing"]


def bill(**changes: Any) -> dict[str, Any]:
    names = ["pyspark", "pyarrow", "numpy", "cramjam", "google-crc32c", "click", "rich", "kazoo", "regex"]
    names += ["cryptography", "fastavro", "prometheus_client", "opentelemetry-sdk", "protobuf", "confluent-kafka"]
    names += [
        "opentelemetry-exporter-otlp-proto-http",
        "httpx2",
        "starlette",
        "uvicorn",
        "uplot",
        "sqlalchemy",
        "psycopg",
        "pymysql",
    ]
    parts = [{"name": name, "version": "1", "licenses": [{}]} for name in names]
    ours = {"name": "streamgroup", "version": version()}
    return {"metadata": {"component": ours}, "components": parts, **changes}


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (bill(), None),
        (bill(components=bill()["components"][1:]), "pyspark is missing"),
        (bill(components=[each for each in bill()["components"] if each["name"] != "uvicorn"]), "uvicorn is missing"),
        (bill(components=[*bill()["components"], {"name": "cffi", "version": "1"}]), "cffi has no license"),
        (bill(components=[*bill()["components"], {"name": "cffi", "licenses": [{}]}]), "cffi has no version"),
        (bill(metadata={"component": {"version": "0.0.1"}}), f"it is of streamgroup 0.0.1, not {version()}"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bill_of_materials_names_all_dependencies(
    tmp_path: Path, found: dict[str, Any], problem: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "streamgroup.cdx.json"
    path.write_text(json.dumps(found))
    assert problems_of_sbom(path) == ([] if problem is None else [problem])
    assert main([str(path)]) == (problem is not None)
    assert capsys.readouterr().out == f"{path}: {problem or 'complete'}\n"


def test_the_bill_of_materials_covers_the_extras_that_the_lock_pins() -> None:
    (named,) = re.findall(r"^SBOM_EXTRAS = (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    extras = named.split(",")
    assert sorted(extras) == sorted(requirements().keys() - {""})
    pinned = set(re.findall(r"^([\w.-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    needed = {re.split(r"[\[><=]", one)[0] for extra in extras for one in requirements()[extra]}
    assert needed <= pinned, "make sbom takes the versions of requirements.lock"
    page = (ROOT / "docs" / "release.md").read_text()
    assert ", ".join(f"`{extra}`" for extra in extras[:-1]) + f" and `{extras[-1]}`" in " ".join(page.split())


def test_the_library_in_the_wheel_is_a_dependency_of_the_package() -> None:
    given = {
        "metadata": {"component": {"bom-ref": "root", "name": "streamgroup"}},
        "components": [{"bom-ref": "rich==1", "name": "rich"}],
        "dependencies": [{"ref": "rich==1"}, {"ref": "root", "dependsOn": ["rich==1"]}],
    }
    found = with_component(given)
    (added,) = (each for each in found["components"] if each["name"] == "uplot")
    assert added["purl"] == f"pkg:npm/uplot@{added['version']}"
    assert added["licenses"] == [{"license": {"id": "MIT"}}]
    assert {each["ref"]: each.get("dependsOn", []) for each in found["dependencies"]} == {
        added["bom-ref"]: [],
        "rich==1": [],
        "root": [added["bom-ref"], "rich==1"],
    }
    assert given["components"] == [{"bom-ref": "rich==1", "name": "rich"}]
