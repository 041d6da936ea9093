"""Jars in the user's cache: resolved once by Ivy, checked, and from then on taken without a network.

A module's directory `<cache>/<module>-<revision>/` appears by one rename, complete, with a manifest of its files' sizes
and SHA-256. A process checks the sums the first time it takes a directory (0.1 s for a broker's 43 MB) and the sizes
each time.
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
from pathlib import Path

from streamgroup.errors import ChecksumMismatch, TransportError
from streamgroup.testing.directories import cache_directory, file_lock
from streamgroup.testing.ivy import run_ivy
from streamgroup.testing.progress import progress
from streamgroup.testing.releases import Coordinate

MANIFEST = "manifest.json"
RESOLVE_TIMEOUT_S = 900.0


def resolve(
    organisation: str, module: str, revision: str, *, transitive: bool = True, timeout_s: float = RESOLVE_TIMEOUT_S
) -> tuple[Path, ...]:
    """The jars of a module and (unless `transitive` is off) of all that it depends on, sorted by name.

    From the cache where they are there; else Ivy brings them, which takes a network and a minute.
    Raises TransportError (no network, too slow), ConfigError (no Java, no such module), ChecksumMismatch (a jar in the
    cache is not what was written).
    """
    coordinate = Coordinate(organisation, module, revision)
    directory = cache_directory() / (f"{module}-{revision}" if transitive else f"{module}-{revision}-alone")
    if not (directory / MANIFEST).exists():
        deadline = time.monotonic() + timeout_s
        with file_lock(directory.with_name(directory.name + ".lock"), timeout_s):
            # Another process may have brought them while this one waited.
            if not (directory / MANIFEST).exists():
                left = max(1.0, deadline - time.monotonic())
                _bring(coordinate, directory, transitive=transitive, timeout_s=left)
    return verified(directory)


def verified(directory: Path) -> tuple[Path, ...]:
    """The jars of a resolved directory, checked against its manifest."""
    manifest = _sums_checked(directory)
    for name, (size, _) in manifest.items():
        _check(directory, name, "size", _size(directory / name), size)
    return tuple(directory / name for name in manifest)


@functools.cache
def _sums_checked(directory: Path) -> dict[str, tuple[int, str]]:
    entries = json.loads((directory / MANIFEST).read_text())["files"]
    manifest = {entry["name"]: (int(entry["size"]), str(entry["sha256"])) for entry in entries}
    for name, (size, sha256) in manifest.items():
        _check(directory, name, "size", _size(directory / name), size)
        _check(directory, name, "SHA-256", _sha256(directory / name), sha256)
    return manifest


def _check(directory: Path, name: str, what: str, found: object, expected: object) -> None:
    if found != expected:
        raise ChecksumMismatch(
            f"{directory / name}: {what} is {found}, was {expected} when it was resolved. "
            f"Remove {directory} and try again: it is then resolved anew."
        )


def _bring(coordinate: Coordinate, directory: Path, *, transitive: bool, timeout_s: float) -> None:
    began = time.monotonic()
    directory.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        jars = work / "jars"
        jars.mkdir()
        with progress(f"resolving {coordinate} into {directory} (once)") as shown:
            run_ivy(coordinate, jars, transitive=transitive, timeout_s=timeout_s, shown=shown)
        total = write_manifest(coordinate, jars)
        if directory.exists():
            shutil.rmtree(directory)  # without a manifest: nobody can have taken it
        jars.rename(directory)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    count = len(list(directory.glob("*.jar")))
    took = time.monotonic() - began
    print(f"streamgroup: {coordinate}: {count} jars, {total / 1e6:.1f} MB in {took:.0f} s", file=sys.stderr)


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
        entries.append({"name": file.name, "size": _size(file), "sha256": _sha256(file)})
    if not entries:
        raise TransportError(f"{coordinate}: Ivy brought no jar; try again")
    manifest = {"module": str(coordinate), "files": entries}
    (directory / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    return sum(int(str(entry["size"])) for entry in entries)


def _size(file: Path) -> int | None:
    """In bytes; None where the file is gone."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return None


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
