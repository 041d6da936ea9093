"""The coordinator's process: whatever ends it, it leaves in time (R29). No thread that logs waits for the reader."""

from __future__ import annotations

import io
import logging
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from pathlib import Path

import pytest

from streamgroup.coordinator import log_output, process
from streamgroup.coordinator.control import channel
from streamgroup.coordinator.control.claims import Claim
from streamgroup.coordinator.log_output import OptionNotesLog, StderrHandler
from streamgroup.errors import ConfigError
from streamgroup.options.notes import Caution
from streamgroup.options.types import WEIGHT_OF_CORES, GroupOptions, SourceOptions
from tests.fakes.signals import kept_handlers
from tests.unit.coordinator.channels import home
from tests.unit.coordinator.shells import SOON, running, source, until

__all__ = ["home", "kept_handlers"]

ROOT = Path(__file__).parents[3]
LEFT = "left [(0, 10), (1, 10)]"
"""The first batch was proven; of the second, in flight, nothing is committed."""
WITHIN_S = 30.0
"""A second on the run's clock (`unit/coordinator/run/test_lifecycle.py`), however busy the machine is."""

PARENT = """
import signal, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)  # as the driver of a job, which drains first
print(child.pid, flush=True)
for line in sys.stdin:
    if not line.strip():
        break
    child.stdin.write(line.encode())
    child.stdin.flush()
child.stdin.close()
child.wait()
print("ended", child.returncode, flush=True)
sys.stdin.readline()
"""


class Driver:
    """A process whose child is the coordinator, as the JVM's is; killing it takes the conversation along.

    `wrapper` is what starts Python there, as PYSPARK_PYTHON does.
    """

    def __init__(self, home: str, *args: str, wrapper: Sequence[str] = (), stderr: int = subprocess.DEVNULL) -> None:
        self.block_manager = Path(home, "blockmgr-1")
        self.block_manager.mkdir()
        program = [*wrapper, sys.executable, "-m", "tests.unit.coordinator.stop_process"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", PARENT, *program, home, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "STREAMGROUP_LOG_LEVEL": "ERROR",
                "SPARK_LOCAL_DIRS": str(self.block_manager),
            },
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.coordinator = int(self.process.stdout.readline())
        self.read_until("ready")

    def read_until(self, line: str) -> list[str]:
        assert self.process.stdout is not None
        lines: list[str] = []
        while line not in lines:
            read = self.process.stdout.readline()
            assert read, f"it ended without {line!r}: {lines}"
            lines.append(read.strip())
        return lines

    def write(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.coordinator, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(SOON)


@pytest.fixture
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    with tempfile.TemporaryDirectory(prefix="sg-", dir="/tmp") as home:
        made = Driver(home, *getattr(request, "param", ()))
        yield made
        made.end()


def sigterm_twice(driver: Driver) -> None:
    """As Spark ends a query's Python process."""
    os.kill(driver.coordinator, signal.SIGTERM)
    time.sleep(0.01)
    with suppress(ProcessLookupError):
        os.kill(driver.coordinator, signal.SIGTERM)


def end_of_file(driver: Driver) -> None:
    """The JVM ends the conversation and lives on."""
    driver.write("\n")


def parent_gone(driver: Driver) -> None:
    """`kill -9` of the JVM: the conversation ends, and the parent is another one."""
    driver.process.kill()


def gone_while_it_was_stopped(driver: Driver) -> None:
    """It finds itself without a parent."""
    os.kill(driver.coordinator, signal.SIGSTOP)
    driver.process.kill()
    driver.process.wait(SOON)
    os.kill(driver.coordinator, signal.SIGCONT)


def context_stopped(driver: Driver) -> None:
    """`spark.stop()` in a notebook: the JVM and the query live on."""
    driver.block_manager.rmdir()


@pytest.mark.slow
@pytest.mark.parametrize(
    "end",
    [sigterm_twice, end_of_file, parent_gone, gone_while_it_was_stopped, context_stopped],
    ids=lambda end: end.__name__,
)
def test_whatever_ends_it_what_is_proven_is_committed_and_the_group_left(
    driver: Driver, end: Callable[[Driver], None]
) -> None:
    began = time.monotonic()
    end(driver)
    driver.read_until(LEFT)
    assert time.monotonic() - began < WITHIN_S


@pytest.mark.slow
@pytest.mark.parametrize("driver", [[str(int(signal.SIGTERM))]], indirect=True)
def test_a_sigterm_does_not_interrupt_a_leaving_that_the_end_of_the_conversation_has_begun(driver: Driver) -> None:
    """Spark interrupts its thread, whose conversation with us is closed by that, and then ends our process."""
    end_of_file(driver)
    driver.read_until(LEFT)
    driver.read_until("stopped")


@pytest.mark.slow
@pytest.mark.timeout(20)
def test_a_query_that_outlives_its_context_ends_with_its_next_call_and_can_be_started_again_before(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    context_stopped(driver)
    driver.read_until(LEFT)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(driver.block_manager.parent))
    claim = Claim(channel.directory(driver.process.pid), "g", "", "the next run")
    claim.take(timeout=SOON)
    claim.release()
    driver.write("next call\n")
    driver.read_until(
        "raised the SparkContext of this query has stopped, so the query has left its group and ends. Start it again "
        "in a new session"
    )
    driver.read_until("stopped")


def signal_group(driver: Driver) -> None:
    """Signal a process group, as a terminal's Ctrl-C, `timeout` and `kill -TERM -PGID` do."""
    for number in (signal.SIGINT, signal.SIGTERM):
        os.killpg(driver.process.pid, number)


@pytest.mark.slow
def test_a_signal_to_the_drivers_process_group_does_not_end_its_coordinator(driver: Driver) -> None:
    signal_group(driver)
    end_of_file(driver)
    driver.read_until(LEFT)
    driver.read_until("stopped")
    driver.read_until("ended 1")  # by the end of the conversation; SIGTERM ends it with 0


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/comm").exists(), reason="without /proc a test cannot name its process java")
def test_a_wrapper_that_does_not_exec_python_hides_the_coordinator_from_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="sg-", dir="/tmp") as home:
        monkeypatch.setattr(tempfile, "gettempdir", lambda: home)
        monkeypatch.setattr(sys.modules[__name__], "PARENT", "open('/proc/self/comm', 'w').write('java')\n" + PARENT)
        driver = Driver(home, wrapper=("/bin/sh", "-c", '"$@"; exit $?', "python"))
        try:
            (status,) = channel.statuses(driver.process.pid).values()
            assert status["group"] == "g"
            signal_group(driver)  # the shell ends by that, the coordinator does not
            driver.process.kill()
            driver.read_until(LEFT)
        finally:
            driver.end()


