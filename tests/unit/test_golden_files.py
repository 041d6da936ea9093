"""This version reads what every release wrote, and a format changes only together with a golden file.

A release's files are in `tests/vectors/releases/<version>`. `make golden` writes those of the version in development.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import streamgroup
from streamgroup.coordinator.control import channel as control
from streamgroup.coordinator.control.channel import ControlServer
from streamgroup.coordinator.planning.document import from_value
from streamgroup.kafka.net import local
from tests.fakes.cluster import logs_of
from tests.golden import channel, log_lines, stored
from tests.golden.case import Case
from tests.releases import ROOT, VECTORS, MissingReleaseError, archive_of, digest_of, read_releases
from tests.unit.coordinator.channels import JVM, FakeCoordinator, home, serve
from tests.unit.coordinator.runs import Run, Start, start

__all__ = ["home", "serve", "start"]

WRITE = "STREAMGROUP_WRITE_GOLDEN"
RELEASES = read_releases()
CASES: dict[tuple[str, str], Case] = {(c.file, c.name): c for c in (*stored.cases(), *log_lines.cases())}
OF_ANOTHER_SHAPE = "0.1.0a1"
"""The release whose stored files have another shape: `test_earlier_release.py` reads them."""


def directory_of_this_version() -> Path:
    """Where the formats of this version are: in a directory of its own if they differ from the last release's."""
    own = VECTORS / streamgroup.__version__
    return own if own.exists() else RELEASES[-1].files


def kept(directory: Path) -> dict[str, dict[str, str]]:
    return {path.stem: json.loads(path.read_text()) for path in sorted(directory.glob("*.json"))}


DIRECTORIES = sorted(
    {directory_of_this_version(), *(release.files for release in RELEASES)}, key=lambda path: path.name
)
each_directory = pytest.mark.parametrize("directory", DIRECTORIES, ids=lambda path: path.name)
each_directory_of_all_files = pytest.mark.parametrize(
    "directory", [path for path in DIRECTORIES if path.name != OF_ANOTHER_SHAPE], ids=lambda path: path.name
)


def answers_of(run: Run) -> dict[str, str]:
    """Ask a coordinator in the middle of a batch everything that its channel answers."""
    planned = run.batch()
    server = ControlServer(run.coordinator, JVM)
    server.start()
    name = run.coordinator.run

    def ask(request: str, **arguments: Any) -> str:
        return channel.normalized(control.ask(JVM, name, request, **arguments))

    found = {
        "status": ask("status"),
        "ranges": ask("ranges"),
        "sunk": ask("sunk", document=planned, batch=0, query=channel.QUERY),
        "drain": ask("drain", timeout=10.0, ends=True),
        "end": ask("end"),
    }
    server.close()
    return found


def written(start: Start) -> dict[str, dict[str, str]]:
    """All that this version writes, by file and name."""
    found: dict[str, dict[str, str]] = {}
    for case in CASES.values():
        if case.write is not None:
            found.setdefault(case.file, {})[case.name] = case.write()
    return {**found, "requests": channel.sent_requests(), "answers": answers_of(start(logs=logs_of([10, 10])))}


@pytest.mark.usefixtures("home")
def test_a_format_changes_only_with_a_new_golden_file(start: Start) -> None:
    texts, directory = written(start), directory_of_this_version()
    if os.environ.get(WRITE):
        directory = VECTORS / streamgroup.__version__
        assert streamgroup.__version__ not in {release.version for release in RELEASES}, (
            f"{streamgroup.__version__} is released, its files stay: raise __version__ in streamgroup/__init__.py first"
        )
        directory.mkdir(exist_ok=True)
        for file, by_name in texts.items():
            (directory / f"{file}.json").write_text(json.dumps(by_name, indent=1) + "\n")
    assert texts == kept(directory), (
        "this version writes other texts than its golden files have. If the change is meant, and every release in "
        "tests/releases.toml that a group may mix with this version reads the new texts: run `make golden`"
    )


@each_directory_of_all_files
@pytest.mark.parametrize("file", sorted({file for file, _ in CASES}))
def test_what_a_release_stored_is_read(directory: Path, file: str) -> None:
    texts = kept(directory).get(file, {})  # a later release may have new files
    assert {name: CASES[file, name].read(text) for name, text in texts.items()} == {
        name: CASES[file, name].value for name in texts
    }


@each_directory
def test_a_coordinator_carries_out_the_requests_of_a_release(
    directory: Path, serve: Callable[..., FakeCoordinator], home: Path
) -> None:
    coordinator = serve("r1")
    token = (home / str(JVM) / "r1.token").read_text()
    requests = kept(directory)["requests"]
    answers = {}
    for name, request in requests.items():
        with local.connect(home / str(JVM) / "r1.sock", channel.TIMEOUT_S) as connection:
            connection.send_bytes(request.replace(channel.TOKEN, token).encode())
            answers[name] = json.loads(connection.recv_bytes(control.LARGEST_MESSAGE))
    assert not [answer for answer in answers.values() if "error" in answer]
    assert (coordinator.drains, coordinator.ends, coordinator.ended) == ([60.0], True, 1)
    ((document, batch),) = coordinator.told
    assert (from_value(document), batch) == (stored.DOCUMENTS["a batch"], 12)
    assert coordinator.query == channel.QUERY
    assert answers["ranges"] == coordinator.ranges()
    assert answers["status"] == coordinator.status()


@pytest.mark.usefixtures("home")
@each_directory
def test_the_answers_of_a_release_are_read(directory: Path) -> None:
    assert channel.read_answers(kept(directory)["answers"]) == {
        "drain": True,
        "end": {},
        "sunk": True,
        "ranges": [["t", 0, 0, 10], ["t", 1, 0, 10]],
        "status": {
            "group": "g",
            "member": None,
            "state": "stable",
            "in_flight": True,
            "consumer_id": "member-1",
            "query": None,
            "run": stored.RUN,
        },
    }


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.version)
def test_the_files_of_a_release_stay(release: Any) -> None:
    assert digest_of(release.files) == release.golden, (
        f"{release.files} is of release {release.version} and must stay as it was: restore it with git"
    )


# -- the table of releases ---------------------------------------------------------------------------------------------


def test_the_changelog_has_the_version_in_development_and_then_every_release() -> None:
    headings = re.compile(r"^## (\S+) \((.+)\)$", re.MULTILINE)
    newest, *released = headings.findall((ROOT / "CHANGELOG.md").read_text())
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
