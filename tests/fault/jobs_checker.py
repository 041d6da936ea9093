"""The conditions that hold after all faults of the jobs of a group: Jepsen's questions, asked of the sinks' files."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fault.applications import Application, Job, Struck, whole_lines
from tests.hooks.named_points import COMMITTING, READ, SUNK
from tests.spark.support import Load, committed, log_ends
from tests.waiting import wait_until

Ranges = dict[int, tuple[int, int]]
"""Partition: offsets [from, until)."""


@dataclass(frozen=True)
class InFlight:
    """The batch that was planned and not committed when a job was struck; without ranges where there was none."""

    job: str
    struck: Struck
    ranges: Ranges

    def holds(self, partition: int, offset: int) -> bool:
        first, until = self.ranges.get(partition, (0, 0))
        return first <= offset < until

    def __len__(self) -> int:
        return sum(until - first for first, until in self.ranges.values())


def in_flight(job: Job, struck: Struck) -> InFlight:
    """Read it from the job's checkpoint, after the job has died and before it is started again.

    Planned, and not given to Spark: then the batch before is committed (R9), and so it is after the commit.
    """
    batches = {int(path.name) for path in (job.checkpoint / "offsets").glob("[0-9]*")}
    newest = max(batches, default=-1)
    is_sunk = (job.checkpoint / "commits" / str(newest)).exists()
    if newest < 0 or (is_sunk and struck.point not in (READ, SUNK, COMMITTING)):
        return InFlight(job.name, struck, {})
    document = json.loads((job.checkpoint / "offsets" / str(newest)).read_text().splitlines()[2])
    ranges = document["ranges"].get(job.load.topic, {})
    batch = InFlight(job.name, struck, {int(p): (first, until) for p, (first, until) in ranges.items()})
    assert len(batch) <= job.batch
    return batch


@dataclass(frozen=True)
class Outcome:
    """The result of a run. `repeats`: how often a value was delivered after its first time, summed up."""

    sent: int
    lost: int
    repeats: int
    commits: int
    refused: int


class Checker:
    """The sinks of one topic's jobs."""

    def __init__(self, load: Load, home: Path) -> None:
        self._load = load
        self._home = home

    def deliveries(self) -> dict[str, list[float]]:
        """When each value was delivered, in order (seconds of time.monotonic)."""
        times: dict[str, list[float]] = defaultdict(list)
        for path in sorted((self._home / "sinks").glob("*.jsonl")):
            for line in whole_lines(path):
                for value in line.get("values", ()):
                    times[value].append(line["at"])
        return {value: sorted(at) for value, at in times.items()}

    def await_all_committed(self, group: str, timeout: float = 60.0) -> None:
        """The group has come to the logs' ends."""
        load = self._load
        ends = log_ends(load.server, load.topic, load.partitions)
        wait_until(lambda: committed(load.server, group, load.topic) == ends, f"all committed, {ends}", timeout)

    def check(self, applications: Iterable[Application], struck: Sequence[InFlight]) -> Outcome:
        """Nothing lost; nothing repeated but batches in flight, each at most twice more (R13); no commit too early.

        Twice: by who took the partitions over, and by the job's own replay of what that one had not yet committed.
        """
        delivered = self.deliveries()
        lost = set(self._load.sent) - set(delivered)
        assert not lost, f"{len(lost)} lost, among them {sorted(lost)[:10]}"
        strangers = set(delivered) - set(self._load.sent)
        assert not strangers, f"never sent: {sorted(strangers)[:10]}"
        repeats = 0
        for value, times in delivered.items():
            if len(times) > 1:
                repeats += len(times) - 1
                kills = [s for s in struck if s.holds(*self._place(value))]
                assert len(times) <= 1 + 2 * len(kills), f"{value}: {len(times)} deliveries, in flight at {kills}"
        commits = [line for application in applications for line in application.commits()]
        mine = [c for c in commits if any(tp.startswith(f"{self._load.topic}-") for tp in c["offsets"])]
        self._check_commits(mine, delivered)
        refused = sum(any(c["codes"].values()) for c in mine)
        return Outcome(len(self._load.sent), len(lost), repeats, len(mine), refused)

    def _check_commits(self, commits: list[dict[str, object]], delivered: dict[str, list[float]]) -> None:
        """C1, C3: what is committed has sunk before; a partition has one member per generation."""
        sunk_at = {self._place(value): times[0] for value, times in delivered.items()}
        owners: dict[tuple[str, int], str] = {}
        highest: dict[str, int] = defaultdict(int)
        for commit in sorted(commits, key=lambda c: c["at"]):  # type: ignore[arg-type, return-value]
            offsets: dict[str, int] = commit["offsets"]  # type: ignore[assignment]
            codes: dict[str, int] = commit["codes"]  # type: ignore[assignment]
            for tp, offset in offsets.items():
                if codes.get(tp) != 0:
                    continue
                owner = owners.setdefault((tp, int(str(commit["generation"]))), str(commit["owner"]))
                assert owner == commit["owner"], f"two members committed {tp} in one generation: {owner} and {commit}"
                partition = int(tp.rpartition("-")[2])
                late = [
                    at for o in range(highest[tp], offset) if (at := sunk_at[partition, o]) > float(str(commit["at"]))
                ]
                assert not late, f"{tp} was committed at {offset} before it had sunk: {commit}"
                highest[tp] = max(highest[tp], offset)

    def _place(self, value: str) -> tuple[int, int]:
        """Partition and offset of a value: `Load` sends round robin, and nobody else writes to the topic."""
        sequence = int(value.rpartition("-")[2])
        return sequence % self._load.partitions, sequence // self._load.partitions
