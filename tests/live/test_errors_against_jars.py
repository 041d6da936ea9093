"""The table of error codes against the one in the Java client."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from streamgroup.errors import KAFKA_ERRORS, ErrorCode, Refresh
from streamgroup.testing import jars
from streamgroup.testing.releases import NEWEST

pytestmark = pytest.mark.live

JAVA = Path(__file__).parent / "java" / "ErrorTable.java"
BEYOND_JAVAS_CLASSES = {ErrorCode.NOT_CONTROLLER, 106}
"""NOT_CONTROLLER and FETCH_SESSION_TOPIC_ID_ERROR: Java's clients look metadata up for them, but not by their class."""


def test_codes_names_and_what_to_do_are_javas() -> None:
    classpath = os.pathsep.join(str(jar) for jar in jars.resolve("org.apache.kafka", "kafka-clients", NEWEST))
    command = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath, str(JAVA)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    seen = {}
    for line in done.stdout.splitlines():
        code, name, *flags = line.split("\t")
        retriable, metadata, any_refresh = (flag == "true" for flag in flags)
        seen[int(code)] = (name, retriable, refresh(int(code), metadata, any_refresh))
    assert seen == {code: (row.name, row.retriable, row.refresh) for code, row in KAFKA_ERRORS.items()}


def refresh(code: int, metadata: bool, any_refresh: bool) -> Refresh:
    if metadata or code in BEYOND_JAVAS_CLASSES:
        return Refresh.METADATA
    return Refresh.COORDINATOR if any_refresh else Refresh.NONE
