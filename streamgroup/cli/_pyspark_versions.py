"""The versions of PySpark that the tests have run with."""

from __future__ import annotations

from streamgroup.cli._findings import CheckVerdict, Finding

TRIED = ("4.2", "4.3")
"""Minor versions, ascending. The first is the lower bound in pyproject.toml."""


def of_pyspark(version: str) -> Finding:
    """Return whether `version`, such as `4.2.0`, is of a minor version that was tried."""
    if ".".join(version.split(".")[:2]) in TRIED:
        return Finding("pyspark", CheckVerdict.OK, version)
    tried = " and ".join(TRIED)
    text = f"{version}: streamgroup is tested with PySpark {tried}. Install one of these if a query fails"
    return Finding("pyspark", CheckVerdict.WARN, text)
