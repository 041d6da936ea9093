"""A real ZooKeeper on the loopback interface, from the jars of PySpark or of the release of Kafka 0.7's time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from streamgroup.errors import ConfigError
from streamgroup.testing.directories import write_private
from streamgroup.testing.jars import resolve
from streamgroup.testing.java import archive_flags, java_command, logging_jars, pyspark_jar_files, write_log4j2
from streamgroup.testing.node import properties_text
from streamgroup.testing.ports import LOOPBACK, free_ports
from streamgroup.testing.probe import zookeeper_serves
from streamgroup.testing.processes import START_TIMEOUT_S, LocalServer, ServerProcess
from streamgroup.testing.security.certificates import Authority, Identity
from streamgroup.testing.security.material import Material, SecurityFiles, prepare
from streamgroup.testing.security.settings import DEFAULT_USERS, SecurityProtocol, SecuritySettings

JVM_FLAGS = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

_CONFIGURATION = "zoo.cfg"
MAIN_CLASS = "org.apache.zookeeper.server.ZooKeeperServerMain"
VERSIONS_APART = ("3.3.6",)
"""Versions that Ivy downloads. 3.3.6 has no transactions (multi, since 3.4) and drops the request without a response.
"""

_JARS = ("zookeeper-*.jar", "netty-*.jar", "metrics-core-*.jar", "snappy-java-*.jar", "commons-io-*.jar")


class ZooKeeperServer(LocalServer):
    """One standalone ZooKeeper server, as a local process on a free port of 127.0.0.1.

        with ZooKeeperServer() as zookeeper:
            KazooClient(zookeeper.connect_string)

    `tick_time_ms` bounds session timeouts: 2 to 20 ticks. A given `data_dir` is kept and can be started again. Without
    one the data lie in a temporary directory, which is removed with the server unless its start failed. `version` is
    3.3.6, or None for PySpark's.

    `security="SSL"` adds a TLS listener to the plaintext one. Certificates and passwords are made at the start, and
    `client_options` are the options of a client. With `mutual_tls` clients of that listener need certificates. With
    `sasl` the server knows `users` (`client` by default) for DIGEST-MD5. `server_identity` makes another
    certificate for the server from its authority.
    """

    _NAME = "ZooKeeper"

    def __init__(
        self,
        *,
        tick_time_ms: int = 200,
        port: int | None = None,
        data_dir: str | Path | None = None,
        jvm_flags: Sequence[str] = JVM_FLAGS,
        start_timeout_s: float = START_TIMEOUT_S,
        detached: bool = False,
        version: str | None = None,
        security: str | None = None,
        mutual_tls: bool = False,
        sasl: bool = False,
        users: Sequence[str] | None = None,
        server_identity: Callable[[Authority], Identity] | None = None,
    ) -> None:
        super().__init__(data_dir, start_timeout_s, port)
        if version is not None and version not in VERSIONS_APART:
            raise ConfigError(
                f"unsupported ZooKeeper {version}: available are {', '.join(VERSIONS_APART)} and PySpark's"
            )
        if security not in (None, "SSL"):
            raise ConfigError(f"invalid security={security!r}: expected SSL")
        if security is None and (mutual_tls or sasl or users or server_identity):
            raise ConfigError("invalid mutual_tls, sasl, users or server_identity without security: add security='SSL'")
        if security is not None and version is not None:
            raise ConfigError(f"invalid security={security!r} with version {version}: ZooKeeper has TLS since 3.5")
        self._secured = security is not None
        self._mutual_tls, self._sasl, self._users = mutual_tls, sasl, users
        self._server_identity = server_identity
        self._security: ZooKeeperSecurity | None = None
        self._version = version
        self._tick_time_ms = tick_time_ms
        self._jvm_flags = tuple(jvm_flags)
        self._detached = detached

    @property
    def connect_string(self) -> str:
        """`host:port`."""
        self._started()
        return f"{LOOPBACK}:{self.port}"

    @property
    def security(self) -> ZooKeeperSecurity:
        """The clients, certificates and files of a secured server."""
        self._started()
        if self._security is None:
            raise ConfigError("this ZooKeeperServer has no security: start it with security='SSL'")
        return self._security

    @property
    def client_options(self) -> dict[str, str]:
        """The options of Spark's sources for a client: its address, and the security of the first of `users`."""
        if not self._secured:
            return {"zookeeper.connect": self.connect_string}
        return self.security.client_options()

    @property
    def configuration(self) -> Path:
        return self._started().log.with_name(_CONFIGURATION)

    def pause(self) -> None:
        """Pause the process (SIGSTOP). Its connections stay open and nothing answers."""
        self._started().pause()

    def resume(self) -> None:
        """Resume a paused process (SIGCONT)."""
        self._started().resume()

    def _prepare(self, home: Path) -> None:
        if self._secured:
            self._security = ZooKeeperSecurity(
                home / "security",
                mutual_tls=self._mutual_tls,
                sasl=self._sasl,
                users=self._users,
                server_identity=self._server_identity,
            )

    def _make_process(self, home: Path) -> ServerProcess:
        port, security = self.port, self._security
        if security is not None:
            security.port = next(free for free in free_ports(2) if free != port)
        file = home / _CONFIGURATION
        values = configuration(home / "data", port, self._tick_time_ms)
        write_private(file, properties_text(values if security is None else {**values, **security.properties()}))
        classpath = (*logging_jars(), *zookeeper_jars(self._version))
        secured = () if security is None else security.jvm_flags()
        flags = (*self._jvm_flags, *archive_flags(MAIN_CLASS, classpath), *secured, write_log4j2(home))
        (home / "data").mkdir(exist_ok=True)  # 3.3 does not create it
        return ServerProcess(
            self._NAME,
            java_command(MAIN_CLASS, [str(file)], classpath=classpath, flags=flags),
            home / "server.log",
            lambda: zookeeper_serves(LOOPBACK, port, str(home / "data")),
            start_timeout_s=self._start_timeout_s,
            detached=self._detached,
        )