# -- signals, and the end of the JVM ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("kept_handlers", "home")
def test_sigterm_unwinds_once_and_ctrl_c_is_the_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[object] = []
    monkeypatch.setattr(process, "_watch_driver", lambda coordinator, channel, jvm: None)  # it would end the tests
    monkeypatch.setattr(process.atexit, "register", registered.append)
    group = os.getpgrp()
    coordinator = process.start_coordinator(source())
    try:
        assert os.getpgrp() == group, "this process is not one that Spark has started for a source"
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        with pytest.raises(SystemExit) as ended:
            signal.raise_signal(signal.SIGTERM)
        assert ended.value.code == 0
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN, "the second one must not interrupt the leaving"
    finally:
        coordinator.stop()
        assert coordinator.stop in registered, "where the signal comes before the runner has called it"
        for close in registered:
            close()  # type: ignore[operator]


def test_a_weight_of_auto_is_the_number_of_cores_that_the_listener_has_reported(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    made: list[SourceOptions] = []

    def stop_here(options: SourceOptions, **_: object) -> None:
        made.append(options)
        raise InterruptedError

    monkeypatch.setattr(process, "Coordinator", stop_here)
    options = source(group=GroupOptions("g", weight=WEIGHT_OF_CORES))
    with pytest.raises(ConfigError, match=r"group 'g': group.member.weight=auto needs .* streamgroup.listen\(spark\)"):
        process.start_coordinator(options)
    channel.announce_listener(process._find_jvm(), 24)
    with pytest.raises(InterruptedError):
        process.start_coordinator(options)
    assert [o.group.weight for o in made if o.group is not None] == [24]


ORPHAN = """
import os, sys, time
from streamgroup.coordinator import log_output, process
process.PARENT_EVERY_S = 0.01
fails = "fails" in sys.argv
class Fake:
    def __init__(self, name): self.name, self.silence = name, self
    def look(self, jvm_is_stopped):
        if fails: raise ValueError("a defect")
    def stop(self, last_word):
        os.write(1, b"stopped " if not last_word else b"waits for whom? ")
        if fails: raise ValueError("another")
    def close(self): os.write(1, b"closed")
parent = os.getpid()
if os.fork() == 0:
    os.write(1, b"watching ")
    process._watch_driver(Fake("coordinator"), Fake("channel"), parent)
    os.write(1, b" lives on")
time.sleep(0.1)
os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["", "fails"])
def test_a_coordinator_whose_jvm_is_gone_leaves_and_ends(fault: str) -> None:
    command = [sys.executable, "-c", ORPHAN, fault]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=SOON * 4, check=True)
    assert ended.stdout == b"watching stopped closed"


# -- the log ----------------------------------------------------------------------------------------------------------

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
