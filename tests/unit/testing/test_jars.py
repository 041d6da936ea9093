from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from streamgroup.errors import ChecksumMismatch, TransportError
from streamgroup.testing import jars
from streamgroup.testing.releases import Coordinate

WHAT = ("org.example", "thing", "1.0")


def write_jar(file: Path, text: str = "content") -> None:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", text)


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
    jars._sums_checked.cache_clear()
    return tmp_path


@pytest.fixture
def fake_ivy(monkeypatch: pytest.MonkeyPatch) -> FakeIvy:
    fake = FakeIvy()
    monkeypatch.setattr(jars, "run_ivy", fake)
    return fake


def test_jars_are_resolved_once_and_then_come_from_the_cache(cache: Path, fake_ivy: FakeIvy) -> None:
    first = jars.resolve(*WHAT)
    jars._sums_checked.cache_clear()  # as another process would begin
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
    with pytest.raises(ChecksumMismatch, match=r"thing-1\.0\.jar: size is .* Remove .*thing-1\.0 and try again"):
        jars.resolve(*WHAT)


def test_a_jar_of_the_same_size_with_other_bytes_is_found_by_the_next_process(fake_ivy: FakeIvy) -> None:
    _, jar = jars.resolve(*WHAT)
    data = bytearray(jar.read_bytes())
    data[len(data) // 2] ^= 1
    jar.write_bytes(data)
    jars._sums_checked.cache_clear()
    with pytest.raises(ChecksumMismatch, match="SHA-256"):
        jars.resolve(*WHAT)


def test_a_jar_that_is_gone_is_named(fake_ivy: FakeIvy) -> None:
    _, jar = jars.resolve(*WHAT)
    jar.unlink()
    with pytest.raises(ChecksumMismatch, match=r"thing-1\.0\.jar: size is None"):
        jars.resolve(*WHAT)


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
    with pytest.raises(TransportError, match="arrived damaged"):
        jars.resolve(*WHAT)
    assert [p.name for p in cache.iterdir()] == ["thing-1.0.lock"]


def test_a_failed_resolution_leaves_nothing_and_the_next_one_starts_anew(
    cache: Path, monkeypatch: pytest.MonkeyPatch, fake_ivy: FakeIvy
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise TransportError("no network")

    with monkeypatch.context() as without_network:
        without_network.setattr(jars, "run_ivy", fail)
        with pytest.raises(TransportError, match="no network"):
            jars.resolve(*WHAT)
    assert not (cache / "thing-1.0").exists()
    assert len(jars.resolve(*WHAT)) == 2


def test_what_an_interrupted_process_left_without_a_manifest_is_replaced(cache: Path, fake_ivy: FakeIvy) -> None:
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
