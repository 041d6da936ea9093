"""The command of the soak: its exit codes, and what it says of a failed check."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.soak import __main__ as command
from tests.soak.judgement import Finding

GOOD = Finding("records lost", "0 of 9", "0", True)
BAD = Finding("largest lag, records", "999", "100", False)


@pytest.fixture(autouse=True)
def _no_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)


@pytest.mark.parametrize(
    ("findings", "code", "said"),
    [([GOOD], 0, ""), ([GOOD, BAD], 1, "soak: failed: largest lag, records (seed 7)\n")],
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
