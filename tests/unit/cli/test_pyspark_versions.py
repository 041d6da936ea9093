from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from streamgroup.cli._findings import CheckVerdict
from streamgroup.cli._pyspark_versions import TRIED, of_pyspark

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("version", ["4.2.0", "4.2.1", "4.3.0", "4.3.0.dev1"])
def test_a_tried_minor_version_is_ok(version: str) -> None:
    finding = of_pyspark(version)
    assert (finding.verdict, finding.text) == (CheckVerdict.OK, version)


@pytest.mark.parametrize("version", ["4.1.1", "4.4.0", "4.20.0", "5.2.0"])
def test_another_version_is_warned_of_with_those_that_were_tried(version: str) -> None:
    finding = of_pyspark(version)
    assert finding.verdict is CheckVerdict.WARN
    assert finding.text.startswith(f"{version}: streamgroup is tested with PySpark 4.2 and 4.3. ")


def test_the_package_requires_the_first_version_that_was_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"pyspark>={TRIED[0]}" in project["optional-dependencies"]["spark"]
