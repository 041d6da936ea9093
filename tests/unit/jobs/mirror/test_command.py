"""The command line of the mirror."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamgroup.errors import ConfigError, TransportError
from streamgroup.jobs import job_run
from streamgroup.jobs.mirror import command
from streamgroup.jobs.mirror.config import MirrorConfig
from streamgroup.jobs.signals import StopAtOnce

ROOT = Path(__file__).parents[4]
ARGUMENTS = ("--config", str(ROOT / "conf" / "mirror.toml"), "--member", "a")


def exit_code(*arguments: str) -> object:
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    return ended.value.code


def test_check_needs_no_spark(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "run", lambda _: pytest.fail("Spark was wanted"))
    command.main([*ARGUMENTS, "--check"])
    assert capsys.readouterr().out.endswith("mirror.toml is a valid mirror\n")


def test_a_bad_file_is_one_clean_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job.toml").write_text("[sources]\n")
    assert exit_code("--config", str(tmp_path / "job.toml")) == job_run.MISCONFIGURED
    said = capsys.readouterr().err
    assert said.startswith("mirror: error: invalid job file ")
    assert "unknown section [sources]. Did you mean [source]?" in said


def test_bad_arguments_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("--confg", "x") == job_run.MISCONFIGURED
    assert "--config" in capsys.readouterr().err


@pytest.mark.parametrize(("error", "code"), [(TransportError("gone"), 1), (ConfigError("wrong"), 2), (StopAtOnce(), 1)])
def test_how_a_mirror_ended_is_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_: MirrorConfig) -> None:
        raise error

    monkeypatch.setattr(command, "run", run)
    assert exit_code(*ARGUMENTS) == code
    assert str(error) in capsys.readouterr().err


def test_a_copy_that_differs_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "run_verify", lambda _: ["something is lost"])
    assert exit_code(*ARGUMENTS, "--verify") == job_run.FAILED


def test_a_complete_copy_is_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "run_verify", lambda _: [])
    command.main([*ARGUMENTS, "--verify"])


def test_the_submitted_script_is_two_lines_of_code() -> None:
    script = (ROOT / "jobs" / "mirror.py").read_text().splitlines()
    assert [line for line in script[1:] if line] == ["from streamgroup.jobs.mirror.command import main", "main()"]
