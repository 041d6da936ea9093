"""The security of one cluster while it runs: its files, its users, its ACLs, and its token server."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, Unpack

from streamgroup.errors import ConfigError
from streamgroup.testing.directories import write_private
from streamgroup.testing.node import KafkaNode
from streamgroup.testing.ports import LOOPBACK, free_ports
from streamgroup.testing.probe import accepts
from streamgroup.testing.processes import START_TIMEOUT_S, ServerProcess, on_free_ports
from streamgroup.testing.releases import Quorum, Release
from streamgroup.testing.security import admin, tokens
from streamgroup.testing.security.acls import AclTarget, acl_of, check_release
from streamgroup.testing.security.certificates import Authority, Identity
from streamgroup.testing.security.client import ClientSettings, Stores, client_settings
from streamgroup.testing.security.kdc import SERVICE, Kdc
from streamgroup.testing.security.material import Material, Passwords, SecurityFiles, prepare
from streamgroup.testing.security.scram import ITERATIONS, ScramCredential, credential
from streamgroup.testing.security.settings import (
    ADMIN,
    ANONYMOUS,
    SaslMechanism,
    SecuritySettings,
    authorizer_of,
    broker_entries,
    file_text,
)
from streamgroup.testing.security.tokens import AUDIENCE, TokenServerAddress

_DIRECTORY = "security"
_SALT_BYTES = 16


_PEM_SINCE = (2, 7)
"""The release whose tools read key and trust stores in PEM (KIP-651)."""


class SecuredCluster(Protocol):
    """The cluster that is secured: a `KafkaServer`."""

    @property
    def bootstrap_servers(self) -> str:
        """`host:port,...` of the secured listeners."""

    @property
    def zookeeper_connect(self) -> str:
        """`zookeeper.connect` of the brokers; empty in KRaft mode."""

    @property
    def brokers(self) -> Sequence[KafkaNode]:
        """The brokers by id."""


class ServerSecurity:
    """The security of a `KafkaServer`, which calls `open` before it starts its brokers and `close` after their end.

    Its files lie in the server's data directory. A directory that is started again has the same users, passwords and
    authority.
    """

    def __init__(
        self,
        cluster: SecuredCluster,
        settings: SecuritySettings,
        release: Release,
        *,
        broker_identity: Callable[[Authority], Identity] | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
        detached: bool = False,
    ) -> None:
        self._cluster = cluster
        self.settings = settings
        self._release = release
        self._broker_identity = broker_identity
        self._start_timeout_s = start_timeout_s
        self._detached = detached
        self._material: Material | None = None
        self._address: TokenServerAddress | None = None
        self.token_server: ServerProcess | None = None
        """The process of the token server; None without OAUTHBEARER."""
        self.kdc: Kdc | None = None
        """The KDC; None without GSSAPI."""

    @property
    def authority(self) -> Authority:
        """The authority that all certificates of the server are from."""
        return self._prepared().authority

    @property
    def files(self) -> SecurityFiles:
        """The paths of keys, certificates and passwords."""
        return self._prepared().files

    def open(self, home: Path) -> None:
        """Make or find the files below `home`, and start the token server and the KDC if a mechanism needs them."""
        self._material = prepare(home / _DIRECTORY, self.settings, self._broker_identity)
        if SaslMechanism.GSSAPI in self.settings.mechanisms:
            self.kdc = Kdc(self.files.kdc, self.settings.everybody, self._start_timeout_s)
            on_free_ports(self.kdc.start, fixed=False)
        if self.settings.mechanisms and self._release.quorum is Quorum.ZOOKEEPER:
            users = self._material.passwords.users
            write_private(self.files.jaas, file_text(self.settings.mechanisms, users, self.kdc))
        if SaslMechanism.OAUTHBEARER in self.settings.mechanisms:
            on_free_ports(self._start_token_server, fixed=False)

    def close(self) -> None:
        """Stop the token server and the KDC."""
        if self.kdc is not None:
            self.kdc.close()
        if self.token_server is not None:
            self.token_server.kill()

    def broker_properties(self) -> dict[str, str]:
        """Return the properties of brokers and controllers."""
        material = self._prepared()
        return broker_properties(
            self.settings, self._release, material.files, material.passwords, self._address, kdc=self.kdc
        )

    def jvm_flags(self) -> tuple[str, ...]:
        """Return the flags of the brokers' JVMs."""
        return broker_jvm_flags(self.settings, self._release, self.files, self._address, kdc=self.kdc)

    def before_brokers(self, zookeeper_connect: str) -> None:
        """Write the users that brokers in ZooKeeper mode find at their start."""
        if zookeeper_connect and self.settings.has_scram:
            admin.store_scram_in_zookeeper(zookeeper_connect, self._credentials(ITERATIONS))

    def after_brokers(self) -> None:
        """Give brokers in KRaft mode their users."""
        if not self._cluster.zookeeper_connect and self.settings.has_scram:
            # A broker shows credentials just before it authenticates by them, one change after the other. So it has
            # taken the first ones when it shows the second, and both are of the same passwords.
            for iterations in (ITERATIONS // 2, ITERATIONS):
                admin.store_scram(_plain_ports(self._cluster.brokers), self._credentials(iterations))

    def client(
        self,
        user: str | None = None,
        mechanism: str | None = None,
        *,
        password: str | None = None,
        stores: Stores = "PEM",
    ) -> ClientSettings:
        """Return the settings of a client: as options of Spark's sources, for Java and for librdkafka.

        `user` is one of the users or `admin`, and the first user by default. `mechanism` is the first one by default.
        `password` replaces the user's. `stores` is the type of key and trust stores, PEM or PKCS12.
        """
        material = self._prepared()
        return client_settings(
            self.settings,
            self._cluster.bootstrap_servers,
            material.files,
            material.passwords,
            self._address,
            kdc=self.kdc,
            user=user,
            mechanism=mechanism,
            password=password,
            stores=stores,
        )

    def client_properties(self, user: str | None = None, mechanism: str | None = None) -> Path:
        """Write the file for `--command-config` of this version's own tools, and return its path."""
        client = self.client(user, mechanism, stores="PEM" if self._release.number >= _PEM_SINCE else "PKCS12")
        return write_private(self.files.client_properties(client.user, client.mechanism), client.text())

    def add_acl(self, user: str, operation: str, **target: Unpack[AclTarget]) -> None:
        """Allow (or deny) `user` an operation such as `"READ"`, and wait until all running brokers decide by that.

        The resource is one topic, group or transactional id, or the cluster. If `prefixed`, its name is the beginning
        of names. The name `*` means all. Raises ConfigError for an invalid ACL or one that the version does not know.
        """
        if not self.settings.acls:
            raise ConfigError(f"cannot add an ACL for {user}: this KafkaServer was started without acls=True")
        acl = acl_of(self.settings.principal(user), operation, **target)
        check_release(acl, self._release)
        running = [broker for broker in self._cluster.brokers if broker.alive]
        if not running:
            raise ConfigError(f"cannot add {acl}: no broker runs. Call restart() first")
        connect = self._cluster.zookeeper_connect
        if connect:
            admin.create_acl_in_zookeeper(connect, acl, [broker.log for broker in running])
        else:
            admin.create_acl(_plain_ports(running), acl)

    def _prepared(self) -> Material:
        if self._material is None:
            raise ConfigError("this KafkaServer is not started: use it in a `with` statement, or call start()")
        return self._material

    def _credentials(self, iterations: int) -> list[ScramCredential]:
        users = self._prepared().passwords.users
        return [
            credential(user, mechanism, users[user], secrets.token_bytes(_SALT_BYTES), iterations)
            for user in self.settings.everybody
            for mechanism in self.settings.mechanisms
            if mechanism.is_scram
        ]

    def _start_token_server(self) -> None:
        material = self._prepared()
        (port,) = free_ports(1)
        values = {"port": port, "key": str(material.files.token_key), "clients": dict(material.passwords.users)}
        configuration = write_private(material.files.token_server, json.dumps(values))
        self.token_server = ServerProcess(
            "token server",
            [sys.executable, "-m", tokens.__name__, str(configuration)],
            configuration.with_suffix(".log"),
            lambda: accepts(LOOPBACK, port),
            announces=tokens.ANNOUNCEMENT,
            start_timeout_s=self._start_timeout_s,
            detached=self._detached,
        )
        self.token_server.start()
        self._address = TokenServerAddress(port)


def _plain_ports(brokers: Sequence[KafkaNode]) -> list[int]:
    """Return the ports of the listeners without security."""
    return [broker.plan.plain_port or 0 for broker in brokers]


_VALIDATORS_SINCE = (4, 1)
_JWT_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator"
_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"


def broker_properties(
    settings: SecuritySettings,
    release: Release,
    files: SecurityFiles,
    passwords: Passwords,
    token_server: TokenServerAddress | None,
    *,
    kdc: Kdc | None = None,
) -> dict[str, str]:
    """Return the properties that secure a broker or controller of `release`, without those of its addresses."""
    values: dict[str, str] = {}
    prefix = f"listener.name.{settings.protocol.lower()}."
    if settings.protocol.has_tls:
        values |= _tls(settings, release, files, passwords, prefix)
    if settings.protocol.has_sasl:
        values["sasl.enabled.mechanisms"] = ",".join(settings.mechanisms)
        # Brokers in ZooKeeper mode read their JAAS file: before 1.1 they have no such property.
        if release.quorum is Quorum.KRAFT:
            entries = broker_entries(settings.mechanisms, passwords.users, kdc)
            values |= {f"{prefix}{each.lower()}.sasl.jaas.config": entry for each, entry in entries.items()}
    if token_server is not None:
        values |= {
            f"{prefix}{SaslMechanism.OAUTHBEARER.lower()}.sasl.server.callback.handler.class": _VALIDATOR,
            "sasl.oauthbearer.jwks.endpoint.url": token_server.jwks_url,
            "sasl.oauthbearer.expected.issuer": token_server.issuer,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
        }
        if release.number >= _VALIDATORS_SINCE:
            # The default one of 4.1 verifies no signature: it is that of clients.
            values["sasl.oauthbearer.jwt.validator.class"] = _JWT_VALIDATOR
    if kdc is not None:
        values["sasl.kerberos.service.name"] = SERVICE
        # The default rule takes the default realm, which old brokers cannot ask of a Java from 16 on.
        values["sasl.kerberos.principal.to.local.rules"] = "RULE:[1:$1]"
    if settings.acls:
        values |= {
            "authorizer.class.name": authorizer_of(release),
            "allow.everyone.if.no.acl.found": "false",
            # The brokers and controllers talk among themselves over listeners without security.
            "super.users": f"{ANONYMOUS};{settings.principal(ADMIN)}",
        }
    return values


def broker_jvm_flags(
    settings: SecuritySettings,
    release: Release,
    files: SecurityFiles,
    token_server: TokenServerAddress | None,
    *,
    kdc: Kdc | None = None,
) -> tuple[str, ...]:
    """Return the flags that a broker's JVM needs for these settings."""
    flags = [server.jvm_flag for server in (token_server, kdc) if server is not None]
    if settings.protocol.has_sasl and release.quorum is Quorum.ZOOKEEPER:
        # With a JAAS file the client of ZooKeeper would look for credentials in it, too.
        flags += [f"-Djava.security.auth.login.config={files.jaas}", "-Dzookeeper.sasl.client=false"]
    return tuple(flags)


def _tls(
    settings: SecuritySettings, release: Release, files: SecurityFiles, passwords: Passwords, prefix: str
) -> dict[str, str]:
    # Brokers before 2.7 have no PEM, so all have PKCS #12.
    values = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(files.broker),
        "ssl.keystore.password": passwords.store,
        "ssl.key.password": passwords.store,
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(files.truststore),
        "ssl.truststore.password": passwords.store,
    }
    if settings.mutual_tls:
        # A listener of SASL_SSL takes it only with the prefix, which brokers before 1.0 do not know.
        scope = prefix if release.quorum is Quorum.KRAFT else ""
        values[f"{scope}ssl.client.auth"] = "required"
    return values
