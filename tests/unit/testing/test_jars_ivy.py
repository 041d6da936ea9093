from __future__ import annotations

from pathlib import Path

import pytest

from streamgroup.errors import ConfigError, TransportError
from streamgroup.testing import jars
from streamgroup.testing.releases import Coordinate

COORDINATE = Coordinate("org.example", "thing_2.13", "1.2.3")
FOUND = "\tfound org.example#a;1 in public\n\tfound org.example#b;2 in public\n"
DOWNLOADED = "downloading somewhere/a.jar ...\n.... (12kB)\n\t[SUCCESSFUL ] org.example#a;1!a.jar (239ms)\n"
NOT_FOUND = "\t\t:: org.example#thing_2.13;1.2.3: not found\n"
NO_NETWORK = ":::: ERRORS\n\tServer access error at url somewhere (java.net.UnknownHostException: somewhere)\n"


class Recorder:
    def __init__(self) -> None:
        self.steps: list[tuple[str, int, int | None]] = []

    def update(self, step: str, done: int, total: int | None) -> None:
        self.steps.append((step, done, total))


@pytest.mark.parametrize(
    ("output", "stage"),
    [
        ("", ("finding dependencies", 0, None)),
        (FOUND, ("finding dependencies", 2, None)),
        (FOUND + "downloading somewhere/a.jar ...\n..", ("downloading", 0, 2)),
        (FOUND + DOWNLOADED, ("downloading", 1, 2)),
    ],
)
def test_the_stage_is_parsed_from_the_output_of_ivy(output: str, stage: tuple[str, int, int | None]) -> None:
    assert jars.stage_of(output) == stage


def test_an_unknown_module_and_an_unreachable_repository_are_different_errors() -> None:
    unknown, unreachable = jars.failure_of(COORDINATE, NOT_FOUND), jars.failure_of(COORDINATE, NOT_FOUND + NO_NETWORK)
    assert isinstance(unknown, ConfigError)
    assert "cannot download org.example:thing_2.13:1.2.3: Ivy's repositories do not have it" in str(unknown)
    assert isinstance(unreachable, TransportError)
    assert "is unreachable" in str(unreachable)
    assert "UnknownHostException" in str(unreachable)


def test_any_other_failure_shows_ivys_last_words() -> None:
    assert str(jars.failure_of(COORDINATE, "Exception in thread main\n")).endswith("Exception in thread main")


def test_ivy_runs_with_its_own_settings_and_no_repository_named() -> None:
    argv = jars.ivy_command(COORDINATE, Path("/cache/x"), transitive=False)
    arguments = argv[argv.index("org.apache.ivy.Main") + 1 :]
    assert arguments[:4] == ["-dependency", "org.example", "thing_2.13", "1.2.3"]
    assert "-notransitive" in arguments
    assert "-settings" not in arguments
    assert not any("://" in argument for argument in argv)


def run(script: str, into: Path, monkeypatch: pytest.MonkeyPatch, timeout_s: float = 60) -> Recorder:
    monkeypatch.setattr(jars, "ivy_command", lambda *_, **__: ["/bin/sh", "-c", script])
    recorder = Recorder()
    jars.run_ivy(COORDINATE, into, transitive=True, timeout_s=timeout_s, shown=recorder)
    return recorder


@pytest.mark.slow
def test_progress_is_shown_while_ivy_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown, update = tmp_path / "shown", Recorder.update

    def note(recorder: Recorder, step: str, done: int, total: int | None) -> None:
        update(recorder, step, done, total)
        if done == 2:
            shown.touch()

    monkeypatch.setattr(Recorder, "update", note)
    recorder = run(f"printf '{FOUND}'; until [ -e {shown} ]; do sleep 0.02; done", tmp_path / "jars", monkeypatch)
    assert ("finding dependencies", 2, None) in recorder.steps
    assert not (tmp_path / "jars.log").exists()


def test_an_ivy_that_hangs_is_ended_at_the_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TransportError, match=r"in 0 s[\s\S]*stuck"):
        run("echo stuck; exec sleep 60", tmp_path / "jars", monkeypatch, timeout_s=0.2)


def test_an_ivy_that_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="repositories do not have it"):
        run(f"printf '{NOT_FOUND}'; exit 1", tmp_path / "jars", monkeypatch)
