"""The security of one ZooKeeper: a TLS listener in addition to the plaintext one, and users for digest and SASL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from streamgroup.errors import ConfigError
from streamgroup.testing.directories import write_private
from streamgroup.testing.ports import LOOPBACK
from streamgroup.testing.security.certificates import Authority, Identity
from streamgroup.testing.security.material import Material, SecurityFiles, prepare
from streamgroup.testing.security.settings import DEFAULT_USERS, SecurityProtocol, SecuritySettings

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
