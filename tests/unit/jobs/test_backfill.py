"""The steps of a backfill without Spark: what a restart goes on with."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.errors import ConfigError
from streamgroup.jobs.backfill import command
from streamgroup.jobs.backfill.command import (
    DEFAULT_OFFSETS_PER_STEP,
    SECTIONS,
    BackfillConfig,
    BackfillPlan,
    Step,
    done_steps,
    effective,
    load,
    make_plan,
    plan_of,
    run_steps,
    settle,
)
from streamgroup.jobs.config import Sink
from streamgroup.jobs.signals import StopRequest
from streamgroup.logline import parse
from streamgroup.model import Broker, Dialect, FetchRange, FetchTask, OffsetRange, TopicPartition
from tests.fakes.files import LocalFiles
from tests.terminals import terminal

FILES = LocalFiles()
A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def read(home: Path, text: str) -> BackfillConfig:
    file = home / "job.toml"
    file.write_text(text)
    return load(file, None, {})


def config_of(home: Path, *, columns: str = "", topics: str = "orders") -> BackfillConfig:
    return read(
        home,
        f'[source]\nkafka.bootstrap.servers = "broker:9092"\nsubscribe = "{topics}"\n'
        f'[backfill]\nprogress = "{home}/progress"\noffsets_per_step = 10\n'
        f'[sink]\nformat = "parquet"\npath = "{home}/rows"\n{columns}',
    )


class Backfill:
    """A backfill of 25 offsets, whose writes are noted instead of made."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home, self.fail_at = home, -1
        self.written: list[int] = []
        self.said: list[str] = []
        self.shown: list[tuple[int, int]] = []
        self.stop = StopRequest()
        self.stop_after = -1
        monkeypatch.setattr(command, "make_plan", self.plan)
        monkeypatch.setattr(command, "write", self.write)

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


@pytest.fixture
def backfill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Backfill:
    return Backfill(tmp_path, monkeypatch)


def test_all_steps_are_done_once(backfill: Backfill) -> None:
    assert backfill.run()
    assert backfill.written == [0, 1, 2]
    assert backfill.shown == [(0, 25), (7, 25), (16, 25), (25, 25)]
    assert backfill.said[0] == "25 offsets in 3 steps, 0 done"
    assert backfill.said[-1].startswith("step 3 of 3: 9 offsets in 0.0 s, 100 % | event=step step=2")
    assert parse(backfill.said[1])["offsets"] == "7"
    assert backfill.run()
    assert backfill.written == [0, 1, 2], "nothing is done again"


def test_a_failed_step_is_the_first_of_the_next_run(backfill: Backfill) -> None:
    backfill.fail_at = 1
    with pytest.raises(OSError, match="full"):
        backfill.run()
    backfill.fail_at = -1
    assert backfill.run()
    assert backfill.written == [0, 1, 2]
    assert "25 offsets in 3 steps, 1 done" in backfill.said
    assert backfill.shown[2:4] == [(7, 25), (16, 25)]


def test_a_signal_ends_the_backfill_between_two_steps(backfill: Backfill) -> None:
    backfill.stop_after = 0
    assert not backfill.run()
    assert backfill.said[-1] == "SIGTERM: stopped before step 2. Run the same command to continue there"
    backfill.stop = StopRequest()
    assert backfill.run()
    assert backfill.written == [0, 1, 2]


@pytest.mark.parametrize("changes", [{"topics": "payments"}, {"columns": 'columns = ["value"]'}])
def test_a_plan_of_another_purpose_is_refused(backfill: Backfill, changes: dict[str, str]) -> None:
    assert backfill.run()
    name = {"topics": "subscribe"}.get(*changes) or "columns"
    with pytest.raises(ConfigError, match=f"its plan was made with other values of {name}"):
        backfill.run(**changes)


def test_the_directory_of_another_backfill_is_refused(tmp_path: Path, backfill: Backfill) -> None:
    assert backfill.run()
    (tmp_path / "progress").rename(tmp_path / "elsewhere")
    text = (tmp_path / "rows" / "_streamgroup_sink.json").read_text()
    (tmp_path / "rows" / "_streamgroup_sink.json").write_text(text.replace("progress", "elsewhere"))
    with pytest.raises(ConfigError, match="another checkpoint writes into it"):
        backfill.run()
    assert backfill.written == [0, 1, 2]


def test_a_damaged_plan_is_refused(tmp_path: Path, backfill: Backfill) -> None:
    FILES.create(f"{tmp_path}/progress/plan.json", "{}")
    with pytest.raises(ConfigError, match=r"cannot read the plan of the backfill in .*plan.json: it lacks 'version'"):
        backfill.run()


