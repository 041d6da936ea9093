"""Control channels of a test: their directory is the test's own."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamgroup.coordinator.control.channel import ControlServer
from streamgroup.coordinator.planning.document import to_value
from streamgroup.model import Document
from tests.unit.coordinator.shells import SOON

JVM = os.getpid()


class FakeCoordinator:
    """The query's coordinator as its control channel calls it: it has no group, since the channel only carries answers.

    It drains as told; without `may_answer` it answers no status until the end of the test.
    """

    def __init__(self, run: str = "r1", lineage: str = "l1") -> None:
        self.run = run
        self.lineage = lineage
        self.drains: list[float] = []
        self.told: list[tuple[dict[str, Any], int | None]] = []
        self.query: dict[str, Any] = {}
        self.name = ""
        self.mode = "member"
        self.batch: list[list[Any]] | None = None
        self.flies = False
        """Whether a batch is in flight without `batch`: Spark has not asked for its tasks."""
        self.sequence = 3
        self.ended = 0
        self.while_draining: Callable[[], Any] = lambda: None
        self.drained = True
        self.idle = True
        self.positions: dict[str, int] = {}
        self.paused: set[str] = set()
        self.is_whole = False
        self.why = ""
        """Why it is not drained."""
        self.refusal: Exception | None = None
        self.may_answer = threading.Event()
        self.may_answer.set()

    def drain(self, timeout: float, *, ends: bool = False) -> dict[str, Any]:
        if self.refusal is not None:
            raise self.refusal
        self.drains.append(timeout)
        self.ends = ends
        self.while_draining()
        return {
            "drained": self.drained,
            "group": f"group of {self.run}",
            "run": self.run,
            "in_flight": False,
            "why": self.why,
        }

    def sunk(self, document: dict[str, Any], batch: int | None, query: dict[str, Any]) -> dict[str, Any]:
        assert self.may_answer.wait(SOON)
        self.told.append((document, batch))
        self.query = query
        return {"proven": True, "why": ""}

    def ranges(self) -> dict[str, Any]:
        is_in_flight = self.flies or self.batch is not None
        return {
            "group": f"group of {self.run}",
            "run": self.run,
            "lineage": self.lineage if is_in_flight else "",
            "sequence": self.sequence if is_in_flight else 0,
            "ranges": self.batch,
        }

    def log_ends(self) -> dict[str, Any]:
        return {"ends": {"t": {"0": 20}}}

    def end(self) -> dict[str, Any]:
        self.ended += 1
        return {}

    def pause(self, partitions: Any, *, is_paused: bool) -> dict[str, Any]:
        if self.refusal is not None:
            raise self.refusal
        if partitions is None:
            self.is_whole = is_paused
            self.paused = set(self.positions) if is_paused else set()
        elif is_paused:
            self.paused |= {str(tp) for tp in partitions}
        else:
            self.paused -= {str(tp) for tp in partitions}
        return {}

    def status(self) -> dict[str, Any]:
        assert self.may_answer.wait(SOON)
        return {
            "run": self.run,
            "group": f"group of {self.run}",
            "mode": self.mode,
            "name": self.name,
            "lineage": self.lineage,
            "state": "stable",
            "idle": self.idle,
            "positions": self.positions,
            "paused": sorted(self.paused),
            "paused_whole": self.is_whole,
            "query": self.query,
        }


def document(run: str, lineage: str, sequence: int = 3) -> dict[str, Any]:
    """The document of a batch as Spark has it."""
    value: dict[str, Any] = to_value(Document("g", lineage, run, sequence))
    return value


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the channels of this test lie; short, so that sockets have their whole paths as addresses."""
    with tempfile.TemporaryDirectory(prefix="sg-", dir="/tmp") as directory:
        monkeypatch.setattr(tempfile, "gettempdir", lambda: directory)
        yield Path(directory) / f"streamgroup-{os.getuid()}"
        for thread in threading.enumerate():  # or it would ask the coordinators of the next test
            if thread.name == "streamgroup-sunk":
                thread.join(SOON)


@pytest.fixture
def serve() -> Iterator[Callable[..., FakeCoordinator]]:
    servers: list[ControlServer] = []
    coordinators: list[FakeCoordinator] = []

    def start(run: str = "r1", lineage: str = "l1", jvm: int = JVM) -> FakeCoordinator:
        coordinators.append(FakeCoordinator(run, lineage))
        servers.append(ControlServer(coordinators[-1], jvm))
        servers[-1].start()
        return coordinators[-1]

    yield start
    for coordinator in coordinators:
        coordinator.may_answer.set()
    for server in servers:
        server.close()
