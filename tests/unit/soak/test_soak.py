"""The soak: its command and exit codes, the processes that it measures, its events and their announcements."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamgroup.logline import render
from tests.fault.jobs_checker import InFlight
from tests.golden.stored import DOCUMENTS, LINEAGE, RUN, document_text
from tests.soak import __main__ as command
from tests.soak.announcements import Announcements
from tests.soak.judgement import COORDINATOR, DRIVER, Finding
from tests.soak.processes import processes_of
from tests.soak.schedule import Kind, interval, schedule

GOOD = Finding("records lost", "0 of 9", "0", True)
BAD = Finding("largest lag, records", "999", "100", False)


@pytest.fixture(autouse=True)
def _no_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)


@pytest.mark.parametrize(
    ("findings", "code", "said"), [([GOOD], 0, ""), ([GOOD, BAD], 1, "soak: failed: largest lag, records (seed 7)\n")]
)
def test_a_failed_check_is_named_and_ends_with_1(
    findings: list[Finding], code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted: list[tuple[Any, ...]] = []

    def run(*arguments: Any) -> list[Finding]:
        wanted.append(arguments)
        return findings

    monkeypatch.setattr(command, "run", run)
    assert command.main(["--minutes", "10", "--seed", "7"]) == code
    assert wanted == [(600.0, 7, 100.0, None)]
    output = capsys.readouterr()
    assert output.err == said
    assert len(output.out.splitlines()) == 2 + len(findings)


def test_a_run_that_measures_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--minutes", "4"])
    assert ended.value.code == 2
    assert "--minutes must be at least 5" in capsys.readouterr().err


PROGRAM = """
import subprocess, sys, threading
held = [open("/dev/null") for _ in range(5)]
program = "import sys; print(flush=True); sys.stdin.read()"
child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()  # a child that has not begun its program has the handles of its parent
threading.Thread(target=sys.stdin.read, daemon=True).start()
print(child.pid, flush=True)
child.wait()
"""


@pytest.fixture
def application() -> Iterator[tuple[int, int]]:
    """A process that leads a session, and its child."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    yield process.pid, child
    os.killpg(process.pid, 9)
    process.communicate()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system has no /proc")
def test_roles_memory_handles_and_threads_are_read(application: tuple[int, int]) -> None:
    driver, child = application
    found = {process.role: process for process in processes_of(driver, child)}
    assert found[DRIVER].pid == driver
    assert found[COORDINATOR].pid == child
    assert 2 < found[DRIVER].rss_mib < 100
    assert found[DRIVER].handles >= found[COORDINATOR].handles + 5
    assert found[DRIVER].threads == 2
    assert found[DRIVER].name != found[COORDINATOR].name
    assert found[DRIVER].cpu_s < 60


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system has no /proc")
def test_a_process_without_a_role_or_of_another_session_is_left_out(application: tuple[int, int]) -> None:
    driver, child = application
    assert [process.role for process in processes_of(driver, None)] == [DRIVER]
    assert list(processes_of(child, None)) == []


class JobWithLog:
    """A job with a checkpoint, and the log of its application."""

    def __init__(self, home: Path) -> None:
        self.job: Any = SimpleNamespace(
            name="a", checkpoint=home / "checkpoint", load=SimpleNamespace(topic="orders"), batch=600
        )
        self.application: Any = SimpleNamespace(log=home / "log")
        self.announced = Announcements()
        (self.job.checkpoint / "offsets").mkdir(parents=True)
        self.application.log.touch()

    def document(self, number: int, text: str) -> Path:
        path: Path = self.job.checkpoint / "offsets" / str(number)
        path.write_text(f"v1\n{{}}\n{text}")
        return path

    def log(self, text: str) -> None:
        with self.application.log.open("a") as log:
            log.write(text)

    def look(self) -> Announcements:
        self.announced.look([self.application], [self.job], 5.0)
        return self.announced


@pytest.fixture
def world(tmp_path: Path) -> JobWithLog:
    return JobWithLog(tmp_path)


REPEAT = render("up to 20 offsets may be repeated", "repeat", group="etl", run=RUN, count=20, document=7, reason="over")


