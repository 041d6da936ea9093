"""A private key in memory gets a path for Python's `ssl`, which reads keys only from files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from streamgroup.kafka.net.tls.stores import readable_path


@pytest.mark.parametrize("on_linux", [True, False])
def test_bytes_have_a_path_that_ends_with_its_use(on_linux: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not on_linux:
        monkeypatch.delattr(os, "memfd_create")
    with readable_path(b"secret") as path:
        assert Path(path).read_bytes() == b"secret"
        if on_linux:
            assert os.readlink(path).startswith("/memfd:"), "never on a disk"
        else:
            assert os.stat(path).st_mode & 0o777 == 0o600
            assert os.stat(Path(path).parent).st_mode & 0o777 == 0o700
    assert not Path(path).exists()


@pytest.mark.parametrize("data", [b"", b"\0\r\n\xff", b"k" * 100_000], ids=["empty", "binary", "large"])
@pytest.mark.parametrize("on_linux", [True, False])
def test_any_bytes_are_read_back_unchanged_and_from_their_beginning_each_time(
    on_linux: bool, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not on_linux:
        monkeypatch.delattr(os, "memfd_create")
    with readable_path(data) as path:
        assert [Path(path).read_bytes() for _ in range(2)] == [data, data]


@pytest.mark.parametrize("on_linux", [True, False])
def test_the_path_ends_also_if_its_use_fails(on_linux: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not on_linux:
        monkeypatch.delattr(os, "memfd_create")
    with pytest.raises(ValueError, match="not a key"), readable_path(b"secret") as path:
        raise ValueError("not a key")
    assert not Path(path).exists()


def test_two_keys_at_once_have_paths_of_their_own() -> None:
    with readable_path(b"first") as one, readable_path(b"second") as other:
        assert (Path(one).read_bytes(), Path(other).read_bytes()) == (b"first", b"second")
