"""The steps of a backfill without Spark: what a restart goes on with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.errors import ConfigError
from streamgroup.jobs.backfill import steps
from streamgroup.jobs.backfill.config import BackfillConfig, load
from streamgroup.jobs.backfill.steps import BackfillPlan, Step, done_steps, make_plan, plan_of, run_steps, settle
from streamgroup.jobs.signals import StopRequest
from streamgroup.logline import parse
from streamgroup.model import Broker, Dialect, FetchRange, FetchTask, OffsetRange, TopicPartition
from tests.fakes.files import LocalFiles

FILES = LocalFiles()
A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def config_of(home: Path, *, columns: str = "", topics: str = "orders") -> BackfillConfig:
    file = home / "job.toml"
    file.write_text(
        f'[source]\nkafka.bootstrap.servers = "broker:9092"\nsubscribe = "{topics}"\n'
        f'[backfill]\nprogress = "{home}/progress"\noffsets_per_step = 10\n'
        f'[sink]\nformat = "parquet"\npath = "{home}/rows"\n{columns}'
    )
    return load(file, None, {})


class Backfill:
    """A backfill of 25 offsets, whose writes are noted instead of made."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch, fail_at: int = -1) -> None:
        self.home, self.fail_at = home, fail_at
        self.written: list[int] = []
        self.said: list[str] = []
        self.shown: list[tuple[int, int]] = []
        self.stop = StopRequest()
        self.stop_after = -1
        monkeypatch.setattr(steps, "make_plan", self.plan)
        monkeypatch.setattr(steps, "write", self.write)

    def plan(self, config: BackfillConfig) -> BackfillPlan:
        return plan_of([OffsetRange(A, 100, 120), OffsetRange(B, 0, 5)], config.offsets_per_step, config.purpose)

    def write(self, spark: object, config: BackfillConfig, step: Step) -> None:
        if step.number == self.fail_at:
            raise OSError("the disk is full")
        self.written.append(step.number)
        if step.number == self.stop_after:
            self.stop.receive(15)

    def run(self, **changes: str) -> bool:
        spark: Any = None
        show: Any = lambda done, total: self.shown.append((done, total))  # noqa: E731
        config = config_of(self.home, **changes)
        return run_steps(spark, config, FILES, stop=self.stop, say=self.said.append, advance=show)


def test_all_steps_are_done_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backfill = Backfill(tmp_path, monkeypatch)
    assert backfill.run()
    assert backfill.written == [0, 1, 2]
    assert backfill.shown == [(0, 25), (7, 25), (16, 25), (25, 25)]
    assert backfill.said[0] == "25 offsets in 3 steps, 0 done"
    assert backfill.said[-1].startswith("step 3 of 3: 9 offsets in 0.0 s, 100 % | event=step step=2")
    assert parse(backfill.said[1])["offsets"] == "7"
    assert backfill.run()
    assert backfill.written == [0, 1, 2], "nothing is done again"


def test_a_failed_step_is_the_first_of_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backfill = Backfill(tmp_path, monkeypatch, fail_at=1)
    with pytest.raises(OSError, match="full"):
        backfill.run()
    backfill.fail_at = -1
    assert backfill.run()
    assert backfill.written == [0, 1, 2]
    assert "25 offsets in 3 steps, 1 done" in backfill.said
    assert backfill.shown[2:4] == [(7, 25), (16, 25)]


def test_a_signal_ends_the_backfill_between_two_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backfill = Backfill(tmp_path, monkeypatch)
    backfill.stop_after = 0
    assert not backfill.run()
    assert backfill.said[-1] == "SIGTERM: stopped before step 2. The same command goes on there"
    backfill.stop = StopRequest()
    assert backfill.run()
    assert backfill.written == [0, 1, 2]


@pytest.mark.parametrize("changes", [{"topics": "payments"}, {"columns": 'columns = ["value"]'}])
def test_a_plan_of_another_purpose_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str]
) -> None:
    backfill = Backfill(tmp_path, monkeypatch)
    assert backfill.run()
    name = {"topics": "subscribe"}.get(*changes) or "columns"
    with pytest.raises(ConfigError, match=f"its plan was made with other values of {name}"):
        backfill.run(**changes)


def test_the_directory_of_another_backfill_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backfill = Backfill(tmp_path, monkeypatch)
    assert backfill.run()
    (tmp_path / "progress").rename(tmp_path / "elsewhere")
    text = (tmp_path / "rows" / "_streamgroup_sink.json").read_text()
    (tmp_path / "rows" / "_streamgroup_sink.json").write_text(text.replace("progress", "elsewhere"))
    with pytest.raises(ConfigError, match="another checkpoint writes into it"):
        backfill.run()
    assert backfill.written == [0, 1, 2]


def test_a_damaged_plan_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FILES.create(f"{tmp_path}/progress/plan.json", "{}")
    with pytest.raises(ConfigError, match=r"cannot read the plan of the backfill in .*plan.json: it lacks 'version'"):
        Backfill(tmp_path, monkeypatch).run()


