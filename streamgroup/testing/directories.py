"""The cache and state directories of the user, and a file lock between processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from streamgroup.errors import ConfigError, TransportError

_LOCK_POLL_S = 0.1


def cache_directory() -> Path:
    """Return `$STREAMGROUP_CACHE`, else `$XDG_CACHE_HOME/streamgroup`, else `~/.cache/streamgroup`.

    It may be removed anytime.
    """
    return _user_directory("STREAMGROUP_CACHE", "XDG_CACHE_HOME", ".cache")


def make_own(path: Path, mode: int) -> None:
    """Make a directory and the missing ones above it. Only this user may write to them, whatever the umask is."""
    if not path.parent.exists():
        make_own(path.parent, 0o755)
    path.mkdir(mode, exist_ok=True)


def require_own(path: Path, within: Path, holds: str) -> None:
    """Raise ConfigError if a user other than this one and root may write to `path`, and so change what it `holds`.

    `within` is the cache or the state directory, to which `path` belongs.
    """
    found = path.stat()
    if found.st_uid not in (os.geteuid(), 0):
        raise ConfigError(
            f"cannot use {path}: it belongs to user {found.st_uid}, not to this one ({os.geteuid()}), who could change "
            f"{holds}. Remove it, or set STREAMGROUP_CACHE and STREAMGROUP_STATE to directories of your own"
        )
    if found.st_mode & 0o022:
        raise ConfigError(
            f"cannot use {path}: other users may write to it (mode {found.st_mode & 0o777:o}) and change {holds}. "
            f"Run: chmod -R go-w {within}"
        )


def require_unmovable(path: Path) -> None:
    """Raise ConfigError if any user may rename `path` or a directory above it, and put another in its place."""
    for above in path.resolve().parents:
        mode = above.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise ConfigError(
                f"cannot use {path}: every user may write to {above}, which is above it, and put another directory in "
                f"its place. Run: chmod o-w {above}"
            )


def state_directory() -> Path:
    """Return `$STREAMGROUP_STATE`, else `$XDG_STATE_HOME/streamgroup`, else `~/.local/state/streamgroup`."""
    return _user_directory("STREAMGROUP_STATE", "XDG_STATE_HOME", ".local/state")


def write_private(file: Path, content: bytes | str) -> Path:
    """Write a file of mode 0600, whatever the umask and its old mode, and return its path."""
    handle, name = tempfile.mkstemp(prefix=f".{file.name}-", dir=file.parent)  # with mode 0600
    with os.fdopen(handle, "wb") as out:
        out.write(content.encode() if isinstance(content, str) else content)
    os.replace(name, file)
    return file


def _user_directory(own_variable: str, xdg_variable: str, below_home: str) -> Path:
    own = os.environ.get(own_variable)
    if own:
        return Path(own).expanduser().absolute()
    xdg = os.environ.get(xdg_variable)
    # The XDG specification requires that relative paths are ignored.
    base = Path(xdg) if xdg and os.path.isabs(xdg) else Path.home() / below_home
    return base / "streamgroup"


@contextlib.contextmanager
def file_lock(path: Path, timeout_s: float) -> Iterator[None]:
    """Lock `path` exclusively among processes. The kernel releases the lock when its holder dies.

    Raises TransportError after `timeout_s`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout_s
    with path.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    message = (
                        f"cannot lock {path}: another process holds it, for {timeout_s:.0f} s now. Try again later"
                    )
                    raise TransportError(message) from None
                time.sleep(_LOCK_POLL_S)
        yield
