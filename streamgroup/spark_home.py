"""Finds Spark: the PySpark of this Python, or the directory that SPARK_HOME names (on the machines of a cluster).

PySpark is not imported, because the import takes a quarter of a second.
"""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

from streamgroup.errors import ConfigError

_VERSION = re.compile(r"""^__version__\b.*["'](\d[^"']*)["']""", re.MULTILINE)


def spark_home() -> Path:
    """Return the directory that has Spark's `bin` and `jars`. Raises ConfigError if there is none."""
    spec = importlib.util.find_spec("pyspark")
    installed = Path(spec.origin).parent if spec is not None and spec.origin else None
    named = os.environ.get("SPARK_HOME")
    for home in (installed, Path(named) if named else None):
        if home is not None and (home / "jars").is_dir():
            return home
    raise ConfigError(
        "cannot find Spark: this Python has no PySpark, and SPARK_HOME names no directory of Spark. Install it: "
        "pip install 'streamgroup[spark]'. On a cluster, set SPARK_HOME instead"
    )


def spark_submit() -> str:
    """Return the path of spark-submit in `spark_home()`. Raises ConfigError if there is none."""
    return str(spark_home() / "bin" / "spark-submit")


def pyspark_version() -> str:
    """Return the version of the PySpark in `spark_home()`, such as `4.2.0`. Raises ConfigError if there is none."""
    home = spark_home()
    for place in (home, home / "python" / "pyspark"):  # pip's layout, and that of a distribution of Spark
        try:
            found = _VERSION.search((place / "version.py").read_text())
        except OSError:
            continue
        if found is not None:
            return found[1]
    raise ConfigError(f"cannot find the version of the PySpark in {home}. Check that it is complete")


def minor_version(version: str) -> tuple[int, int]:
    """Return the numbers that compare versions of Spark or PySpark: (4, 3) for `4.3.0`."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
