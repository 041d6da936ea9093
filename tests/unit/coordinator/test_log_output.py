"""The coordinator's log: no thread that logs waits for the reader of stderr."""

from __future__ import annotations

import io
import logging
import os
import pickle
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress

import pytest

from streamgroup.coordinator import log_output
from streamgroup.coordinator.log_output import OptionNotesLog, StderrHandler
from streamgroup.options.notes import Caution
from tests.unit.coordinator.shells import SOON, running, until
from tests.unit.coordinator.test_stops import LEFT, Driver, end_of_file

FILLING = b"filling\n"


class Log:
    """A logger whose handler writes to a pipe that nobody reads before `read`."""

    def __init__(self) -> None:
        self._from, self._to = os.pipe()
        self.handler = StderrHandler(self._to)
        self.logger = logging.Logger("streamgroup")
        self.logger.addHandler(self.handler)

    def fill(self) -> None:
        """Fill the pipe, and log a line that then waits for the reader."""
        os.set_blocking(self._to, False)
        with suppress(BlockingIOError):
            while True:
                os.write(self._to, FILLING * 512)
        os.set_blocking(self._to, True)
        self.logger.warning("the first")
        until(self.handler._waiting.empty, "the thread has taken it")

    def read(self, last: str) -> list[str]:
        """Read the lines up to the one that ends with `last`."""
        with os.fdopen(os.dup(self._from)) as file:
            lines: list[str] = []
            while not lines or not lines[-1].endswith(last):
                lines.append(file.readline().rstrip("\n"))
        return [line for line in lines if line != FILLING.decode().strip()]

    def close(self, *, reader: bool) -> None:
        os.close(self._from if reader else self._to)


@pytest.fixture
def log() -> Iterator[Log]:
    made = Log()
    yield made
    for reader in (True, False):
        try:
            made.close(reader=reader)
        except OSError:
            assert reader, "the test has closed the reading end"


def test_lines_are_written_in_their_order_and_flushed(log: Log) -> None:
    for number in range(100):
        log.logger.warning("line %d", number)
    log.handler.flush()
    assert log.handler._waiting.empty()
    assert log.read("line 99") == [f"line {number}" for number in range(100)]


def test_what_nobody_reads_is_dropped_and_counted_and_nobody_waits(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_output, "MOST_WAITING", 10)
    log.fill()
    began = time.monotonic()
    for number in range(30):
        log.logger.warning("line %d", number)
    assert time.monotonic() - began < SOON
    lines = log.read("dropped: no process read this stderr")
    assert lines[:-1] == ["the first", *(f"line {number}" for number in range(10))], "the oldest, in their order"
    assert lines[-1] == "WARN streamgroup: 20 log messages were dropped: no process read this stderr"
    log.logger.warning("after it")
    assert log.read("after it") == ["after it"]


def test_a_flush_waits_for_the_reader_within_a_bound(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_output, "FLUSH_TIMEOUT_S", 0.05)
    log.fill()
    began = time.monotonic()
    log.handler.flush()
    assert 0.05 <= time.monotonic() - began < SOON


def test_a_reader_that_is_gone_ends_the_writing_quietly(log: Log) -> None:
    log.close(reader=True)
    log.logger.warning("for nobody")
    until(lambda: log.handler._is_broken, "the thread has seen it")
    log.logger.warning("for nobody either")
    log.handler.flush()
    assert log.handler._waiting.empty()


def test_a_pipe_that_was_made_non_blocking_loses_nothing(log: Log) -> None:
    log.fill()
    os.set_blocking(log._to, False)
    log.logger.warning("the last")
    assert log.read("the last") == ["the first", "the last"]


def test_a_message_that_cannot_be_formatted_is_named(log: Log) -> None:
    log.logger.warning("%d partitions", "many")
    (line,) = log.read("')")
    assert line.startswith("WARNING streamgroup: cannot format the log message '%d partitions': TypeError(")


@pytest.mark.slow
def test_heartbeats_go_on_while_nobody_reads_stderr_and_the_last_lines_are_written() -> None:
    """At SIGUSR1 the process logs more than a pipe holds, under the coordinator's lock."""
    with tempfile.TemporaryDirectory(prefix="sg-", dir="/tmp") as home:
        driver = Driver(home, stderr=subprocess.PIPE)
        try:
            os.kill(driver.coordinator, signal.SIGUSR1)
            driver.read_until("has logged")
            driver.read_until("heartbeat")
            assert driver.process.stderr is not None
            logged: list[str] = []

            def read() -> None:
                for line in driver.process.stderr or ():
                    logged.append(line)  # one by one: the test looks at them meanwhile

            with running(read):
                until(lambda: len(logged) > log_output.MOST_WAITING, "there is room for the last words")
                end_of_file(driver)
                driver.read_until(LEFT)
                driver.read_until("ended 1")
                driver.end()
        finally:
            driver.end()
    numbers = [int(line.split()[-1]) for line in logged if "... line " in line]
    assert len(numbers) >= log_output.MOST_WAITING
    assert numbers == sorted(numbers)
    assert any("log messages were dropped" in line for line in logged)
    assert "the last words" in "".join(logged)


@contextmanager
def no_logging(monkeypatch: pytest.MonkeyPatch) -> Iterator[logging.Logger]:
    """A process where nobody has set up logging, with a logger of its own."""
    with monkeypatch.context() as patched:  # pytest's own handlers are back before it takes them away
        made = logging.Logger("streamgroup")
        patched.setattr(log_output, "log", made)
        patched.setattr(logging.getLogger(), "handlers", [])
        yield made


def test_the_log_goes_to_stderr_once_in_the_level_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STREAMGROUP_LOG_LEVEL", "warning")
    with no_logging(monkeypatch) as logger:
        log_output.log_to_stderr()
        log_output.log_to_stderr()
        logger.info("not this")
        logger.warning("this")
        logger.handlers[0].flush()
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].endswith("WARNING streamgroup: this")


def test_warnings_of_a_program_that_has_not_configured_logging_have_their_time_and_level(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with no_logging(monkeypatch) as logger:
        log_output.log_warnings_to_stderr()
        log_output.log_warnings_to_stderr()
        replaced = io.StringIO()
        with redirect_stderr(replaced):  # as a notebook does
            logger.warning("this")
        logging.getLogger().addHandler(logging.NullHandler())
        logger.warning("not this, which the user's handlers get")
    (line,) = replaced.getvalue().splitlines()
    assert re.fullmatch(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d WARNING streamgroup: this", line)
    assert logger.propagate
    assert capsys.readouterr().err == ""


def test_logging_that_is_set_up_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with no_logging(monkeypatch) as logger:
        logging.getLogger().addHandler(logging.NullHandler())
        log_output.log_to_stderr()
    assert logger.handlers == []


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.message) for record in caplog.records]


def test_a_caution_is_logged_once_for_all_groups_of_a_process(caplog: pytest.LogCaptureFixture) -> None:
    notes = OptionNotesLog()
    with caplog.at_level("INFO", "streamgroup"):
        for group in ("g", "h", "g"):
            notes.log(["ignored option a", Caution("anybody can read it")], group)
    assert said(caplog) == [
        ("INFO", "g: ignored option a"),
        ("WARNING", "anybody can read it"),
        ("INFO", "h: ignored option a"),
    ]


def test_a_caution_stays_one_on_its_way_to_another_process() -> None:
    assert isinstance(pickle.loads(pickle.dumps(Caution("x"))), Caution)


def test_the_memory_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    notes = OptionNotesLog()
    notes.log(map(str, range(5_000)))
    assert len(notes._logged) <= 1_000
