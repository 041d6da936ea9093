"""The classes that Spark's JVM loads, as a file that a JVM maps: it starts with half of the CPU time."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pyspark

from streamgroup.testing.directories import cache_directory, file_lock
from streamgroup.testing.java import version_of
from tests.processes import is_running
from tests.waiting import wait_until

APPLICATION = Path(__file__).with_name("archived_application.py")
QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djdk.lang.Process.launchMechanism=VFORK")
"""For many plans over little data, where compiling code well would cost more than it saves; and for the many processes
that Spark starts: without Hadoop's native library it runs `chmod` for every file of a checkpoint."""
LAUNCHER = {"SPARK_LAUNCHER_OPTS": " ".join(QUICK_JVM)}
"""The environment of `spark-submit`, which starts a JVM only to put a command line together."""
_MAKING_S = 180


def jvm_flags(*more: str) -> str:
    """Return the flags of a JVM of Spark that starts fast, as one text. `more` are further flags."""
    return " ".join((*QUICK_JVM, f"-XX:SharedArchiveFile={class_archive()}", "-Xshare:auto", *more))


def class_archive() -> Path:
    """Return the archive, which is made once for each Java and PySpark. A JVM that cannot use it goes without."""
    java = shutil.which("java") or ""
    jars = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    made_of = (os.path.realpath(java), pyspark.__version__, APPLICATION.read_text(), *map(version_of, jars))
    path = cache_directory() / "classes" / f"{hashlib.sha256(repr(made_of).encode()).hexdigest()[:16]}.jsa"
    with file_lock(path.with_suffix(".lock"), _MAKING_S):
        if not path.exists():
            with TemporaryDirectory(prefix="streamgroup-classes-") as home:
                _archive(path, Path(home))
    return path


def _archive(path: Path, home: Path) -> None:
    new = path.with_suffix(".new")
    flags = " ".join((*QUICK_JVM, f"-XX:ArchiveClassesAtExit={new}"))
    argv = [sys.executable, str(APPLICATION), str(home), flags]
    made = subprocess.run(argv, capture_output=True, text=True, timeout=_MAKING_S, check=False)
    assert made.returncode == 0, f"no archive of classes: {made.stderr[-2000:]}"
    # The driver does not wait for its JVM, which writes the file as the last thing it does.
    jvm = int((home / "jvm").read_text())
    wait_until(lambda: not is_running(jvm), "the JVM has ended", 60)
    assert new.exists(), f"no archive of classes: {made.stderr[-2000:]}"
    new.rename(path)
