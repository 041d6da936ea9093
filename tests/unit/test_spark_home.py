"""Spark as pip installs it, and as a cluster has it."""

from __future__ import annotations

import importlib.util
from importlib.machinery import ModuleSpec
from pathlib import Path

import pyspark
import pytest

from streamgroup.errors import ConfigError
from streamgroup.spark_home import pyspark_version, spark_home, spark_submit


def distribution(home: Path, version: str = "4.3.1") -> Path:
    """Make the directories of a distribution of Spark, whose PySpark is below python/."""
    (home / "jars").mkdir(parents=True)
    package = home / "python" / "pyspark"
    package.mkdir(parents=True)
    (package / "version.py").write_text(f'__version__: str = "{version}"\n')
    return home


def test_the_pyspark_of_this_python_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(distribution(tmp_path)))
    assert spark_home() == Path(pyspark.__file__).parent
    assert pyspark_version() == pyspark.__version__
    assert Path(spark_submit()).is_file()


@pytest.mark.parametrize("is_on_the_path", [False, True], ids=["not imported", "of PYTHONPATH"])
def test_without_one_spark_home_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_on_the_path: bool) -> None:
    home = distribution(tmp_path / "spark")
    found = ModuleSpec("pyspark", None, origin=str(home / "python" / "pyspark" / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found if is_on_the_path else None)
    monkeypatch.setenv("SPARK_HOME", str(home))
    assert spark_home() == home
    assert spark_submit() == str(home / "bin" / "spark-submit")
    assert pyspark_version() == "4.3.1"


@pytest.mark.parametrize("named", [None, "", "/absent"])
def test_without_both_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, named: str | None) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    if named is not None:
        monkeypatch.setenv("SPARK_HOME", named)
    with pytest.raises(ConfigError, match=r"pip install 'streamgroup\[spark\]'\. On a cluster, set SPARK_HOME"):
        spark_home()


def test_a_spark_without_a_version_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = distribution(tmp_path, "none")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("SPARK_HOME", str(home))
    with pytest.raises(ConfigError, match=f"version of the PySpark in {home}"):
        pyspark_version()
