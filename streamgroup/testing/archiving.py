"""Writes the archives of the classes that servers load."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from streamgroup.testing import kafka, zookeeper
from streamgroup.testing.directories import file_lock, make_own
from streamgroup.testing.jars import kafka_classpath
from streamgroup.testing.java import archive_path, logging_jars
from streamgroup.testing.releases import DEFAULT_VERSION

_LOCK_TIMEOUT_S = 180.0


def archive_classes(version: str = DEFAULT_VERSION) -> None:
    """Archive the classes of this release's broker and of ZooKeeper, unless it has been done.

    Starts both once. Later starts of the same servers then take half of the CPU time. Takes some 10 s and 100 MB in
    the user's cache. Raises as `KafkaServer` and `ZooKeeperServer` do.
    """
    brokers = kafka_classpath(version)
    with _written(kafka.MAIN_CLASS, brokers) as (flags, home):
        if flags:
            kafka.KafkaServer(version, jvm_flags=(*kafka.JVM_FLAGS, *flags), data_dir=home).start().stop()
    servers = (*logging_jars(), *zookeeper.zookeeper_jars(None))
    with _written(zookeeper.MAIN_CLASS, servers) as (flags, home):
        if flags:
            zookeeper.ZooKeeperServer(jvm_flags=(*zookeeper.JVM_FLAGS, *flags), data_dir=home).start().stop()


@contextlib.contextmanager
def _written(main_class: str, classpath: Iterable[Path]) -> Iterator[tuple[tuple[str, ...], Path]]:
    """Yield the flags of a JVM that writes the archive at its exit (none if it exists), and a data directory."""
    path = archive_path(main_class, classpath)
    make_own(path.parent.parent, 0o755)
    make_own(path.parent, 0o755)
    with file_lock(path.with_suffix(".lock"), _LOCK_TIMEOUT_S), TemporaryDirectory(dir=path.parent) as name:
        home = Path(name)
        if path.exists():
            yield (), home
            return
        new = home / "classes.jsa"
        yield (f"-XX:ArchiveClassesAtExit={new}",), home
        if new.exists():  # a Java without archives writes none, and its servers start as they did
            new.chmod(0o644)
            new.rename(path)
