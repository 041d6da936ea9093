"""The page of supported versions names those that the code knows and the tests run with."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from streamgroup.cli.doctor import TRIED
from streamgroup.testing.releases import RELEASES

ROOT = Path(__file__).parents[2]
ROWS = {
    cells[0]: cells[1:]
    for line in (ROOT / "docs" / "versions.md").read_text().splitlines()
    if len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == 4
}


def versions(subject: str) -> list[str]:
    return ROWS[subject][0].split(", ")


def test_pyspark_is_tested_in_the_locked_version_and_in_that_of_make_test_pyspark() -> None:
    (locked,) = re.findall(r"^pyspark==([0-9.]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    (other,) = re.findall(r"^PYSPARK \?= ([0-9.]+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert versions("PySpark") == [locked, other]
    assert tuple(version.rpartition(".")[0] for version in versions("PySpark")) == TRIED


def test_the_package_refuses_the_versions_that_the_page_excludes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={versions('Python')[0]}"
    assert ROWS["PySpark"][2] == f"before {TRIED[0]}: an error"
    assert project["optional-dependencies"]["spark"] == [f"pyspark>={TRIED[0]}"]


def test_each_kafka_that_the_tests_can_start_is_on_the_page() -> None:
    assert {version for version, release in RELEASES.items() if not release.emulated} <= {
        version for subject in ROWS if subject.startswith("Kafka") for version in versions(subject)
    }
