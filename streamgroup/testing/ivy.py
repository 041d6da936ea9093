"""Runs the Ivy of PySpark's jars, with Ivy's default settings."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from streamgroup.errors import ConfigError, TransportError
from streamgroup.testing.java import java_command, pyspark_jar_files
from streamgroup.testing.progress import Progress
from streamgroup.testing.releases import Coordinate

_POLL_S = 0.2
_TAIL_LINES = 25
_UNREACHABLE = "Server access error"
_ABSENT = ": not found"


def ivy_command(coordinate: Coordinate, into: Path, *, transitive: bool) -> list[str]:
    """Return the argv that copies `coordinate`'s jars into `into`."""
    arguments = [
        *("-dependency", coordinate.organisation, coordinate.module, coordinate.revision),
        *("-confs", "default"),
        *(() if transitive else ("-notransitive",)),
        *("-retrieve", f"{into}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    return java_command("org.apache.ivy.Main", arguments, classpath=pyspark_jar_files("ivy-*.jar"))


def run_ivy(coordinate: Coordinate, into: Path, *, transitive: bool, timeout_s: float, shown: Progress) -> None:
    """Download the jars of `coordinate` into `into`.

    Raises TransportError without a network or after `timeout_s`, ConfigError for a module that does not exist.
    """
    log = into.with_suffix(".log")
    deadline = time.monotonic() + timeout_s
    with log.open("wb") as output:
        process = subprocess.Popen(
            ivy_command(coordinate, into, transitive=transitive),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=into.parent,
        )
        try:
            while process.poll() is None:
                if time.monotonic() >= deadline:
                    raise TransportError(
                        f"cannot download {coordinate} in {timeout_s:.0f} s. Try again: finished files are kept.\n"
                        + _tail(log)
                    )
                shown.update(*stage_of(log.read_text(errors="replace")))
                time.sleep(_POLL_S)
        finally:
            process.kill()
            process.wait()
    if process.returncode != 0:
        raise failure_of(coordinate, log.read_text(errors="replace"))
    log.unlink()


def stage_of(output: str) -> tuple[str, int, int | None]:
    """Parse Ivy's output so far. Return the current step, the number of finished items, and their total.

    The number of jars is known only when all dependencies are found, which is when the first download starts.
    """
    lines = output.splitlines()
    found = sum(line.startswith("\tfound ") for line in lines)
    downloads = sum(line.startswith("downloading ") for line in lines)
    if not downloads:
        return "finding dependencies", found, None
    return "downloading", sum(line.startswith("\t[SUCCESSFUL ]") for line in lines), found


def failure_of(coordinate: Coordinate, output: str) -> ConfigError | TransportError:
    """Return the error that Ivy's output stands for."""
    tail = "\n".join(line for line in output.splitlines()[-_TAIL_LINES:] if line.strip())
    if _UNREACHABLE in output:
        return TransportError(
            f"cannot download {coordinate}: its repository is unreachable. Only the first use needs a network; "
            f"behind a proxy set JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=...\n{tail}"
        )
    if _ABSENT in output:
        return ConfigError(f"cannot download {coordinate}: Ivy's repositories do not have it.\n{tail}")
    return TransportError(f"cannot resolve {coordinate} with Ivy. The end of its output:\n{tail}")


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
