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
        self._unseen: dict[tuple[str, int], str] = {}
        """By run and number of the document, the lines about documents that no checkpoint has had so far."""
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
                if key in self._unseen:
                    self._announce(key, at)
                    del self._unseen[key]

    @property
    def unrecorded(self) -> list[str]:
        """The lines about a document that its run has planned last, and Spark had not recorded when it was stopped.

        No task has read such a batch, so it licenses no repeat.
        """
        return [line for (run, number), line in self._unseen.items() if number > self._newest(run)]

    @property
    def unknown(self) -> list[str]:
        """The lines about another document that no checkpoint had."""
        return [line for (run, number), line in self._unseen.items() if number <= self._newest(run)]

    def _newest(self, run: str) -> int:
        return max((number for of, number in self._seen if of == run), default=0)

    def _announce(self, key: tuple[str, int], at: float) -> None:
        flight = self._seen[key]
        self.repeats.append(InFlight(flight.job, Struck("announced", "event=repeat", at), flight.ranges))

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
        key = fields["run"], int(fields["document"])
        if key in self._seen:
            self._announce(key, at)
        else:
            self._unseen[key] = line