def test_two_runs_that_begin_together_have_one_plan(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    theirs = plan_of([OffsetRange(A, 0, 5)], 10, config.purpose)

    def make() -> BackfillPlan:
        FILES.create(f"{tmp_path}/progress/plan.json", theirs.to_json())
        return plan_of([OffsetRange(A, 0, 9)], 10, config.purpose)

    assert settle(FILES, config, make) == theirs


def test_two_jobs_that_do_one_step_are_named(
    tmp_path: Path, backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = backfill.write

    def slow(spark: object, config: BackfillConfig, step: Step) -> None:
        write(spark, config, step)
        FILES.create(f"{tmp_path}/progress/done/{step.number:06d}.json", "{}")

    monkeypatch.setattr(command, "write", slow)
    with pytest.raises(ConfigError, match=r"step 1 of the backfill .* was done by another job at the same time"):
        backfill.run()


def test_a_gap_in_the_done_steps_is_done(tmp_path: Path) -> None:
    for number in (0, 2):
        FILES.create(f"{tmp_path}/done/{number:06d}.json", "{}")
    assert done_steps(FILES, str(tmp_path)) == 1


def test_kafka_07_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    range_ = FetchRange(OffsetRange(A, 0, 100), Broker(1, "broker", 9092))
    monkeypatch.setattr(command, "plan_batch", lambda _: [FetchTask((range_,), Dialect.KAFKA07)])
    with pytest.raises(ConfigError, match=r"cannot divide the logs of Kafka 0.7 into steps"):
        make_plan(config_of(tmp_path))


ONE, TWO = TopicPartition("a", 0), TopicPartition("b", 3)
PURPOSE = {"subscribe": "a,b"}


@given(
    st.lists(st.tuples(st.integers(0, 10**15), st.integers(0, 10**6)), min_size=1, max_size=8), st.integers(1, 10**6)
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
    parts = [OffsetRange(TWO, 0, 5), OffsetRange(ONE, 10, 20), OffsetRange(ONE, 20, 35), OffsetRange(ONE, 5, 10)]
    assert plan_of(parts, 100, PURPOSE).ranges == (OffsetRange(ONE, 5, 35), OffsetRange(TWO, 0, 5))


def test_a_step_is_a_batch_read_of_exactly_its_ranges() -> None:
    plan = plan_of([OffsetRange(ONE, 0, 10), OffsetRange(TWO, 4, 6)], 6, PURPOSE)
    first, second = plan.steps()
    assert {name: json.loads(value) for name, value in first.options().items()} == {
        "assign": {"a": [0], "b": [3]},
        "startingOffsets": {"a": {"0": 0}, "b": {"3": 4}},
        "endingOffsets": {"a": {"0": 5}, "b": {"3": 5}},
    }
    assert len(second) == 6
    assert list(plan.steps(after=1)) == [second]


def test_a_partition_without_offsets_in_a_step_is_not_read_by_it() -> None:
    plan = plan_of([OffsetRange(ONE, 0, 10), OffsetRange(TWO, 4, 5)], 2, PURPOSE)
    assert [range_.partition for step in plan.steps() for range_ in step.ranges].count(TWO) == 1


def test_a_plan_without_offsets_has_no_steps() -> None:
    plan = plan_of([OffsetRange(ONE, 7, 7)], 10, PURPOSE)
    assert (len(plan), plan.step_count, list(plan.steps())) == (0, 0, [])


def test_a_written_plan_is_read_back() -> None:
    plan = plan_of([OffsetRange(ONE, 0, 10), OffsetRange(TWO, 4, 6)], 6, PURPOSE)
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


ROOT = Path(__file__).parents[3]
SOURCE = '[source]\nkafka.bootstrap.servers = "broker:9092"\nsubscribe = "orders"\n'
PROGRESS = '[backfill]\nprogress = "/progress"\n'
SINK = '[sink]\nformat = "parquet"\npath = "/rows"\n'


LEAST = SOURCE + PROGRESS + SINK


def test_the_smallest_backfill_has_defaults(tmp_path: Path) -> None:
    config = read(tmp_path, LEAST)
    assert (config.sink, config.progress) == (Sink("parquet", "/rows"), "/progress")
    assert config.offsets_per_step == DEFAULT_OFFSETS_PER_STEP
    assert config.purpose == {"subscribe": "orders", "sink": "parquet in /rows", "columns": "*"}
    assert config.connection == {"kafka.bootstrap.servers": "broker:9092"}
    (key,) = (key for key in SECTIONS["backfill"] if key.name == "offsets_per_step")
    assert key.default == str(DEFAULT_OFFSETS_PER_STEP)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (SOURCE + SINK, "[backfill] progress is required"),
        (SOURCE + PROGRESS + "offsets_per_step = 0\n" + SINK, "expected a whole number above 0"),
        (SOURCE + PROGRESS + '[sink]\nformat = "csv"\n', "[sink] path or table is required for format 'csv'"),
        (SOURCE + PROGRESS + SINK + 'table = "t"\n', "[sink] path and table are both set"),
        (SOURCE + PROGRESS + SINK + 'checkpoint = "/c"\n', "unknown key 'checkpoint' in section [sink]"),
        (SOURCE + PROGRESS + SINK + 'options.path = "/p"\n', "Write it as 'path' below [sink]"),
        (SOURCE + PROGRESS + SINK + "[trigger]\nonce = true\n", "unknown section [trigger]"),
        (PROGRESS + SINK, "section [source] is required"),
        (SOURCE + "maxOffsetsPerTriger = 3\n" + PROGRESS + SINK, "[source]: "),
        (SOURCE + PROGRESS + '[sink]\nformat = "csv"\npath = "/{x}"\n', "unknown placeholder {x}"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        read(tmp_path, text)


def test_the_example_and_the_page_name_every_key(tmp_path: Path) -> None:
    example = (ROOT / "conf" / "backfill.toml").read_text()
    page = (ROOT / "docs" / "backfill.md").read_text()
    load(ROOT / "conf" / "backfill.toml", None, {})
    for section, keys in SECTIONS.items():
        assert f"[{section}]" in example
        for key in keys:
            assert key.name in example, key.name
            assert section != "backfill" or f"`{key.name}`" in page, key.name


def test_the_configuration_is_printed(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(SOURCE + PROGRESS + SINK)
    lines = [" ".join(line.split()) for line in effective(file, None, {})]
    assert "offsets_per_step = 1000000 # default" in lines
    assert 'path = "/rows" # file' in lines
    assert not [line for line in lines if line.startswith("maxTriggerDelay")], "of streams only"


JOB = """
import time
from streamgroup.jobs.backfill import command as module
module.REDRAW_S = 0.02
with module.terminal_bar() as advance:
    time.sleep(0.1)
    advance(30, 120)
    time.sleep(0.1)
    print("backfill: step 3 of 12", flush=True)
    advance(120, 120)
    time.sleep(0.1)
print("over")
"""
IN_BACKGROUND = f"import os\nos.setpgid(0, 0)\n{JOB}"
SAID = "backfill: step 3 of 12\nover\n"


def run(argv: list[object], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["env", *(f"{name}={value}" for name, value in environment.items()), *map(str, argv)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        start_new_session=True,
    )


@pytest.mark.slow
def test_the_bar_is_on_the_terminal_and_standard_output_has_the_lines_alone() -> None:
    with terminal() as user:
        done = run(user.argv([sys.executable, "-c", JOB]), TERM="xterm")
    assert (done.stdout, done.stderr) == (SAID, "")
    drawn = user.text()
    assert all(part in drawn for part in ("0/?", " 25%", "30/120", "100%", "120/120", "offsets"))
    assert "\n" not in drawn, "the bar stays in its line"
    assert drawn.endswith("\r\x1b[K"), "it is erased at the end"
    assert "\x1b[?25l" not in drawn, "a job that is killed leaves a cursor to its user"


@pytest.mark.slow
def test_without_a_terminal_nothing_is_drawn() -> None:
    done = run([sys.executable, "-c", JOB], TERM="xterm")
    assert (done.stdout, done.stderr) == (SAID, "")


@pytest.mark.slow
def test_a_job_in_the_background_draws_nothing() -> None:
    # The shell stays in the foreground: the job is its child, in a process group of its own.
    shell = ["sh", "-c", '"$@" & wait $!', "sh", sys.executable, "-c", IN_BACKGROUND]
    with terminal() as user:
        done = run(user.argv(shell), TERM="xterm")
    assert (done.stdout, done.stderr, user.text()) == (SAID, "", "")


@pytest.mark.slow
def test_a_dumb_terminal_gets_no_control_sequences() -> None:
    with terminal() as user:
        done = run(user.argv([sys.executable, "-c", JOB]), TERM="dumb")
    assert (done.stdout, user.text()) == (SAID, "")


@pytest.mark.slow
def test_a_terminal_that_is_closed_meanwhile_does_not_end_the_job() -> None:
    failing = JOB.replace("module.REDRAW_S", "module.TerminalBar._line = fail\nmodule.REDRAW_S")
    failing = f"def fail(bar):\n    raise OSError(5, 'Input/output error')\n{failing}"
    with terminal() as user:
        done = run(user.argv([sys.executable, "-c", failing]), TERM="xterm")
    assert (done.stdout, done.stderr) == (SAID, "")
