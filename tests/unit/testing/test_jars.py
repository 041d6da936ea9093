from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from streamgroup.errors import ChecksumMismatch, ConfigError, TransportError
from streamgroup.testing import jars, java_tool
from streamgroup.testing.jars import progress
from streamgroup.testing.releases import Coordinate
from tests import bring_jars
from tests.waiting import wait_until

WHAT = ("org.example", "thing", "1.0")


def write_jar(file: Path, text: str = "content") -> None:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF"), text)  # with a fixed time: the same bytes each time


class FakeIvy:
    """Writes two jars and counts how often it was asked."""

    def __init__(self, write: Callable[[Path], None] = write_jar) -> None:
        self.calls: list[bool] = []
        self.write = write

    def __call__(
        self, coordinate: Coordinate, into: Path, *, transitive: bool, timeout_s: float, shown: object
    ) -> None:
        self.calls.append(transitive)
        for name in ("thing-1.0.jar", "needed-2.0.jar"):
            self.write(into / name)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STREAMGROUP_CACHE", str(tmp_path))
    jars._sum_of.cache_clear()
    return tmp_path


@pytest.fixture
def fake_ivy(monkeypatch: pytest.MonkeyPatch) -> FakeIvy:
    fake = FakeIvy()
    monkeypatch.setattr(jars, "run_ivy", fake)
    return fake


def test_jars_are_resolved_once_and_then_come_from_the_cache(cache: Path, fake_ivy: FakeIvy) -> None:
    first = jars.resolve(*WHAT)
    jars._sum_of.cache_clear()  # as another process would begin
    assert jars.resolve(*WHAT) == first == (cache / "thing-1.0/needed-2.0.jar", cache / "thing-1.0/thing-1.0.jar")
    assert fake_ivy.calls == [True]


def test_a_module_alone_is_kept_apart_from_the_one_with_its_dependencies(fake_ivy: FakeIvy) -> None:
    jars.resolve(*WHAT)
    (alone, *_) = jars.resolve(*WHAT, transitive=False)
    assert alone.parent.name == "thing-1.0-alone"
    assert fake_ivy.calls == [True, False]


def test_the_manifest_holds_sizes_and_sums_and_no_work_files_remain(cache: Path, fake_ivy: FakeIvy) -> None:
    found = jars.resolve(*WHAT)
    manifest = json.loads((cache / "thing-1.0" / jars.MANIFEST).read_text())
    assert manifest["module"] == "org.example:thing:1.0"
    assert [(e["name"], e["size"]) for e in manifest["files"]] == [(f.name, f.stat().st_size) for f in found]
    assert all(len(e["sha256"]) == 64 for e in manifest["files"])
    assert sorted(p.name for p in cache.iterdir()) == ["thing-1.0", "thing-1.0.lock"]


def test_a_jar_that_changed_its_size_is_found_at_every_use(fake_ivy: FakeIvy) -> None:
    _, jar = jars.resolve(*WHAT)
    jar.write_bytes(jar.read_bytes() + b"x")
    with pytest.raises(
        ChecksumMismatch, match=r"wrong SHA-256 of .*thing-1\.0\.jar: .* Remove .*thing-1\.0 and try again"
    ):
        jars.resolve(*WHAT)


