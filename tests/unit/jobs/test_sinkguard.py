from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamgroup.errors import ConfigError
from streamgroup.jobs.sinkguard import NOTE, Files, SinkOwner, confirm, guard
from tests.fakes.files import LocalFiles

FILES: Files = LocalFiles()


class Job:
    """A checkpoint and a sink's directory, filled as Spark fills them."""

    def __init__(self, root: Path, checkpoint: str, sink: str = "rows") -> None:
        self.checkpoint, self.sink = root / checkpoint, root / sink

    def guard(self) -> None:
        guard(FILES, str(self.sink), str(self.checkpoint))

    def start(self, query: str) -> None:
        self.guard()
        self.checkpoint.mkdir(exist_ok=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": query}))
        confirm(FILES, str(self.sink), str(self.checkpoint), query)

    def batch(self, number: int, *, sunk: bool = True) -> None:
        (self.checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
        (self.checkpoint / "offsets" / str(number)).write_text("v1")
        (self.checkpoint / "offsets" / f".{number}.crc").write_text("")
        if sunk:
            log = self.sink / "_spark_metadata"
            log.mkdir(parents=True, exist_ok=True)
            (log / (f"{number}.compact" if number % 10 == 9 else str(number))).write_text("v1")
            (log / f".{number}.crc").write_text("")

    def refusal(self) -> str:
        with pytest.raises(ConfigError) as raised:
            self.guard()
        return str(raised.value)


def test_a_new_directory_is_taken(tmp_path: Path) -> None:
    Job(tmp_path, "ck").guard()
    owner = SinkOwner.of((tmp_path / "rows" / NOTE).read_text())
    assert owner == SinkOwner(f"{tmp_path.as_uri()}/ck")


def test_the_same_checkpoint_goes_on(tmp_path: Path) -> None:
    job = Job(tmp_path, "ck")
    job.start("q1")
    for number in range(12):
        job.batch(number)
    job.batch(12, sunk=False)  # died within it
    job.guard()


def test_another_checkpoint_is_refused_even_before_the_first_batch(tmp_path: Path) -> None:
    Job(tmp_path, "a").guard()
    message = Job(tmp_path, "b").refusal()
    assert f"another checkpoint writes into it: {tmp_path.as_uri()}/a (not started yet)" in message
    assert "{member}" in message


def test_another_checkpoint_is_refused_although_it_is_further(tmp_path: Path) -> None:
    first, second = Job(tmp_path, "a"), Job(tmp_path, "b", sink="elsewhere")
    first.start("q1")
    first.batch(0)
    second.start("q2")
    for number in range(5):
        second.batch(number)
    message = Job(tmp_path, "b").refusal()
    assert "another checkpoint" in message
    assert "(query q1)" in message


def test_a_checkpoint_that_was_deleted_and_made_anew_is_refused(tmp_path: Path) -> None:
    job = Job(tmp_path, "ck")
    job.start("q1")
    job.batch(0)
    for file in sorted(job.checkpoint.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    message = job.refusal()
    assert "its _spark_metadata lists batches up to 0" in message
    assert "has none, so" in message
    assert "rows would be lost" in message


def test_a_checkpoint_that_has_moved_is_still_the_same(tmp_path: Path) -> None:
    job = Job(tmp_path, "old")
    job.start("q1")
    job.batch(0)
    job.checkpoint.rename(tmp_path / "new")
    Job(tmp_path, "new").start("q1")
    assert SinkOwner.of((tmp_path / "rows" / NOTE).read_text()) == SinkOwner(f"{tmp_path.as_uri()}/new", "q1")


def test_a_restored_older_checkpoint_is_refused(tmp_path: Path) -> None:
    job = Job(tmp_path, "ck")
    job.start("q1")
    for number in range(10):
        job.batch(number)
    (job.checkpoint / "offsets" / "9").unlink()
    assert "its _spark_metadata lists batches up to 9, but the checkpoint" in job.refusal()
    assert "ends at 8" in job.refusal()


def test_a_directory_from_before_the_note_goes_on_with_its_checkpoint_alone(tmp_path: Path) -> None:
    job = Job(tmp_path, "ck")
    job.batch(0)
    job.batch(1)
    assert "another or a deleted checkpoint has written them" in Job(tmp_path, "new").refusal()
    job.guard()


def test_of_two_jobs_that_start_at_the_same_moment_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def beaten(self: LocalFiles, path: str, text: str) -> bool:
        monkeypatch.undo()
        Job(tmp_path, "a").guard()  # between our look and our note
        return self.create(path, text)

    monkeypatch.setattr(LocalFiles, "create", beaten)
    assert "another checkpoint" in Job(tmp_path, "b").refusal()


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"checkpoint": 1}', "\x00", "[" * 5_000])
def test_a_directory_with_an_invalid_note_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / NOTE).write_text(text)
    assert "is invalid, so the checkpoint that writes there is unknown" in Job(tmp_path, "ck").refusal()


@pytest.mark.parametrize("metadata", ["", "[]", "{}", "v1", "[" * 5_000])
def test_a_damaged_checkpoint_is_known_by_its_path(tmp_path: Path, metadata: str) -> None:
    job = Job(tmp_path, "ck")
    job.start("q1")
    (job.checkpoint / "metadata").write_text(metadata)
    job.guard()
