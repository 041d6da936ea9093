"""The progress of a download is a line in a log, and a bar on a terminal."""

from __future__ import annotations

import io
import sys

import pytest

from streamgroup.testing.progress import progress


class Terminal(io.StringIO):
    """A terminal, which keeps all that was written to it."""

    def isatty(self) -> bool:
        return True


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Put a terminal of 80 columns in place of standard error. A fixture cannot: pytest then puts its own there."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    return made


def test_a_log_has_one_line_and_no_intermediate_states(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("fetching the jars of Kafka 3.9.1") as shown:
        for done in range(3):
            shown.update("kafka-clients-3.9.1.jar", done, 3)
    printed = capsys.readouterr()
    assert printed.err == "streamgroup: fetching the jars of Kafka 3.9.1\n"
    assert printed.out == "", "standard output belongs to the program that uses it"


def test_a_terminal_shows_the_step_and_how_many_of_how_many_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    with progress("fetching the jars of Kafka 3.9.1") as shown:
        shown.update("kafka-clients-3.9.1.jar", 2, 7)
    text = terminal.getvalue()
    assert text.startswith("streamgroup: fetching the jars of Kafka 3.9.1\n")
    assert "kafka-clients-3.9.1.jar" in text
    assert "2/7" in text


def test_a_terminal_shows_a_step_whose_total_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    with progress("fetching") as shown:
        shown.update("resolving", 4, None)
    assert "resolving" in terminal.getvalue()
    assert "4/?" in terminal.getvalue()


def test_an_error_within_the_block_is_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)

    def download() -> None:
        with progress("fetching"):
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        download()
    assert terminal.getvalue().startswith("streamgroup: fetching\n")
