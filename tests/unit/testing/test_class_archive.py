"""The archives of classes in the user's cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from streamgroup.errors import ConfigError
from streamgroup.testing.class_archive import archive_flags, archive_path

JARS = (Path("/jars/a.jar"), Path("/jars/b.jar"))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STREAMGROUP_CACHE", str(tmp_path))
    return tmp_path


def test_each_main_class_and_classpath_has_an_archive_of_its_own(cache: Path) -> None:
    paths = {archive_path("a.Main", JARS), archive_path("b.Main", JARS), archive_path("a.Main", JARS[:1])}
    assert len(paths) == 3
    assert archive_path("a.Main", JARS) in paths, "it is the same in each process"
    assert {path.parent for path in paths} == {cache / "classes"}


def test_jars_that_were_written_anew_have_an_archive_of_their_own(tmp_path: Path) -> None:
    """Java refuses the earlier one, so a new environment at the same place would never have any."""
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"jar")
    earlier = archive_path("a.Main", [jar])
    assert archive_path("a.Main", [jar]) == earlier
    os.utime(jar, ns=(1, 1))
    assert archive_path("a.Main", [jar]) != earlier


def test_a_jvm_maps_the_archive_only_where_there_is_one() -> None:
    path = archive_path("a.Main", JARS)
    assert archive_flags("a.Main", JARS) == ()
    path.parent.mkdir()
    path.touch(0o644)
    assert archive_flags("a.Main", JARS) == (f"-XX:SharedArchiveFile={path}", "-Xshare:auto")


@pytest.mark.parametrize("writable", ["directory", "file"])
def test_an_archive_that_others_may_write_to_is_refused(writable: str) -> None:
    path = archive_path("a.Main", JARS)
    path.parent.mkdir()
    path.touch(0o644)
    (path if writable == "file" else path.parent).chmod(0o777)
    with pytest.raises(ConfigError, match="change the classes that run here"):
        archive_flags("a.Main", JARS)
