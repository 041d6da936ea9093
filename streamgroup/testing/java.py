"""The Java that runs the servers, the jars that PySpark ships, and the log4j2 configuration."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from streamgroup.errors import ConfigError
from streamgroup.spark_home import spark_home
from streamgroup.testing.directories import cache_directory, require_own

MINIMUM_JAVA = 17
"""The Java release that Spark 4 and Kafka 4 need."""

_NEXT_STEP = (
    f"Install Java {MINIMUM_JAVA} or newer. Then set the environment variable JAVA_HOME to the directory of that Java, "
    "or add its directory bin to the PATH."
)
_VERSION = re.compile(r'version "((?:1\.)?(\d+)[^"]*)"')
_VERSION_TIMEOUT_S = 30


def java_executable() -> Path:
    """Return the `java` that Spark would use: `$JAVA_HOME/bin/java`, else the first on the PATH.

    Raises ConfigError if there is none or it is older than MINIMUM_JAVA.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    if found is None:
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "no java on the PATH"
        raise ConfigError(f"cannot find Java: {where}. {_NEXT_STEP}")
    feature = java_version(found)[1]
    if feature < MINIMUM_JAVA:
        raise ConfigError(
            f"unsupported Java {feature} at {found}: Java {MINIMUM_JAVA} or newer is needed. {_NEXT_STEP}"
        )
    return Path(found)


@functools.cache
def java_version(executable: str) -> tuple[str, int]:
    """Return the version and its feature release: `17.0.15` and 17, `1.8.0_402` and 8. Raises ConfigError."""
    try:
        shown = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"cannot run {executable}: {error}. Install Java, or set JAVA_HOME.") from error
    return parse_java_version(executable, shown.stderr + shown.stdout)


def parse_java_version(executable: str, text: str) -> tuple[str, int]:
    """Parse both in the output of `java -version`. Raises ConfigError if it has none."""
    match = _VERSION.search(text)
    if match is None:
        raise ConfigError(f"cannot read the version of {executable}: {text.strip()[:200]!r}. Set JAVA_HOME.")
    return match[1], int(match[2])


def pyspark_jars() -> Path:
    """Return the directory of Spark's jars. Raises ConfigError if there is no Spark."""
    return spark_home() / "jars"


def pyspark_jar_files(*patterns: str) -> tuple[Path, ...]:
    """Return the jars of PySpark that match the globs. Raises ConfigError for a pattern without a match."""
    directory = pyspark_jars()
    files: list[Path] = []
    for pattern in patterns:
        matching = sorted(directory.glob(pattern))
        if not matching:
            raise ConfigError(f"cannot find {pattern} of PySpark in {directory}. Reinstall PySpark")
        files.extend(matching)
    return tuple(files)


def logging_jars() -> tuple[Path, ...]:
    """Return the jars of slf4j with log4j2 and the log4j 1.2 bridge, which log for servers of every release."""
    return pyspark_jar_files(
        "slf4j-api-*.jar", "log4j-api-*.jar", "log4j-core-*.jar", "log4j-slf4j2-*.jar", "log4j-1.2-*"
    )


def java_command(
    main_class: str, arguments: Sequence[str] = (), *, classpath: Iterable[Path], flags: Sequence[str] = ()
) -> list[str]:
    """Return the argv that runs `main_class`."""
    return [str(java_executable()), *flags, "-cp", os.pathsep.join(map(str, classpath)), main_class, *arguments]


LOG4J2 = """\
status=error
rootLogger.level=info
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c)%n%throwable
"""
"""Servers log to standard output, and so to the log file of the process."""


def write_log4j2(directory: Path) -> str:
    """Write the configuration into `directory`, and return the JVM flag that names it."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "log4j2.properties"
    file.write_text(LOG4J2)
    return f"-Dlog4j2.configurationFile={file}"


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
    """Return the flags of a JVM that maps its archive; empty without an archive.

    Raises ConfigError if another user could have changed it.
    """
    path = archive_path(main_class, classpath)
    if not path.exists():
        return ()
    for own in (path.parent, path):
        require_own(own, cache_directory(), "the classes that run here")
    return (f"-XX:SharedArchiveFile={path}", "-Xshare:auto")