def test_an_announced_document_licenses_its_ranges_once(world: JobWithLog) -> None:
    world.document(3, document_text(DOCUMENTS["a batch"]))
    world.log(f"WARNING {REPEAT}\n")
    assert len(world.look().repeats) == 1
    (flight,) = world.look().repeats
    assert isinstance(flight, InFlight)
    assert (flight.job, flight.ranges, len(flight)) == ("a", {0: (10, 20), 1: (10, 20)}, 20)
    assert world.announced.unknown == []


def test_a_document_that_spark_has_purged_since_is_still_known(world: JobWithLog) -> None:
    path = world.document(3, document_text(DOCUMENTS["a batch"]))
    world.look()
    path.unlink()
    world.log(f"{REPEAT}\n")
    assert len(world.look().repeats) == 1


def test_half_a_line_and_half_a_document_wait_for_their_rest(world: JobWithLog) -> None:
    path = world.document(3, "")
    world.log(REPEAT[:50])
    assert world.look().repeats == []
    path.write_text(f"v1\n{{}}\n{document_text(DOCUMENTS['a batch'])}")
    world.log(f"{REPEAT[50:]}\n")
    assert len(world.look().repeats) == 1


def test_a_document_that_is_found_after_its_line_licenses_its_ranges(world: JobWithLog) -> None:
    world.log(f"{REPEAT}\n")
    assert world.look().repeats == []
    world.document(3, document_text(DOCUMENTS["a batch"]))
    assert len(world.look().repeats) == 1
    assert (world.announced.unrecorded, world.announced.unknown) == ([], [])


def numbered(sequence: int, run: str = RUN) -> str:
    return json.dumps({**json.loads(document_text(DOCUMENTS["a batch"])), "run": run, "sequence": sequence})


def test_only_the_batch_that_was_planned_last_may_not_be_recorded_and_an_unknown_earlier_one_is_wrong(
    world: JobWithLog,
) -> None:
    world.document(3, numbered(6))
    world.document(4, numbered(9, LINEAGE))
    world.log(f"{REPEAT}\n")
    assert (world.look().unrecorded, world.announced.unknown, world.announced.repeats) == ([REPEAT], [], [])
    world.document(5, numbered(8))
    assert (world.look().unrecorded, world.announced.unknown, world.announced.repeats) == ([], [REPEAT], [])


def test_losses_and_skips_are_counted_and_other_lines_are_not(world: JobWithLog) -> None:
    for event in ("data_loss", "skip", "rebalance", "fence", "replay"):
        world.log(f"{render('words', event, group='etl')}\n")
    world.log("without fields\n")
    assert len(world.look().losses) == 2


MEMBERS = ("a", "b", "c")


def test_a_seed_gives_the_same_events_and_another_seed_others() -> None:
    assert schedule(1, 600, MEMBERS) == schedule(1, 600, MEMBERS)
    assert schedule(1, 600, MEMBERS) != schedule(2, 600, MEMBERS)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("seconds", [300, 600, 7200])
def test_every_kind_happens_and_the_upgrade_once(seed: int, seconds: float) -> None:
    events = schedule(seed, seconds, MEMBERS)
    kinds = [event.kind for event in events]
    assert set(kinds) == set(Kind)
    assert kinds.count(Kind.UPGRADE) == 1
    (upgrade,) = (event for event in events if event.kind is Kind.UPGRADE)
    assert upgrade.at_s == pytest.approx(seconds / 3)
    assert [event.at_s for event in events] == sorted(event.at_s for event in events)
    assert events[0].at_s >= interval(seconds)
    assert events[-1].at_s < seconds


def test_an_event_of_one_member_names_it() -> None:
    for event in schedule(5, 7200, MEMBERS):
        assert (event.member in MEMBERS) is (event.kind not in (Kind.BROKER, Kind.UPGRADE))


def test_the_first_member_lives_from_the_upgrade_to_the_end() -> None:
    events = [event for seed in range(20) for event in schedule(seed, 7200, MEMBERS)]
    struck = {kind: {event.member for event in events if event.kind is kind} for kind in Kind}
    assert struck[Kind.SIGKILL] == struck[Kind.SIGTERM] == {"b", "c"}
    assert struck[Kind.PAUSE] == set(MEMBERS)
