"""Applications that are warm before they are wanted, and start in two thirds of the time."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from streamgroup.testing.directories import cache_directory, file_lock
from tests.fault.applications import Application, is_running
from tests.waiting import wait_until


class Pool:
    """Applications that are warm before they are wanted."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.jvm_flags = (f"-XX:SharedArchiveFile={class_archive(home)}",)
        """The flags of a JVM that starts fast."""
        self._spare: list[Application] = []
        self.all: list[Application] = []

    def prepare(self, count: int = 1) -> None:
        """See to `count` spare ones, warm or about to be."""
        while len(self._spare) < count:
            home = self._home / f"app{len(self.all)}"
            made = Application(home, self.jvm_flags)
            self.all.append(made)
            self._spare.append(made)

    def next(self) -> Application:
        """An application without queries, which may still be getting warm."""
        self.prepare()
        return self._spare.pop(0)

    def take(self) -> Application:
        """A warm application without queries."""
        return self.next().await_ready()

    def reclaim(self) -> None:
        """After a test: who answers serves the next one, without its queries; who does not is killed."""
        for application in self.all:
            if application in self._spare or not application.alive:
                continue
            try:
                application.end_queries()
            except AssertionError:
                application.kill()
            else:
                self._spare.append(application)

    def kill(self) -> None:
        """End all of them."""
        for application in self.all:
            application.kill()


def class_archive(home: Path) -> Path:
    """The classes that an application loads, as a file that a JVM maps: it starts in two thirds of the time.

    Made once per Java and PySpark by an application that ends at once; a JVM that cannot use it goes without.
    """
    java = shutil.which("java") or ""
    key = f"{os.path.realpath(java)} {os.path.dirname(pyspark.__file__)} {pyspark.__version__}"
    path = cache_directory() / "classes" / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"
    with file_lock(path.with_suffix(".lock"), 180):
        if not path.exists():
            new = path.with_suffix(".new")
            with closing_application(Application(home / "classes", (f"-XX:ArchiveClassesAtExit={new}",))) as trial:
                trial.await_ready()
                jvm = json.loads((trial.home / "processes").read_text())["jvm"]
                assert trial.process.stdin is not None
                trial.process.stdin.close()
                # The driver does not wait for its JVM, which writes the file as the last thing it does.
                wait_until(lambda: not is_running(jvm), "the JVM has ended", 60)
            assert new.exists(), f"no archive of classes: {trial.log.read_text()[-2000:]}"
            new.rename(path)
    return path


@contextmanager
def closing_application(application: Application) -> Iterator[Application]:
    """Kill it at the end."""
    try:
        yield application
    finally:
        application.kill()
