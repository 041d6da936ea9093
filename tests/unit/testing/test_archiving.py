"""The archives of a server's classes are written once into the user's cache, by a start of each server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from streamgroup.testing import archiving, kafka, zookeeper
from streamgroup.testing.archiving import archive_classes
from streamgroup.testing.java import archive_flags, archive_path
from streamgroup.testing.processes import ServerStartError

KAFKA_JARS = (Path("/jars/kafka.jar"),)
ZOOKEEPER_JARS = (Path("/jars/zookeeper.jar"),)
LOGGING_JARS = (Path("/jars/log4j.jar"),)
ARCHIVES_AT_EXIT = "-XX:ArchiveClassesAtExit="


class Java:
    """The JVMs of a test. One writes its archive as it exits, if it knows archives."""

    def __init__(self) -> None:
        self.flags: list[tuple[str, ...]] = []
        """The flags of each JVM that was started."""
        self.data: list[Path] = []
        self.knows_archives = True
        self.error: Exception | None = None

    def server(self, jvm_flags: Sequence[str], data_dir: Path) -> Server:
        return Server(self, tuple(jvm_flags), data_dir)


class Server:
    """A server of one JVM."""

    def __init__(self, java: Java, flags: tuple[str, ...], data_dir: Path) -> None:
        self._java = java
        self._flags = flags
        self._data_dir = data_dir

    def start(self) -> Server:
        assert self._data_dir.is_dir()
        self._java.flags.append(self._flags)
        self._java.data.append(self._data_dir)
        if self._java.error is not None:
            raise self._java.error
        return self

    def stop(self) -> None:
        (archive,) = (flag.removeprefix(ARCHIVES_AT_EXIT) for flag in self._flags if flag.startswith(ARCHIVES_AT_EXIT))
        if self._java.knows_archives:
            Path(archive).write_text("classes")
            Path(archive).chmod(0o600)


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Java:
    """Return the JVMs of a test, whose servers have jars and a cache of their own."""
    made = Java()
    monkeypatch.setenv("STREAMGROUP_CACHE", str(tmp_path))
    monkeypatch.setattr(archiving, "kafka_classpath", lambda version: KAFKA_JARS)
    monkeypatch.setattr(archiving, "logging_jars", lambda: LOGGING_JARS)
    monkeypatch.setattr(zookeeper, "zookeeper_jars", lambda version: ZOOKEEPER_JARS)
    monkeypatch.setattr(kafka, "KafkaServer", lambda version, **given: made.server(**given))
    monkeypatch.setattr(zookeeper, "ZooKeeperServer", made.server)
    return made


def archives() -> list[Path]:
    """Return the places of the two archives."""
    return [
        archive_path(kafka.MAIN_CLASS, KAFKA_JARS),
        archive_path(zookeeper.MAIN_CLASS, (*LOGGING_JARS, *ZOOKEEPER_JARS)),
    ]


def test_each_server_is_started_once_with_its_usual_flags_and_leaves_its_archive(java: Java) -> None:
    archive_classes()
    of_broker, of_zookeeper = java.flags
    assert of_broker[:-1] == kafka.JVM_FLAGS
    assert of_zookeeper[:-1] == zookeeper.JVM_FLAGS
    assert [path.read_text() for path in archives()] == ["classes", "classes"]
    archive_classes()
    assert len(java.flags) == 2, "the archives are there"


def test_a_later_start_maps_an_archive_that_others_may_read_and_not_write(java: Java) -> None:
    archive_classes()
    assert [path.stat().st_mode & 0o777 for path in archives()] == [0o644, 0o644]
    assert archive_flags(kafka.MAIN_CLASS, KAFKA_JARS)[0] == f"-XX:SharedArchiveFile={archives()[0]}"


def test_nothing_but_archives_and_their_locks_stays_in_the_cache(java: Java, tmp_path: Path) -> None:
    archive_classes()
    assert {path.suffix for path in (tmp_path / "classes").iterdir()} == {".jsa", ".lock"}
    assert [path for path in java.data if path.exists()] == []


def test_only_the_archive_that_is_missing_is_written(java: Java) -> None:
    archive_classes()
    archives()[1].unlink()
    archive_classes()
    assert [flags[:-1] for flags in java.flags] == [kafka.JVM_FLAGS, zookeeper.JVM_FLAGS, zookeeper.JVM_FLAGS]
    assert archives()[1].exists()


def test_a_java_that_knows_no_archives_leaves_none_and_is_no_error(java: Java) -> None:
    java.knows_archives = False
    archive_classes()
    assert [path.exists() for path in archives()] == [False, False]


def test_a_server_that_does_not_start_leaves_no_archive_and_the_next_call_tries_again(java: Java) -> None:
    java.error = ServerStartError("broker 0 ended with exit code 1 before it served")
    with pytest.raises(ServerStartError, match="before it served"):
        archive_classes()
    assert [path.exists() for path in archives()] == [False, False]
    java.error = None
    archive_classes()
    assert [path.exists() for path in archives()] == [True, True]


def test_each_release_has_an_archive_of_its_own_jars(java: Java, monkeypatch: pytest.MonkeyPatch) -> None:
    def classpath(version: str) -> tuple[Path, ...]:
        return (Path(f"/jars/kafka-{version}.jar"),)

    monkeypatch.setattr(archiving, "kafka_classpath", classpath)
    for version in ("3.9.1", "4.1.1"):
        archive_classes(version)
        assert archive_path(kafka.MAIN_CLASS, classpath(version)).exists()
    assert len(java.flags) == 3, "ZooKeeper is the same"