def test_two_runs_that_begin_together_have_one_plan(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    theirs = plan_of([OffsetRange(A, 0, 5)], 10, config.purpose)

    def make() -> BackfillPlan:
        FILES.create(f"{tmp_path}/progress/plan.json", theirs.to_json())
        return plan_of([OffsetRange(A, 0, 9)], 10, config.purpose)

    assert settle(FILES, config, make) == theirs


def test_two_jobs_that_do_one_step_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backfill = Backfill(tmp_path, monkeypatch)
    write = backfill.write

    def slow(spark: object, config: BackfillConfig, step: Step) -> None:
        write(spark, config, step)
        FILES.create(f"{tmp_path}/progress/done/{step.number:06d}.json", "{}")

    monkeypatch.setattr(steps, "write", slow)
    with pytest.raises(ConfigError, match=r"step 1 of the backfill .* was done by another job at the same time"):
        backfill.run()


def test_a_gap_in_the_done_steps_is_done(tmp_path: Path) -> None:
    for number in (0, 2):
        FILES.create(f"{tmp_path}/done/{number:06d}.json", "{}")
    assert done_steps(FILES, str(tmp_path)) == 1


def test_kafka_07_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    range_ = FetchRange(OffsetRange(A, 0, 100), Broker(1, "broker", 9092))
    monkeypatch.setattr(steps, "plan_batch", lambda _: [FetchTask((range_,), Dialect.KAFKA07)])
    with pytest.raises(ConfigError, match=r"cannot divide the logs of Kafka 0.7 into steps"):
        make_plan(config_of(tmp_path))


PLAN_A, PLAN_B = TopicPartition("a", 0), TopicPartition("b", 3)
PURPOSE = {"subscribe": "a,b"}


@given(
    st.lists(st.tuples(st.integers(0, 10**15), st.integers(0, 10**6)), min_size=1, max_size=8),
    st.integers(1, 10**6),
)
def test_steps_read_each_offset_once_and_in_order(ranges: list[tuple[int, int]], per_step: int) -> None:
    whole = [OffsetRange(TopicPartition("t", n), start, start + size) for n, (start, size) in enumerate(ranges)]
    per_step = max(per_step, sum(map(len, whole)) // 50 or 1)
    plan = plan_of(whole, per_step, PURPOSE)
    steps = list(plan.steps())
    assert [step.number for step in steps] == list(range(plan.step_count))
    for range_ in whole:
        at = range_.start
        for step in steps:
            for part in step.ranges:
                if part.partition == range_.partition:
                    assert part.start == at
                    at = part.until
        assert at == range_.until
    assert all(len(step) < per_step + len(whole) for step in steps)


def test_the_tasks_of_one_partition_are_one_range() -> None:
    parts = [
        OffsetRange(PLAN_B, 0, 5),
        OffsetRange(PLAN_A, 10, 20),
        OffsetRange(PLAN_A, 20, 35),
        OffsetRange(PLAN_A, 5, 10),
    ]
    assert plan_of(parts, 100, PURPOSE).ranges == (OffsetRange(PLAN_A, 5, 35), OffsetRange(PLAN_B, 0, 5))


def test_a_step_is_a_batch_read_of_exactly_its_ranges() -> None:
    plan = plan_of([OffsetRange(PLAN_A, 0, 10), OffsetRange(PLAN_B, 4, 6)], 6, PURPOSE)
    first, second = plan.steps()
    assert {name: json.loads(value) for name, value in first.options().items()} == {
        "assign": {"a": [0], "b": [3]},
        "startingOffsets": {"a": {"0": 0}, "b": {"3": 4}},
        "endingOffsets": {"a": {"0": 5}, "b": {"3": 5}},
    }
    assert len(second) == 6
    assert list(plan.steps(after=1)) == [second]


def test_a_partition_without_offsets_in_a_step_is_not_read_by_it() -> None:
    plan = plan_of([OffsetRange(PLAN_A, 0, 10), OffsetRange(PLAN_B, 4, 5)], 2, PURPOSE)
    assert [range_.partition for step in plan.steps() for range_ in step.ranges].count(PLAN_B) == 1


def test_a_plan_without_offsets_has_no_steps() -> None:
    plan = plan_of([OffsetRange(PLAN_A, 7, 7)], 10, PURPOSE)
    assert (len(plan), plan.step_count, list(plan.steps())) == (0, 0, [])


def test_a_written_plan_is_read_back() -> None:
    plan = plan_of([OffsetRange(PLAN_A, 0, 10), OffsetRange(PLAN_B, 4, 6)], 6, PURPOSE)
    assert BackfillPlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version": 2}',
        '{"version": 1, "offsets_per_step": 0, "purpose": {}, "ranges": []}',
        '{"version": 1, "offsets_per_step": 1e999, "purpose": {}, "ranges": []}',
        '{"version": 1, "offsets_per_step": 1, "purpose": {}, "ranges": [["t", 0, 9]]}',
        '{"version": 1, "offsets_per_step": 1, "purpose": {}, "ranges": [["t", 0, 9, 3]]}',
        "[" * 100_000,
    ],
)
def test_another_text_is_not_a_plan(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        BackfillPlan.from_json(text)
