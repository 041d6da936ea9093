"""Applications that are warm before they are wanted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.fault.applications import Application
from tests.spark.class_archive import class_archive


class Pool:
    """Applications that are warm before they are wanted. `settings` are Spark's settings of each."""

    def __init__(self, home: Path, settings: Mapping[str, str] | None = None) -> None:
        self._home = home
        self._settings = settings
        self.jvm_flags = (f"-XX:SharedArchiveFile={class_archive()}",)
        """The flags of a JVM that starts fast."""
        self._spare: list[Application] = []
        self.all: list[Application] = []

    def prepare(self, count: int = 1) -> None:
        """See to `count` spare ones, warm or about to be."""
        while len(self._spare) < count:
            home = self._home / f"app{len(self.all)}"
            made = Application(home, self.jvm_flags, settings=self._settings)
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
