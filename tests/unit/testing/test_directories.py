from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streamgroup.errors import ConfigError, TransportError
from streamgroup.testing import directories
from streamgroup.testing.directories import cache_directory, file_lock, require_unmovable, write_private

HOLDER = """
import pathlib, sys
from streamgroup.testing.directories import file_lock
with file_lock(pathlib.Path(sys.argv[1]), 10):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_cache_is_ours_then_xdgs_then_the_homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("STREAMGROUP_CACHE", "XDG_CACHE_HOME", "STREAMGROUP_STATE", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert cache_directory() == tmp_path / ".cache" / "streamgroup"
    assert directories.state_directory() == tmp_path / ".local" / "state" / "streamgroup"
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_directory() == Path("/xdg/streamgroup")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_directory() == tmp_path / ".cache" / "streamgroup"
    monkeypatch.setenv("STREAMGROUP_CACHE", "~/own")
    assert cache_directory() == tmp_path / "own"


def test_a_lock_held_elsewhere_is_waited_for_until_the_deadline(tmp_path: Path) -> None:
    lock = tmp_path / "below" / "a.lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(TransportError, match=r"a\.lock: another process"), file_lock(lock, 0.2):
            pass
        holder.kill()
    with file_lock(lock, 10):  # its holder's death has freed it
        pass


def test_a_private_file_takes_the_place_of_one_that_others_may_read(tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    file.write_text("older and longer")
    file.chmod(0o644)
    assert write_private(file, "new") == file
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("new", 0o600)
    assert list(tmp_path.iterdir()) == [file]


def test_a_directory_that_every_user_may_rename_is_not_used(tmp_path: Path) -> None:
    cache = tmp_path / "everybodys" / "cache"
    cache.mkdir(parents=True)
    require_unmovable(cache)
    cache.parent.chmod(0o1777)  # as /tmp, where only the owner of a file may rename it
    require_unmovable(cache)
    cache.parent.chmod(0o777)
    with pytest.raises(
        ConfigError, match=rf"every user may write to {cache.parent}, .* Run: chmod o-w {cache.parent}$"
    ):
        require_unmovable(cache)
    link = tmp_path / "link"
    link.symlink_to(cache)
    with pytest.raises(ConfigError, match="every user may write"):
        require_unmovable(link)
