"""The spark-submit of the installed PySpark, found without importing PySpark."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from streamgroup.errors import ConfigError


def spark_submit() -> str:
    """Return the path of spark-submit. Raises ConfigError if PySpark is not installed."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError("cannot run Spark: PySpark is not installed. Install it: pip install 'streamgroup[spark]'")
    return str(Path(spec.origin).parent / "bin" / "spark-submit")
