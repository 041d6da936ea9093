"""Jars in the user's cache: resolved once by Ivy, checked, and from then on taken without a network.

A module's directory `<cache>/<module>-<revision>/` appears by one rename, complete, with a manifest of its files' sizes
and SHA-256. The sums of the modules that this project uses are pinned in `jars.sha256`; of any other module they are
those of its manifest, which tell of damage but not of another jar in the repository.
"""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

from streamgroup.errors import ChecksumMismatch, TransportError
from streamgroup.testing.directories import cache_directory, file_lock, require_own
from streamgroup.testing.ivy import run_ivy
from streamgroup.testing.pins import FILE as PINS
from streamgroup.testing.pins import pins_of
from streamgroup.testing.progress import Progress, progress
from streamgroup.testing.releases import Coordinate

MANIFEST = "manifest.json"
RESOLVE_TIMEOUT_S = 900.0


def resolve(
    organisation: str, module: str, revision: str, *, transitive: bool = True, timeout_s: float = RESOLVE_TIMEOUT_S
) -> tuple[Path, ...]:
    """Return the jars of a module and (unless `transitive` is off) of all that it depends on, sorted by name.

    From the cache where they are there; else Ivy brings them, which takes a network and a minute.
    Raises TransportError (no network, too slow), ConfigError (no Java, no such module, a cache that others may write
    to), ChecksumMismatch (a jar is not the one that is pinned, or not the one that was resolved).
    """
    coordinate = Coordinate(organisation, module, revision)
    cache = cache_directory()
    cache.mkdir(mode=0o755, parents=True, exist_ok=True)  # whatever the umask is
    require_own(cache)
    directory = cache / directory_name(coordinate, transitive=transitive)
    if not (directory / MANIFEST).exists():
        deadline = time.monotonic() + timeout_s
        with file_lock(directory.with_name(directory.name + ".lock"), timeout_s):
            # Another process may have brought them while this one waited.
            if not (directory / MANIFEST).exists():
                left = max(1.0, deadline - time.monotonic())
                _bring(coordinate, directory, transitive=transitive, timeout_s=left)
    return verified(directory)


def directory_name(coordinate: Coordinate, *, transitive: bool) -> str:
    """Where in the cache a module's jars are, with those that it depends on or alone."""
    return f"{coordinate.module}-{coordinate.revision}" + ("" if transitive else "-alone")


def verified(directory: Path) -> tuple[Path, ...]:
    """Return the jars of a resolved directory, each checked to be this user's alone and to have its SHA-256."""
    require_own(directory)
    pins = pins_of(directory.name)
    if pins is None:
        require_own(directory / MANIFEST)
    expected, whose = (manifest_sums(directory), "when it was resolved") if pins is None else (pins, "as pinned")
    for name, sha256 in expected.items():
        file = directory / name
        if not file.is_file():
            raise ChecksumMismatch(f"{file} is missing. Remove {directory} and try again: it is then resolved anew.")
        require_own(file)
        found = _sum_of(file, _identity(file))
        if found != sha256:
            raise ChecksumMismatch(
                f"{file}: SHA-256 is {found}, expected {sha256} {whose}. "
                f"Remove {directory} and try again: it is then resolved anew."
            )
    return tuple(directory / name for name in sorted(expected))


def manifest_sums(directory: Path) -> dict[str, str]:
    """Return the SHA-256 of a directory's jars by name, as they were when they were resolved."""
    entries = json.loads((directory / MANIFEST).read_text())["files"]
    return {str(entry["name"]): str(entry["sha256"]) for entry in entries}


def _identity(file: Path) -> tuple[int, ...]:
    """What changes when the content does. A user cannot set the time of the last change (ctime), as mtime can be."""
    found = file.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


@functools.cache
def _sum_of(file: Path, identity: tuple[int, ...]) -> str:
    """Return the SHA-256 of a file, computed once in a process for each state of the file."""
    return _sha256(file)


def _bring(coordinate: Coordinate, directory: Path, *, transitive: bool, timeout_s: float) -> None:
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
            shutil.rmtree(directory)  # without a manifest: nobody can have taken it
        jars.rename(directory)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    count = len(list(directory.glob("*.jar")))
    took = time.monotonic() - began
    print(f"streamgroup: {coordinate}: {count} jars, {total / 1e6:.1f} MB in {took:.0f} s", file=sys.stderr)


def retrieve(coordinate: Coordinate, into: Path, *, transitive: bool, timeout_s: float, shown: Progress) -> None:
    """Have Ivy bring a module's jars into the new directory `into`, where nobody else may write, whatever the umask."""
    into.mkdir(mode=0o755)
    run_ivy(coordinate, into, transitive=transitive, timeout_s=timeout_s, shown=shown)
    for file in into.iterdir():
        file.chmod(file.stat().st_mode & 0o755)


def _require_pinned(coordinate: Coordinate, found: Mapping[str, str], pins: Mapping[str, str]) -> None:
    others = sorted(name for name in found.keys() | pins.keys() if found.get(name) != pins.get(name))
    if others:
        raise ChecksumMismatch(
            f"{coordinate}: not the jars that are pinned in {PINS}: {', '.join(others)}. Ivy's repository, a mirror or "
            "a proxy serves others, or Ivy's cache (~/.ivy2/cache) holds others: remove them there and try again"
        )


def write_manifest(coordinate: Coordinate, directory: Path) -> int:
    """Check that every jar is a whole zip file, write the manifest, return the sum of the sizes in bytes."""
    entries = []
    for file in sorted(directory.glob("*.jar")):
        try:
            with zipfile.ZipFile(file) as archive:
                broken = archive.testzip()
        except zipfile.BadZipFile as error:
            raise TransportError(f"{coordinate}: {file.name} arrived damaged ({error}); try again") from error
        if broken is not None:
            raise TransportError(f"{coordinate}: {file.name} arrived damaged (in {broken}); try again")
        entries.append({"name": file.name, "size": file.stat().st_size, "sha256": _sha256(file)})
    if not entries:
        raise TransportError(f"{coordinate}: Ivy brought no jar; try again")
    manifest = {"module": str(coordinate), "files": entries}
    (directory / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    (directory / MANIFEST).chmod(0o644)
    return sum(int(str(entry["size"])) for entry in entries)


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
