"""Jars in the user's cache, which Ivy resolves once (later uses need no network), and the jars of Kafka and its tools.

A module's directory `<cache>/<module>-<revision>/` is renamed into place when it is complete, with a manifest of the
sizes and SHA-256 of its files. `jars.sha256` pins the sums of the modules that this project uses. For other modules the
sums of the manifest detect damage, but not a replaced jar in the repository.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from streamgroup.errors import ChecksumMismatch, ConfigError, TransportError
from streamgroup.testing.directories import cache_directory, file_lock, make_own, require_own, require_unmovable
from streamgroup.testing.java import java_command, logging_jars, pyspark_jar_files
from streamgroup.testing.releases import Coordinate, release_of

MANIFEST = "manifest.json"
RESOLVE_TIMEOUT_S = 900.0


def resolve(
    organisation: str, module: str, revision: str, *, transitive: bool = True, timeout_s: float = RESOLVE_TIMEOUT_S
) -> tuple[Path, ...]:
    """Return the jars of a module and (unless `transitive` is off) of its dependencies, sorted by name.

    Takes them from the cache, or downloads them with Ivy, which needs a network and about a minute. Raises
    TransportError (no network, too slow), ConfigError (no Java, unknown module, a cache that others may write to), and
    ChecksumMismatch (a jar differs from the pinned or the resolved one).
    """
    coordinate = Coordinate(organisation, module, revision)
    cache = cache_directory()
    make_own(cache, 0o755)
    _require_own(cache)
    require_unmovable(cache)
    directory = cache / directory_name(coordinate, transitive=transitive)
    if not (directory / MANIFEST).exists():
        deadline = time.monotonic() + timeout_s
        with file_lock(directory.with_name(directory.name + ".lock"), timeout_s):
            # Another process may have downloaded them while this one waited for the lock.
            if not (directory / MANIFEST).exists():
                left = max(1.0, deadline - time.monotonic())
                _download(coordinate, directory, transitive=transitive, timeout_s=left)
    return verified(directory)


def directory_name(coordinate: Coordinate, *, transitive: bool) -> str:
    """Return the name of a module's directory in the cache, with its dependencies or alone."""
    return f"{coordinate.module}-{coordinate.revision}" + ("" if transitive else "-alone")


def verified(directory: Path) -> tuple[Path, ...]:
    """Return the jars of a resolved directory, with a valid SHA-256 and not writable by other users."""
    _require_own(directory)
    pins = pins_of(directory.name)
    if pins is None:
        _require_own(directory / MANIFEST)
    expected, source = (manifest_sums(directory), MANIFEST) if pins is None else (pins, PINS)
    for name, sha256 in expected.items():
        file = directory / name
        if not file.is_file():
            raise ChecksumMismatch(f"missing jar {file}. Remove {directory} and try again: the jars are downloaded")
        _require_own(file)
        found = _sum_of(file, _identity(file))
        if found != sha256:
            raise ChecksumMismatch(
                f"wrong SHA-256 of {file}: it is {found}, and {sha256} in {source}. "
                f"Remove {directory} and try again: the file is then downloaded again"
            )
    return tuple(directory / name for name in sorted(expected))


def _require_own(path: Path) -> None:
    require_own(path, cache_directory(), "the jars that run here")


def manifest_sums(directory: Path) -> dict[str, str]:
    """Return the SHA-256 of a directory's jars by name, as of their resolution."""
    entries = json.loads((directory / MANIFEST).read_text())["files"]
    return {str(entry["name"]): str(entry["sha256"]) for entry in entries}


def _identity(file: Path) -> tuple[int, ...]:
    """Return a key that changes with the content. Unlike mtime, a user cannot set the ctime."""
    found = file.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


@functools.cache
def _sum_of(file: Path, identity: tuple[int, ...]) -> str:
    """Return the SHA-256 of a file, computed once per process and state of the file."""
    return _sha256(file)


def _download(coordinate: Coordinate, directory: Path, *, transitive: bool, timeout_s: float) -> None:
    began = time.monotonic()
    work = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        jars = work / "jars"
        with progress(f"resolving {coordinate} into {directory} (once)") as shown:
            retrieve(coordinate, jars, transitive=transitive, timeout_s=timeout_s, shown=shown)
        total = write_manifest(coordinate, jars)
        pins = pins_of(directory.name)
        if pins is not None:
            _require_pinned(coordinate, manifest_sums(jars), pins)
        if directory.exists():
            shutil.rmtree(directory)  # it has no manifest, so no process uses it
        jars.rename(directory)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    count = len(list(directory.glob("*.jar")))
    took = time.monotonic() - began
    print(f"streamgroup: {coordinate}: {count} jars, {total / 1e6:.1f} MB in {took:.0f} s", file=sys.stderr)


def retrieve(coordinate: Coordinate, into: Path, *, transitive: bool, timeout_s: float, shown: Progress) -> None:
    """Download a module's jars with Ivy into the new directory `into`.

    Only this user may write to the directory and the files, whatever the umask is.
    """
    into.mkdir(mode=0o755)
    run_ivy(coordinate, into, transitive=transitive, timeout_s=timeout_s, shown=shown)
    for file in into.iterdir():
        file.chmod(file.stat().st_mode & 0o755)