def change_a_byte(jar: Path) -> None:
    """Change the content of a jar, and neither its size nor the time of its modification."""
    before = jar.stat()
    data = bytearray(jar.read_bytes())
    data[len(data) // 2] ^= 1
    jar.write_bytes(data)
    os.utime(jar, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert jar.stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize("is_same_process", [True, False])
def test_a_jar_of_the_same_size_and_time_with_other_bytes_is_found_at_every_use(
    fake_ivy: FakeIvy, is_same_process: bool
) -> None:
    _, jar = jars.resolve(*WHAT)
    wait_until(lambda: time.time() > jar.stat().st_ctime + 0.02, "the clock of the file system has gone on")
    change_a_byte(jar)
    if not is_same_process:
        jars._sum_of.cache_clear()
    with pytest.raises(ChecksumMismatch, match="SHA-256"):
        jars.resolve(*WHAT)


def test_a_jar_that_is_gone_is_named(fake_ivy: FakeIvy) -> None:
    _, jar = jars.resolve(*WHAT)
    jar.unlink()
    with pytest.raises(ChecksumMismatch, match=r"missing jar .*thing-1\.0\.jar"):
        jars.resolve(*WHAT)


# -- pins -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def pinned(cache: Path, fake_ivy: FakeIvy, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The pins of the module, which is not in the cache yet; a test may change them."""
    jars.resolve(*WHAT)
    sums = jars.manifest_sums(cache / "thing-1.0")
    shutil.rmtree(cache / "thing-1.0")
    monkeypatch.setattr(jars, "pins_of", {"thing-1.0": sums}.get)
    return sums


def test_pinned_jars_enter_the_cache_and_are_taken_from_it(cache: Path, pinned: dict[str, str]) -> None:
    for _ in range(2):
        assert [jar.name for jar in jars.resolve(*WHAT)] == sorted(pinned)


@pytest.mark.parametrize(
    ("lacks", "has"),
    [("", {"thing-1.0.jar": "0" * 64}), ("", {"more-1.0.jar": "0" * 64}), ("thing-1.0.jar", {})],
    ids=["another", "one more", "one less"],
)
def test_jars_that_are_not_the_pinned_ones_never_enter_the_cache(
    cache: Path, pinned: dict[str, str], lacks: str, has: dict[str, str]
) -> None:
    pinned.pop(lacks, None)
    pinned.update(has)
    with pytest.raises(
        ChecksumMismatch, match=r"jars of org\.example:thing:1\.0 differ from those pinned in .*: \w+-1\.0"
    ):
        jars.resolve(*WHAT)
    assert not (cache / "thing-1.0").exists()


def test_sums_beside_the_jars_do_not_stand_in_for_the_pins(cache: Path, pinned: dict[str, str]) -> None:
    """An attacker who changes a jar in the cache changes the manifest beside it, too."""
    _, jar = jars.resolve(*WHAT)
    change_a_byte(jar)
    manifest = cache / "thing-1.0" / jars.MANIFEST
    changed = hashlib.sha256(jar.read_bytes()).hexdigest()
    manifest.write_text(manifest.read_text().replace(pinned["thing-1.0.jar"], changed))
    jars._sum_of.cache_clear()
    with pytest.raises(
        ChecksumMismatch, match=rf"wrong SHA-256 of .*thing-1\.0\.jar: it is {changed}, and \w+ in .*jars\.sha256"
    ):
        jars.resolve(*WHAT)


def test_every_module_of_the_project_is_pinned_and_no_other() -> None:
    modules = (*bring_jars.of_tests(), *bring_jars.of_spark(), *bring_jars.of_long_tests())
    names = {jars.directory_name(coordinate, transitive=transitive) for coordinate, transitive in modules}
    assert names == jars.pinned()
    for coordinate, transitive in modules:
        of_jars = jars.pins_of(jars.directory_name(coordinate, transitive=transitive)) or {}
        assert all(re.fullmatch("[0-9a-f]{64}", sum_) for sum_ in of_jars.values())
        assert any(name.startswith(f"{coordinate.module}-{coordinate.revision}") for name in of_jars)
    assert jars.pins_of("thing-1.0") is None


def test_pins_are_read_as_they_were_written_and_by_sha256sum(tmp_path: Path) -> None:
    file = tmp_path / "jars.sha256"
    sums = {"b-1": {"x.jar": "1" * 64}, "a-1": {"y.jar": "2" * 64, "x.jar": "3" * 64}}
    jars.write_pins(sums, file)
    assert {name: jars.pins_of(name, file) for name in jars.pinned(file)} == sums
    assert file.read_text().splitlines() == [
        f"{'3' * 64}  a-1/x.jar",
        f"{'2' * 64}  a-1/y.jar",
        f"{'1' * 64}  b-1/x.jar",
    ]


# -- the cache's owner ------------------------------------------------------------------------------------------------

in_the_cache = pytest.mark.parametrize("where", ["", "thing-1.0", "thing-1.0/manifest.json", "thing-1.0/thing-1.0.jar"])


@in_the_cache
@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_a_cache_that_others_may_write_to_is_not_used(cache: Path, fake_ivy: FakeIvy, where: str, mode: int) -> None:
    jars.resolve(*WHAT)
    (cache / where).chmod(mode)
    with pytest.raises(
        ConfigError, match=rf"other users may write to it \(mode {mode:o}\).* Run: chmod -R go-w {cache}$"
    ):
        jars.resolve(*WHAT)


@in_the_cache
def test_a_cache_of_another_user_is_not_used(
    cache: Path, fake_ivy: FakeIvy, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    jars.resolve(*WHAT)
    if os.geteuid() == 0:
        os.chown(cache / where, 12345, -1)
    else:  # only root can give files away: this process takes itself for another user
        user = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(ConfigError, match=r"it belongs to user \d+, not to this one .* set STREAMGROUP_CACHE"):
        jars.resolve(*WHAT)
    assert fake_ivy.calls == [True], "no second download"


def test_a_cache_that_every_user_may_replace_is_not_used(
    cache: Path, fake_ivy: FakeIvy, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cache / "below" / "cache").mkdir(parents=True)
    (cache / "below").chmod(0o777)
    monkeypatch.setenv("STREAMGROUP_CACHE", str(cache / "below" / "cache"))
    with pytest.raises(ConfigError, match="put another directory in its place"):
        jars.resolve(*WHAT)
    assert fake_ivy.calls == []


def test_the_umask_makes_the_cache_writable_to_no_other_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_ivy: FakeIvy
) -> None:
    monkeypatch.setenv("STREAMGROUP_CACHE", str(tmp_path / "below" / "new"))
    before = os.umask(0)
    try:
        found = jars.resolve(*WHAT)
        assert jars.resolve(*WHAT) == found
    finally:
        os.umask(before)


# -- bringing them ----------------------------------------------------------------------------------------------------


def truncated(file: Path) -> None:
    write_jar(file)
    file.write_bytes(file.read_bytes()[:-10])


def flipped(file: Path) -> None:
    write_jar(file, "a" * 100)
    data = bytearray(file.read_bytes())
    data[80] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize("damage", [truncated, flipped])
def test_a_damaged_jar_never_enters_the_cache(
    cache: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None]
) -> None:
    monkeypatch.setattr(jars, "run_ivy", FakeIvy(damage))
    with pytest.raises(TransportError, match="damaged download"):
        jars.resolve(*WHAT)
    assert [p.name for p in cache.iterdir()] == ["thing-1.0.lock"]


def test_a_failed_resolution_leaves_no_files_and_the_next_one_starts_again(cache: Path, fake_ivy: FakeIvy) -> None:
    def fail(_: Path) -> None:
        raise TransportError("no network")

    fake_ivy.write = fail
    with pytest.raises(TransportError, match="no network"):
        jars.resolve(*WHAT)
    assert not (cache / "thing-1.0").exists()
    fake_ivy.write = write_jar
    assert len(jars.resolve(*WHAT)) == 2


def test_a_directory_without_a_manifest_is_replaced(cache: Path, fake_ivy: FakeIvy) -> None:
    (cache / "thing-1.0").mkdir()
    (cache / "thing-1.0" / "half.jar").write_bytes(b"PK")
    assert [jar.name for jar in jars.resolve(*WHAT)] == ["needed-2.0.jar", "thing-1.0.jar"]
    assert not (cache / "thing-1.0" / "half.jar").exists()


def test_elsewhere_than_on_a_terminal_two_plain_lines_are_shown(
    fake_ivy: FakeIvy, capsys: pytest.CaptureFixture[str]
) -> None:
    jars.resolve(*WHAT)
    shown = capsys.readouterr()
    assert shown.out == ""
    began, ended = shown.err.splitlines()
    assert began.startswith("streamgroup: resolving org.example:thing:1.0 into ")
    assert ended.startswith("streamgroup: org.example:thing:1.0: 2 jars, ")


class Terminal(io.StringIO):
    """A terminal, which keeps all that was written to it."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_the_step_and_how_many_of_how_many_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)  # a fixture cannot: pytest then puts its own there
    with progress("fetching the jars of Kafka 3.9.1") as shown:
        shown.update("kafka-clients-3.9.1.jar", 2, 7)
    text = terminal.getvalue()
    assert text.startswith("streamgroup: fetching the jars of Kafka 3.9.1\n")
    assert "kafka-clients-3.9.1.jar" in text
    assert "2/7" in text


def test_an_emulated_kafka_has_no_tools() -> None:
    with pytest.raises(ConfigError, match=r"no jars of Kafka 0\.7"):
        java_tool("0.7", "kafka.tools.ConsoleConsumer")


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


def test_an_unknown_module_an_unreachable_repository_and_other_failures_are_different_errors() -> None:
    unknown, unreachable = jars.failure_of(COORDINATE, NOT_FOUND), jars.failure_of(COORDINATE, NOT_FOUND + NO_NETWORK)
    assert isinstance(unknown, ConfigError)
    assert "cannot download org.example:thing_2.13:1.2.3: Ivy's repositories do not have it" in str(unknown)
    assert isinstance(unreachable, TransportError)
    assert "is unreachable" in str(unreachable)
    assert "UnknownHostException" in str(unreachable)
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
