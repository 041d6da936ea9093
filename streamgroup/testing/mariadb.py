"""A real MariaDB on the loopback interface, from the system's packages."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from streamgroup.errors import ConfigError
from streamgroup.testing.directories import write_private
from streamgroup.testing.ports import LOOPBACK
from streamgroup.testing.probe import accepts
from streamgroup.testing.processes import START_TIMEOUT_S, LocalServer, ServerProcess, ServerStartError

USER = "streamgroup"
DATABASE = "streamgroup"

_SYSTEM = "/usr/sbin:/usr/libexec"
"""Where packages put the server, which few users have on the PATH."""
_READY = "ready for connections"
_SETTINGS = {
    "bind-address": LOOPBACK,
    "socket": "mariadb.sock",  # in the data directory, however long its path is
    "character-set-server": "utf8mb4",  # as Debian's files of options
    "skip-name-resolve": "ON",
    "max-connections": "200",
    "innodb-buffer-pool-size": "32M",
    "innodb-log-file-size": "16M",
    "innodb-flush-log-at-trx-commit": "2",  # a test kills the server, not the machine
}
_ACCOUNT = """\
CREATE DATABASE IF NOT EXISTS {database};
CREATE USER IF NOT EXISTS {user}@'{host}' IDENTIFIED BY '{password}';
GRANT ALL ON {database}.* TO {user}@'{host}' WITH GRANT OPTION;
GRANT CREATE USER ON *.* TO {user}@'{host}';
"""


class MariaDbServer(LocalServer):
    """One MariaDB server, as a local process on a free port of 127.0.0.1.

        with MariaDbServer() as mariadb:
            sqlalchemy.create_engine(mariadb.url)

    It runs the `mariadbd` of the PATH or of Debian's package `mariadb-server-core`, as the user of this process. Its
    installer also needs `my_print_defaults`, of Debian's package `mariadb-client-core`.
    The user `streamgroup` has all privileges in the database `streamgroup` and none outside, and must show a password.
    `settings` are options of `mariadbd`; files of options are not read.
    """

    _NAME = "MariaDB"

    def __init__(
        self,
        *,
        data_dir: str | Path | None = None,
        settings: Mapping[str, str] | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        super().__init__(data_dir, start_timeout_s)
        self._settings = {**_SETTINGS, **(settings or {})}
        self._server = self._installer = self._password = ""

    @property
    def url(self) -> str:
        """The URL of the database, with user and password."""
        self._started()
        return f"mariadb://{USER}:{self._password}@{LOOPBACK}:{self.port}/{DATABASE}"

    def start(self) -> Self:
        self._server, self._installer = _program("mariadbd"), _program("mariadb-install-db")
        return super().start()

    def _prepare(self, home: Path) -> None:
        password = home / "password"
        if not password.exists():
            run = [self._installer, *_options(home), "--skip-test-db"]
            made = subprocess.run(run, cwd=home, capture_output=True, text=True, check=False)
            if made.returncode:
                # The installer writes its own errors to stdout. The programs that it runs write theirs to stderr.
                reason = (made.stdout + made.stderr).strip()
                raise ServerStartError(f"cannot make a database of MariaDB in {home}: {reason}")
            write_private(password, secrets.token_urlsafe(16))
        self._password = password.read_text()
        account = _ACCOUNT.format(database=DATABASE, user=USER, host=LOOPBACK, password=self._password)
        write_private(home / "account.sql", account)

    def _make_process(self, home: Path) -> ServerProcess:
        settings = {**self._settings, "port": str(self.port), "init-file": str(home / "account.sql")}
        return ServerProcess(
            self._NAME,
            [self._server, *_options(home), *(f"--{name}={value}" for name, value in settings.items())],
            home / "server.log",
            lambda: accepts(LOOPBACK, self.port),
            announces=_READY,
            start_timeout_s=self._start_timeout_s,
        )


def _options(home: Path) -> list[str]:
    """Return the options that server and installer share. MariaDB runs as root only if the user is named."""
    return ["--no-defaults", f"--datadir={home / 'data'}", f"--user={pwd.getpwuid(os.geteuid()).pw_name}"]


def _program(name: str) -> str:
    """Return the path of a program of MariaDB. Raises ConfigError if it is not installed."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_SYSTEM}")
    if found is None:
        raise ConfigError(
            f"cannot start MariaDB: {name} is not installed. On Debian: apt-get install mariadb-server-core "
            "mariadb-client-core. Elsewhere: put the directories of mariadbd and mariadb-install-db on the PATH"
        )
    return found
