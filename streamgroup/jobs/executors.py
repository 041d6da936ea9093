"""The program that `streamgroup doctor --master` submits: it looks at each executor, and writes a report as JSON.

The report has `known` (the number of registered executors), `found` (a result of the probe for each executor) and
`problem` (null, or why the executors cannot run the source). If no session starts, it has `problem` alone.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from streamgroup.errors import StreamGroupError, TransportError
from streamgroup.jobs import probe
from streamgroup.jobs.job_file import SparkSettings
from streamgroup.jobs.session import build_session, run_probe, what_is_missing

_SETTINGS = SparkSettings("streamgroup-doctor")


def main() -> None:
    """Write the report into the file of the first argument. The second one is a timeout in seconds."""
    file, timeout_s = Path(sys.argv[1]), float(sys.argv[2])
    deadline = time.monotonic() + timeout_s
    try:
        spark = build_session(_SETTINGS)
        try:
            report = look_at_executors(spark, deadline)
        finally:
            spark.stop()
    except StreamGroupError as error:
        report = {"problem": str(error)}
    file.write_text(json.dumps(report))


def look_at_executors(spark: SparkSession, deadline: float) -> dict[str, Any]:
    """Run tasks until each registered executor has run one, or until `deadline` on the monotonic clock.

    Executors register one after the other, so tasks run again until no further one has registered. Raises
    ConfigError if a task cannot run, and TransportError if none runs before the deadline.
    """
    found: dict[tuple[str, str], dict[str, str]] = {}
    known = 0
    while True:
        before, known = known, _executors(spark)
        settled = known == before and len(found) >= known
        if settled or (found and time.monotonic() + probe.HOLD_S >= deadline):
            break
        try:
            looks = run_probe(spark, probe.look_and_hold, max(1.0, deadline - time.monotonic()))
        except TransportError:
            if not found:
                raise
            break
        found |= {(look["host"], look["parent"]): look for look in looks}
    executors = list(found.values())
    return {"known": known, "found": executors, "problem": what_is_missing(executors)}


def _executors(spark: SparkSession) -> int:
    """Return how many executors have registered. In local mode the driver is the only one."""
    # PySpark's own StatusTracker lacks the executors.
    context: Any = spark.sparkContext._jsc
    return max(1, len(context.sc().statusTracker().getExecutorInfos()) - 1)
