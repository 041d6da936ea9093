"""A KDC of MIT Kerberos on the loopback interface, with a realm of its own in a directory of its own.

It runs the programs of Debian's packages krb5-kdc and krb5-admin-server, as any user, and leaves the machine's own
`krb5.conf` alone.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.testing.directories import write_private
from streamgroup.testing.ports import LOOPBACK, free_ports
from streamgroup.testing.probe import accepts
from streamgroup.testing.processes import START_TIMEOUT_S, ServerProcess

REALM = "STREAMGROUP.TEST"
SERVICE = "kafka"
"""The first part of the brokers' principal."""

_ADMIN_TIMEOUT_S = 30.0
_ANNOUNCEMENT = "commencing operation"
_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin:/usr/local/sbin"
"""The programs of the KDC are for root on Debian, and not on the PATH of other users."""
_MASTER_PASSWORD = "the database is in a directory of mode 0700"

_KRB5_CONF = """\
[libdefaults]
    default_realm = {realm}
    dns_lookup_kdc = false
    dns_lookup_realm = false
[realms]
    {realm} = {{
        kdc = {address}
    }}
"""
_KDC_CONF = """\
[kdcdefaults]
    kdc_listen = {address}
    kdc_tcp_listen = {address}
[realms]
    {realm} = {{
        database_name = {directory}/principals
        key_stash_file = {directory}/stash
        acl_file = {directory}/kadm5.acl
        max_life = 10h
    }}
[logging]
    kdc = STDERR
"""


class Kdc:
    """A KDC with principals for the brokers and for `users`, and a keytab of each. `start` it first.

    A directory that is started again has the same principals and keytabs.
    """

    def __init__(self, directory: Path, users: Iterable[str], start_timeout_s: float = START_TIMEOUT_S) -> None:
        self._directory = directory
        self._users = tuple(users)
        self._start_timeout_s = start_timeout_s
        self.broker = f"{SERVICE}/{socket.getnameinfo((LOOPBACK, 0), 0)[0]}@{REALM}"
        """The principal of the brokers. Clients look up the name of the address, as Java's always do."""
        self.process: ServerProcess | None = None

    @property
    def krb5_conf(self) -> Path:
        """The `krb5.conf` of clients and brokers."""
        return self._directory / "krb5.conf"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a client that uses the system's Kerberos library, such as this project's."""
        return {"KRB5_CONFIG": str(self.krb5_conf)}

    @property
    def jvm_flag(self) -> str:
        """The flag that shows the realm to a JVM."""
        return f"-Djava.security.krb5.conf={self.krb5_conf}"

    @property
    def broker_keytab(self) -> Path:
        """The keytab of the brokers."""
        return self._directory / "broker.keytab"

    def principal(self, user: str) -> str:
        """Return the principal of a user."""
        return f"{user}@{REALM}"

    def keytab(self, user: str) -> Path:
        """Return the path of the keytab of a user."""
        return self._directory / f"user-{user}.keytab"

    def admin(self, *queries: str) -> None:
        """Run queries of kadmin, such as `delprinc -force alice`. Raises StreamGroupError if one fails."""
        for query in queries:
            self._run("kadmin.local", "-r", REALM, "-q", query)

    def start(self) -> None:
        """Make the realm if the directory has none, and start the KDC on a free port."""
        for program in ("krb5kdc", "kadmin.local", "kdb5_util"):
            _found(program)
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        (port,) = free_ports(1)
        values = {"realm": REALM, "address": f"{LOOPBACK}:{port}", "directory": str(self._directory)}
        write_private(self.krb5_conf, _KRB5_CONF.format(**values))
        write_private(self._kdc_conf, _KDC_CONF.format(**values))
        if not (self._directory / "stash").exists():
            self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", _MASTER_PASSWORD)
        keytabs = {self.broker: self.broker_keytab} | {self.principal(user): self.keytab(user) for user in self._users}
        for principal, keytab in keytabs.items():
            if not keytab.exists():
                self.admin(f"addprinc -randkey {principal}", f"ktadd -k {keytab} {principal}")
        self.process = ServerProcess(
            "KDC",
            [_found("krb5kdc"), "-n", "-r", REALM, "-P", str(self._directory / "kdc.pid")],
            self._directory / "kdc.log",
            lambda: accepts(LOOPBACK, port),
            announces=_ANNOUNCEMENT,
            environment=self._environment,
            start_timeout_s=self._start_timeout_s,
        )
        self.process.start()

    def close(self) -> None:
        """Kill the KDC."""
        if self.process is not None:
            self.process.kill()

    @property
    def _kdc_conf(self) -> Path:
        return self._directory / "kdc.conf"

    @property
    def _environment(self) -> Mapping[str, str]:
        return {**self.environment, "KRB5_KDC_PROFILE": str(self._kdc_conf)}

    def _run(self, program: str, *arguments: str) -> None:
        ran = subprocess.run(
            [_found(program), *arguments],
            env={**os.environ, **self._environment},
            capture_output=True,
            text=True,
            timeout=_ADMIN_TIMEOUT_S,
            check=False,
        )
        # kadmin.local ends with 0 although a query has failed: `addprinc: ... while creating "alice"`.
        if ran.returncode or re.search(r"^\w+: .* while ", ran.stderr, re.MULTILINE):
            raise StreamGroupError(f"cannot run {program} {' '.join(arguments)}: {ran.stderr.strip()[-1000:]}")


def _found(program: str) -> str:
    path = shutil.which(program, path=_PATH)
    if path is None:
        raise ConfigError(
            f"cannot start a KDC: there is no {program}. Install MIT's, on Debian: "
            "apt-get install krb5-kdc krb5-admin-server"
        )
    return path
