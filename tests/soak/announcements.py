"""The repeats that log lines announce: `event=repeat` names a document, whose ranges a checkpoint has."""

from __future__ import annotations

import json
from pathlib import Path

from streamgroup.logline import parse
from tests.fault.applications import Application, Job, Struck
from tests.fault.jobs_checker import InFlight

LOSSES = ("data_loss", "skip")


class Announcements:
    """Follows the logs of applications and the checkpoints of their jobs."""

    def __init__(self) -> None:
        self.repeats: list[InFlight] = []
        self.losses: list[str] = []
        self.unknown: list[str] = []
        """Lines that announce a repeat of a document that no checkpoint had."""
        self._read: dict[Path, int] = {}
        self._parsed: set[Path] = set()
        """The files of documents that were read: Spark never changes one."""
        self._seen: dict[tuple[str, int], InFlight] = {}

    def look(self, applications: list[Application], jobs: list[Job], at: float) -> None:
        """Read new documents and lines. Spark keeps the newest 100 documents, so look every few seconds."""
        for job in jobs:
            self._look_at_documents(job, at)
        for application in applications:
            for line in self._new_lines(application.log):
                self._take(line, at)

    def _look_at_documents(self, job: Job, at: float) -> None:
        for path in set((job.checkpoint / "offsets").glob("[0-9]*")) - self._parsed:
            try:
                document = json.loads(path.read_text().splitlines()[2])
            except (FileNotFoundError, IndexError):  # it is being written, or purged
                continue
            self._parsed.add(path)
            key = str(document["run"]), int(document["sequence"])
            if key not in self._seen:
                ranges = document["ranges"].get(job.load.topic, {})
                struck = Struck("announced", "event=repeat", at)
                held = {int(partition): (first, until) for partition, (first, until) in ranges.items()}
                self._seen[key] = InFlight(job.name, struck, held)

    def _new_lines(self, log: Path) -> list[str]:
        with log.open("rb") as file:
            file.seek(self._read.get(log, 0))
            *whole, _ = file.read().split(b"\n")
        self._read[log] = self._read.get(log, 0) + sum(len(line) + 1 for line in whole)
        return [line.decode(errors="replace") for line in whole]

    def _take(self, line: str, at: float) -> None:
        fields = parse(line)
        if fields.get("event") in LOSSES:
            self.losses.append(line)
        if fields.get("event") != "repeat" or "document" not in fields:
            return
        flight = self._seen.get((fields["run"], int(fields["document"])))
        if flight is None:
            self.unknown.append(line)
        else:
            self.repeats.append(InFlight(flight.job, Struck("announced", "event=repeat", at), flight.ranges))