def zookeeper_jars(version: str | None) -> tuple[Path, ...]:
    """Return the jars of a server of this version, without logging."""
    if version is None:
        return pyspark_jar_files(*_JARS)
    # Without its dependencies: those are logging, and jars of JMX that Java has contained since.
    return resolve("org.apache.zookeeper", "zookeeper", version, transitive=False)


def configuration(data: Path, port: int, tick_time_ms: int) -> dict[str, str]:
    """Return the `zoo.cfg` of a server for tests."""
    return {
        "dataDir": str(data),
        "clientPort": str(port),
        "clientPortAddress": LOOPBACK,
        "tickTime": str(tick_time_ms),
        "maxClientCnxns": "0",
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "conf,cons,dump,mntr,ruok,srvr",
    }


HOST = "localhost"
"""The name by which clients connect, and for which the server's certificate is."""

_LOGIN_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
_SASL_PROVIDER = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"


class ZooKeeperSecurity:
    """The security of a `ZooKeeperServer`, whose files lie in `directory`.

    A directory that is started again has the same users, passwords and authority. The scheme digest needs nothing of
    the server: whoever knows a user's password is that user. With `sasl` the server knows the users, too.
    """

    def __init__(
        self,
        directory: Path,
        *,
        mutual_tls: bool = False,
        sasl: bool = False,
        users: Sequence[str] | None = None,
        server_identity: Callable[[Authority], Identity] | None = None,
    ) -> None:
        self._settings = SecuritySettings(
            SecurityProtocol.SSL, mutual_tls=mutual_tls, users=DEFAULT_USERS if users is None else tuple(users)
        )
        self._sasl = sasl
        self._material: Material = prepare(directory, self._settings, server_identity)
        self.port = 0
        """The port of the TLS listener."""
        if sasl:
            passwords = self._material.passwords.users.items()
            known = " ".join(f'user_{user}="{password}"' for user, password in passwords)
            write_private(self.files.jaas, f"Server {{\n    {_LOGIN_MODULE} required {known};\n}};\n")

    @property
    def authority(self) -> Authority:
        """The authority that all certificates of the server are from."""
        return self._material.authority

    @property
    def files(self) -> SecurityFiles:
        """The paths of keys, certificates and passwords."""
        return self._material.files

    @property
    def connect_string(self) -> str:
        """`host:port` of the TLS listener."""
        return f"{HOST}:{self.port}"

    def properties(self) -> dict[str, str]:
        """Return the settings of the TLS listener for `zoo.cfg`."""
        store = self._material.passwords.store
        values = {
            "secureClientPort": str(self.port),
            "secureClientPortAddress": LOOPBACK,
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": str(self.files.broker),
            "ssl.keyStore.password": store,
            "ssl.trustStore.location": str(self.files.truststore),
            "ssl.trustStore.password": store,
            "ssl.clientAuth": "need" if self._settings.mutual_tls else "none",
            # The name of a client's machine is not what its certificate is for.
            "ssl.clientHostnameVerification": "false",
        }
        return {**values, "authProvider.sasl": _SASL_PROVIDER} if self._sasl else values

    def jvm_flags(self) -> tuple[str, ...]:
        """Return the flags of the server's JVM."""
        return (f"-Djava.security.auth.login.config={self.files.jaas}",) if self._sasl else ()

    def client_options(self, user: str | None = None, *, password: str | None = None) -> dict[str, str]:
        """Return the options of a client, as Spark's sources take them: TLS, and `user` (the first one by default).

        `password` replaces the user's. Raises ConfigError for an unknown user.
        """
        user = self._settings.users[0] if user is None else user
        if user not in self._settings.everybody:
            raise ConfigError(f"unknown user {user!r}: this server has {', '.join(self._settings.everybody)}")
        options = {
            "zookeeper.connect": self.connect_string,
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": str(self.files.ca),
            "zookeeper.username": user,
            "zookeeper.password": self._material.passwords.users[user] if password is None else password,
        }
        if self._sasl:
            options["zookeeper.sasl.mechanism"] = "DIGEST-MD5"
        if self._settings.mutual_tls:
            options["zookeeper.ssl.keystore.location"] = str(self.files.pem(user))
        return options
