"""The log4j2 configuration of the servers, which log to standard output and so to the log file of the process."""

from __future__ import annotations

from pathlib import Path

LOG4J2 = """\
status=error
rootLogger.level={level}
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c)%n%throwable
"""


def write_log4j2(directory: Path, level: str = "info") -> str:
    """Write the configuration into `directory`, and return the JVM flag that names it."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "log4j2.properties"
    file.write_text(LOG4J2.format(level=level))
    return f"-Dlog4j2.configurationFile={file}"
