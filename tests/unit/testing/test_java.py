from __future__ import annotations

import os
from pathlib import Path

import pytest

from streamgroup.errors import ConfigError
from streamgroup.testing.java import (
    archive_flags,
    archive_path,
    java_command,
    java_executable,
    parse_java_version,
    pyspark_jar_files,
)


def fake_java(directory: Path, version: str) -> Path:
    executable = directory / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    executable.chmod(0o755)
    return executable


@pytest.mark.parametrize(
    ("text", "version", "feature"),
    [
        ('openjdk version "17.0.15" 2025-04-15', "17.0.15", 17),
        ('java version "1.8.0_402"', "1.8.0_402", 8),
        ('openjdk version "25" 2025-09-16', "25", 25),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx=y\nopenjdk version "21.0.2" 2024-01-16 LTS', "21.0.2", 21),
    ],
)
def test_the_version_and_its_feature_release_are_read(text: str, version: str, feature: int) -> None:
    assert parse_java_version("java", text) == (version, feature)


def test_a_java_that_names_no_version_is_an_error() -> None:
    with pytest.raises(ConfigError, match="cannot read the version"):
        parse_java_version("/opt/java", "command not found")


def test_an_old_java_is_refused_by_name_and_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable = fake_java(tmp_path, "11.0.22")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=rf"unsupported Java 11 at {executable}: Java 17 or newer is needed"):
        java_executable()


def test_no_java_says_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigError, match="no java on the PATH"):
        java_executable()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"JAVA_HOME is .* which has no bin/java"):
        java_executable()


def test_a_command_has_flags_before_the_class_and_arguments_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable = fake_java(tmp_path, "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))  # it comes before the PATH
    assert java_executable() == executable
    argv = java_command("a.Main", ["x", "y"], classpath=[Path("/a.jar"), Path("/b.jar")], flags=["-Xmx1m"])
    assert argv == [str(executable), "-Xmx1m", "-cp", f"/a.jar{os.pathsep}/b.jar", "a.Main", "x", "y"]


def test_pyspark_brings_ivy_and_zookeeper() -> None:
    found = pyspark_jar_files("ivy-*.jar", "zookeeper-3*.jar")
    assert [jar.name.split("-")[0] for jar in found] == ["ivy", "zookeeper"]
    with pytest.raises(ConfigError, match=r"no-such-\*\.jar"):
        pyspark_jar_files("no-such-*.jar")


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
