"""The archives of the classes that servers load: a JVM that maps its archive starts with half of the CPU time.

`streamgroup.testing.archive_classes` writes them into the user's cache, and each later start takes its own from there.
Java checks that the jars are the same, and goes without an archive that does not fit.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from streamgroup.testing.directories import cache_directory, require_own
from streamgroup.testing.java import java_executable


def archive_path(main_class: str, classpath: Iterable[Path]) -> Path:
    """Return the place of a server's archive, which need not exist.

    Java refuses an archive of jars that are older or newer than those it finds, so such jars have a place of their own.
    """
    loaded = (str(java_executable().resolve()), main_class, *map(version_of, classpath))
    return cache_directory() / "classes" / f"{hashlib.sha256(os.pathsep.join(loaded).encode()).hexdigest()[:16]}.jsa"


def version_of(jar: Path) -> str:
    """Return the path of a jar with what Java compares of it: its size and the time of its last change."""
    if not jar.exists():
        return str(jar)
    found = jar.stat()
    return f"{jar} {found.st_size} {found.st_mtime_ns}"


def archive_flags(main_class: str, classpath: Iterable[Path]) -> tuple[str, ...]:
    """Return the flags of a JVM that maps its archive; none where there is no archive.

    Raises ConfigError if another user could have changed it.
    """
    path = archive_path(main_class, classpath)
    if not path.exists():
        return ()
    for own in (path.parent, path):
        require_own(own, cache_directory(), "the classes that run here")
    return (f"-XX:SharedArchiveFile={path}", "-Xshare:auto")
