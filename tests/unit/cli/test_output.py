"""A command writes records to standard output and notices to standard error, and a signal ends it between two steps."""

from __future__ import annotations

import io
import logging
import os
import signal
import threading

import pyarrow as pa
import pytest

from streamgroup.cli._output import Notices, RecordPrinter, StopSignals, quiet_when_closed
from streamgroup.cli._record_format import FormatToken, TextFormat
from streamgroup.logformat import KAFKA_LOG
from tests.unit.cli.test_record_format import batch_of

log = logging.getLogger("streamgroup")


def batch(*values: bytes) -> pa.RecordBatch:
    record = {"key": None, "offset": 0, "timestamp": 0, "kind": 0, "headers": None}
    return batch_of([{**record, "value": value} for value in values])


def printer(stream: io.BytesIO, count: int | None) -> RecordPrinter:
    return RecordPrinter(stream, TextFormat((FormatToken.VALUE, b" ")), count)


# -- records -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "whole", "printed", "left"),
    [
        (None, [True, True], b"a b c d ", None),
        (5, [True, True], b"a b c d ", 1),
        (4, [True, True], b"a b c d ", 0),
        (3, [True, False], b"a b c ", 0),
        (2, [True, False], b"a b ", 0),
        (1, [False, False], b"a ", 0),
    ],
)
def test_no_more_than_the_count_is_printed_and_a_batch_that_is_cut_is_reported(
    count: int | None, whole: list[bool], printed: bytes, left: int | None
) -> None:
    stream = io.BytesIO()
    made = printer(stream, count)
    assert [made.print(each, KAFKA_LOG) for each in (batch(b"a", b"b"), batch(b"c", b"d"))] == whole
    assert (stream.getvalue(), made.left, made.is_done) == (printed, left, left == 0)


def test_each_batch_is_flushed_so_that_a_reader_sees_it_at_once() -> None:
    raw = io.BytesIO()
    made = RecordPrinter(io.BufferedWriter(raw), TextFormat((FormatToken.VALUE, b" ")), None)  # type: ignore[arg-type]
    made.print(batch(b"a"), KAFKA_LOG)
    assert raw.getvalue() == b"a "


def test_a_reader_that_has_closed_the_stream_ends_the_command_without_an_error() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "wb") as stream:
        made = RecordPrinter(stream, TextFormat((FormatToken.VALUE, b" ")), None)
        with quiet_when_closed(stream):
            made.print(batch(b"a"), KAFKA_LOG)
            pytest.fail("the pipe is closed")
        stream.flush()  # as the interpreter does when it ends


def test_another_error_of_the_stream_is_raised() -> None:
    with pytest.raises(OSError, match="no space left"), quiet_when_closed(io.BytesIO()):
        raise OSError("no space left")


# -- notices -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("verbosity", "said"), [(0, ""), (1, "% one\n"), (2, "% one\n% two\n")])
def test_a_notice_is_printed_from_its_verbosity_on(
    verbosity: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    notices = Notices(verbosity)
    notices.say("one")
    notices.say("two", 2)
    assert capsys.readouterr() == ("", said)


@pytest.mark.parametrize(
    ("verbosity", "shown"),
    [
        (0, ["ERROR"]),
        (1, ["ERROR", "WARNING"]),
        (2, ["ERROR", "WARNING", "INFO"]),
        (3, ["ERROR", "WARNING", "INFO", "DEBUG"]),
        (9, ["ERROR", "WARNING", "INFO", "DEBUG"]),
    ],
)
def test_log_lines_are_shown_from_the_level_of_the_verbosity_on(
    verbosity: int, shown: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with Notices(verbosity).logging():
        for level in (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG):
            log.log(level, "at %s", "once")
    assert capsys.readouterr().err == "".join(f"% {level}: at once\n" for level in shown)


def test_the_logger_is_afterwards_as_it_was_also_after_an_error() -> None:
    before = (log.level, log.propagate, list(log.handlers))

    def fail() -> None:
        with Notices(2).logging():
            assert not log.propagate, "a handler of the root logger would print the line a second time"
            raise ValueError("a defect")

    with pytest.raises(ValueError, match="a defect"):
        fail()
    assert (log.level, log.propagate, log.handlers) == before


def test_a_level_that_was_hidden_meanwhile_is_enabled_again() -> None:
    assert log.isEnabledFor(logging.WARNING)
    with Notices(0).logging():
        assert not log.isEnabledFor(logging.WARNING)
    assert log.isEnabledFor(logging.WARNING)


# -- signals -----------------------------------------------------------------------------------------------------------


def test_a_signal_lets_a_step_be_completed_and_a_second_one_does_not() -> None:
    steps: list[str] = []

    def step(signals: StopSignals) -> None:
        with signals.waiting():
            with signals.completing():
                os.kill(os.getpid(), signal.SIGINT)
                steps.append("completed")
            steps.append("not reached")

    def second(signals: StopSignals) -> None:
        with signals.completing():
            os.kill(os.getpid(), signal.SIGINT)

    with StopSignals() as signals:
        with pytest.raises(SystemExit) as ended:
            step(signals)
        assert (ended.value.code, steps) == (0, ["completed"])
        with pytest.raises(SystemExit) as ended:
            second(signals)
        assert ended.value.code == 1
        with signals.ending():
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_before_a_wait_ends_the_wait_at_its_beginning() -> None:
    steps: list[str] = []

    def wait(signals: StopSignals) -> None:
        with signals.waiting():
            steps.append("waited")

    with StopSignals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.asked
        with pytest.raises(SystemExit) as ended:
            wait(signals)
    assert (ended.value.code, steps) == (0, [])


def test_without_a_signal_a_completed_step_lets_the_wait_go_on() -> None:
    steps: list[str] = []
    with StopSignals() as signals, signals.waiting():
        for number in ("first", "second"):
            with signals.completing():
                steps.append(number)
        assert not signals.asked
    assert steps == ["first", "second"]


def test_a_wait_with_an_interrupt_of_its_own_is_ended_by_it_and_the_one_around_has_its_own_again() -> None:
    calls: list[str] = []
    with StopSignals() as signals, signals.waiting(lambda: calls.append("outer")):
        with signals.waiting(lambda: calls.append("inner")):
            os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
    assert calls == ["inner", "outer"]


def test_outside_of_the_main_thread_signals_keep_their_handlers() -> None:
    found: list[object] = []

    def enter() -> None:
        with StopSignals() as signals:
            found.extend((signal.getsignal(signal.SIGTERM), signals.asked))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join(5)
    assert found == [signal.getsignal(signal.SIGTERM), False]
