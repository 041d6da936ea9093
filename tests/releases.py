"""The released versions, and the package of each as its commit has it."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
import tomllib
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from streamgroup.testing.directories import cache_directory, file_lock

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_name("releases.toml")
VECTORS = Path(__file__).with_name("vectors") / "releases"
PACKAGES = ("streamgroup", "pyspark_streamgroup", "pyspark_streamgroup_sql")
_LOCK_TIMEOUT_S = 60
_GIT_TIMEOUT_S = 60


class MissingReleaseError(AssertionError):
    """The clone does not have the commit of a release."""


@dataclass(frozen=True, slots=True)
class Release:
    """A released version: its date, its commit, and the directory of its golden files with their digest."""

    version: str
    date: str
    commit: str
    formats: str
    golden: str

    @property
    def files(self) -> Path:
        """Return the directory of its golden files."""
        return VECTORS / self.formats


def read_releases() -> tuple[Release, ...]:
    """Return the releases of the table, the oldest first."""
    with TABLE.open("rb") as table:
        return tuple(Release(**row) for row in tomllib.load(table)["release"])


def digest_of(directory: Path) -> str:
    """Return the SHA-256 of the names and contents of all files below `directory`."""
    total = hashlib.sha256()
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(directory).as_posix()} {content}\n".encode())
    return total.hexdigest()


def package_of(release: Release, repository: Path = ROOT) -> Path:
    """Return a directory for PYTHONPATH with the packages of `release`, without the compiled kernel.

    Raises MissingReleaseError, with what to do, where `repository` does not have its commit.
    """
    home = cache_directory() / "releases" / f"{release.version}-{release.commit[:12]}"
    with file_lock(home.with_suffix(".lock"), _LOCK_TIMEOUT_S):
        if not home.exists():
            new = home.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            with tarfile.open(fileobj=BytesIO(archive_of(release, repository))) as files:
                files.extractall(new, filter="data")
            new.rename(home)
        for package in (home / name for name in PACKAGES):
            if not package.exists():  # an empty one hides this clone's, which PySpark would import as well
                package.mkdir()
                (package / "__init__.py").touch()
    return home


def archive_of(release: Release, repository: Path) -> bytes:
    """Return the tar of the packages at the commit of `release`. Raises MissingReleaseError."""
    patterns = (":(glob)streamgroup/**", ":(glob)pyspark_streamgroup*/**")  # a name that a release lacks is an error
    command = ["git", "-C", str(repository), "archive", "--format=tar", release.commit, *patterns]
    try:
        found = subprocess.run(command, capture_output=True, timeout=_GIT_TIMEOUT_S, check=False)
    except FileNotFoundError:
        raise MissingReleaseError(f"cannot get release {release.version}: git is not installed") from None
    if found.returncode == 0:
        return found.stdout
    raise MissingReleaseError(
        f"cannot get release {release.version}: {repository} does not have its commit {release.commit}. In a shallow "
        f"clone run: git fetch --unshallow. Git says: {found.stderr.decode(errors='replace').strip()}"
    )
