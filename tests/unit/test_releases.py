"""The table of releases: it agrees with the changelog, and says what to do where a commit is missing."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import streamgroup
from tests.releases import ROOT, MissingReleaseError, archive_of, read_releases

RELEASES = read_releases()
_HEADING = re.compile(r"^## (\S+) \((.+)\)$", re.MULTILINE)


def test_the_changelog_has_the_version_in_development_and_then_every_release() -> None:
    newest, *released = _HEADING.findall((ROOT / "CHANGELOG.md").read_text())
    assert newest == (streamgroup.__version__, "not released"), "the first section is of the version in development"
    assert released == [(release.version, release.date) for release in reversed(RELEASES)], (
        "tests/releases.toml has a row for each section with a date (docs/release.md)"
    )


def test_a_release_has_a_whole_commit_and_files() -> None:
    for release in RELEASES:
        assert re.fullmatch(r"[0-9a-f]{40}", release.commit), release.version
        assert list(release.files.iterdir()), release.version


def test_a_clone_without_the_commit_of_a_release_says_what_to_do(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    with pytest.raises(
        MissingReleaseError, match=r"cannot get release 0\.1\.0: .*does not have its commit e6936cd"
    ) as e:
        archive_of(RELEASES[1], tmp_path)
    assert "git fetch --unshallow" in str(e.value)
