"""The repeats that log lines announce are found in the documents of the checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamgroup.logline import render
from tests.fault.jobs_checker import InFlight
from tests.golden.stored import DOCUMENTS, LINEAGE, RUN, document_text
from tests.soak.announcements import Announcements


class World:
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
def world(tmp_path: Path) -> World:
    return World(tmp_path)


REPEAT = render("up to 20 offsets may be repeated", "repeat", group="etl", run=RUN, count=20, document=7, reason="over")


def test_an_announced_document_licenses_its_ranges_once(world: World) -> None:
    world.document(3, document_text(DOCUMENTS["a batch"]))
    world.log(f"WARNING {REPEAT}\n")
    assert len(world.look().repeats) == 1
    (flight,) = world.look().repeats
    assert isinstance(flight, InFlight)
    assert (flight.job, flight.ranges, len(flight)) == ("a", {0: (10, 20), 1: (10, 20)}, 20)
    assert world.announced.unknown == []


def test_a_document_that_spark_has_purged_since_is_still_known(world: World) -> None:
    path = world.document(3, document_text(DOCUMENTS["a batch"]))
    world.look()
    path.unlink()
    world.log(f"{REPEAT}\n")
    assert len(world.look().repeats) == 1


def test_half_a_line_and_half_a_document_wait_for_their_rest(world: World) -> None:
    path = world.document(3, "")
    world.log(REPEAT[:50])
    assert world.look().repeats == []
    path.write_text(f"v1\n{{}}\n{document_text(DOCUMENTS['a batch'])}")
    world.log(f"{REPEAT[50:]}\n")
    assert len(world.look().repeats) == 1


def test_a_document_that_is_found_after_its_line_licenses_its_ranges(world: World) -> None:
    world.log(f"{REPEAT}\n")
    assert world.look().repeats == []
    world.document(3, document_text(DOCUMENTS["a batch"]))
    assert len(world.look().repeats) == 1
    assert (world.announced.unrecorded, world.announced.unknown) == ([], [])


def numbered(sequence: int, run: str = RUN) -> str:
    return json.dumps({**json.loads(document_text(DOCUMENTS["a batch"])), "run": run, "sequence": sequence})


def test_the_batch_that_was_planned_last_may_not_be_recorded_and_licenses_nothing(world: World) -> None:
    world.document(3, numbered(6))
    world.document(4, numbered(9, LINEAGE))
    world.log(f"{REPEAT}\n")
    assert (world.look().unrecorded, world.announced.unknown, world.announced.repeats) == ([REPEAT], [], [])


def test_an_announcement_of_an_unknown_earlier_document_is_wrong(world: World) -> None:
    world.document(3, numbered(8))
    world.log(f"{REPEAT}\n")
    assert (world.look().unrecorded, world.announced.unknown, world.announced.repeats) == ([], [REPEAT], [])


def test_losses_and_skips_are_counted_and_other_lines_are_not(world: World) -> None:
    for event in ("data_loss", "skip", "rebalance", "fence", "replay"):
        world.log(f"{render('words', event, group='etl')}\n")
    world.log("without fields\n")
    assert len(world.look().losses) == 2
