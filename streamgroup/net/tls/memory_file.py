"""A path to bytes in memory: Python's `ssl` reads private keys only from files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_DESCRIPTORS = Path("/proc/self/fd")


@contextmanager
def readable_path(data: bytes) -> Iterator[str]:
    """Yield a path at which this process can read `data`.

    On Linux the bytes never reach a disk: the path names a descriptor of anonymous memory. Elsewhere it is a file of
    mode 0600 in a directory of mode 0700, both of which are removed at the end.
    """
    if hasattr(os, "memfd_create") and _DESCRIPTORS.is_dir():
        with open(os.memfd_create("streamgroup-key"), "wb") as file:
            file.write(data)
            file.flush()
            yield str(_DESCRIPTORS / str(file.fileno()))
        return
    with tempfile.TemporaryDirectory(prefix="streamgroup-") as directory:
        path = Path(directory) / "key"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        yield str(path)