def _require_pinned(coordinate: Coordinate, found: Mapping[str, str], pins: Mapping[str, str]) -> None:
    others = sorted(name for name in found.keys() | pins.keys() if found.get(name) != pins.get(name))
    if others:
        raise ChecksumMismatch(
            f"jars of {coordinate} differ from those pinned in {PINS}: {', '.join(others)}. Ivy's repository, "
            "a mirror, a proxy or Ivy's cache has other jars. Remove them from ~/.ivy2/cache and try again"
        )


def write_manifest(coordinate: Coordinate, directory: Path) -> int:
    """Check that every jar is a complete zip file, write the manifest, and return the total size in bytes."""
    entries = []
    for file in sorted(directory.glob("*.jar")):
        try:
            with zipfile.ZipFile(file) as archive:
                broken = archive.testzip()
        except zipfile.BadZipFile as error:
            raise TransportError(f"damaged download of {coordinate}: {file.name}: {error}. Try again") from error
        if broken is not None:
            raise TransportError(
                f"damaged download of {coordinate}: {file.name}: its entry {broken} is damaged. Try again"
            )
        entries.append({"name": file.name, "size": file.stat().st_size, "sha256": _sha256(file)})
    if not entries:
        raise TransportError(f"no jars in the download of {coordinate}. Try again")
    manifest = {"module": str(coordinate), "files": entries}
    (directory / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    (directory / MANIFEST).chmod(0o644)
    return sum(int(str(entry["size"])) for entry in entries)


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


PINS = Path(__file__).with_name("jars.sha256")
"""The SHA-256 of every jar that this project fetches, as sha256sum writes and checks them (`make pins`)."""


def pins_of(directory: str, file: Path = PINS) -> Mapping[str, str] | None:
    """Return the sums of the jars in one directory of the cache, by name; None if it is not pinned."""
    return _read(file).get(directory)


def pinned(file: Path = PINS) -> frozenset[str]:
    """Return the directories of the cache that are pinned."""
    return frozenset(_read(file))


def write_pins(sums: Mapping[str, Mapping[str, str]], file: Path = PINS) -> None:
    """Write the sums of all directories, sorted by path, so that a changed jar changes one line."""
    lines = sorted(
        (f"{directory}/{name}", sum_) for directory, of_jars in sums.items() for name, sum_ in of_jars.items()
    )
    file.write_text("".join(f"{sum_}  {path}\n" for path, sum_ in lines))
    _read.cache_clear()


@functools.cache
def _read(file: Path) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for line in file.read_text().splitlines():
        sum_, _, path = line.partition("  ")
        directory, _, name = path.partition("/")
        found.setdefault(directory, {})[name] = sum_
    return found


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
            f"with a proxy, set JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=...\n{tail}"
        )
    if _ABSENT in output:
        return ConfigError(f"cannot download {coordinate}: Ivy's repositories do not have it.\n{tail}")
    return TransportError(f"cannot resolve {coordinate} with Ivy. The end of its output:\n{tail}")


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])


class Progress(Protocol):
    """Shows the state of a task."""

    def update(self, step: str, done: int, total: int | None) -> None:
        """Show the current `step`; `total` is None while it is unknown."""


class _NoBar:
    """Shows nothing: standard error is not a terminal."""

    def update(self, step: str, done: int, total: int | None) -> None:
        """Do nothing: a log needs no intermediate states."""


@contextlib.contextmanager
def progress(title: str) -> Iterator[Progress]:
    """Show the progress of `title` for the length of the block."""
    print(f"streamgroup: {title}", file=sys.stderr, flush=True)
    if not sys.stderr.isatty():
        yield _NoBar()
        return
    # Costs 50 ms to import, and most processes never show a bar.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415
    from rich.progress import Progress as Bar  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)

        class _Rich:
            def update(self, step: str, done: int, total: int | None) -> None:
                bar.update(task, description=step, completed=done, total=total)

        yield _Rich()


# -- the jars of Kafka -------------------------------------------------------------------------------------------------

_OWN_LOGGING = ("slf4j-api", "log4j", "slf4j-log4j", "slf4j-reload4j", "reload4j")


def kafka_classpath(version: str) -> tuple[Path, ...]:
    """Return the jars of a Kafka version, downloaded if they are not cached, with PySpark's logging jars."""
    release = release_of(version)
    if release.emulated:
        raise ConfigError(f"no jars of Kafka {version}: it is emulated in Python, without tools")
    jars = list(_jars(release.coordinate))
    for extra in release.extra:
        jars.extend(_jars(extra, transitive=False))
    return (*logging_jars(), *(jar for jar in jars if not jar.name.startswith(_OWN_LOGGING)))


def java_tool(version: str, main_class: str, *arguments: str, jvm_flags: Sequence[str] = ("-Xmx256m",)) -> list[str]:
    """Return the argv of one of Kafka's own tools, for `subprocess`.

    For instance `org.apache.kafka.tools.consumer.ConsoleConsumer` and
    `org.apache.kafka.tools.consumer.group.ConsumerGroupCommand`, which Kafka's shell scripts start too. In 3.6.2 and
    before they are `kafka.tools.ConsoleConsumer`, `kafka.admin.ConsumerGroupCommand` and so on.
    """
    tools = release_of(version).tools
    # Without its dependencies: the tools that call brokers need only those of the broker.
    own = () if tools is None else _jars(tools, transitive=False)
    flags = (*jvm_flags, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    return java_command(main_class, arguments, classpath=(*kafka_classpath(version), *own), flags=flags)


def _jars(of: Coordinate, *, transitive: bool = True) -> tuple[Path, ...]:
    return resolve(of.organisation, of.module, of.revision, transitive=transitive)
