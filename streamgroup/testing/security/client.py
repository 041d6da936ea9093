"""The settings of a client of a secured server, in the names of Spark, Java and librdkafka."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from streamgroup.errors import ConfigError
from streamgroup.testing.node import properties_text
from streamgroup.testing.security.kdc import SERVICE, Kdc
from streamgroup.testing.security.material import Passwords, SecurityFiles
from streamgroup.testing.security.settings import SaslMechanism, SecuritySettings, entry, keytab_options
from streamgroup.testing.security.tokens import TokenServerAddress

SCOPE = "kafka"
"""The scope that clients ask for."""

Stores = Literal["PEM", "PKCS12"]
_LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


@dataclass(frozen=True, slots=True, repr=False)
class ClientSettings:
    """The settings of one user's client. They have passwords: the `repr` hides them.

    `properties` has Java's names and `librdkafka` those of librdkafka (confluent-kafka); both have `bootstrap.servers`.
    `jvm_flags` are what a Java client needs besides, and `environment` what all others need in their environment.
    """

    user: str
    mechanism: SaslMechanism | None
    properties: Mapping[str, str]
    librdkafka: Mapping[str, str]
    jvm_flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<ClientSettings {self.user} {self.properties['security.protocol']} {self.mechanism or ''}>"

    @property
    def options(self) -> dict[str, str]:
        """The properties as options of Spark's sources: with the prefix `kafka.`."""
        return {f"kafka.{name}": value for name, value in self.properties.items()}

    def text(self) -> str:
        """Return the properties as a file for `--command-config`, without `bootstrap.servers`."""
        return properties_text({name: text for name, text in self.properties.items() if name != "bootstrap.servers"})


def client_settings(
    settings: SecuritySettings,
    servers: str,
    files: SecurityFiles,
    passwords: Passwords,
    token_server: TokenServerAddress | None,
    *,
    kdc: Kdc | None = None,
    user: str | None = None,
    mechanism: str | None = None,
    password: str | None = None,
    stores: Stores = "PEM",
) -> ClientSettings:
    """Return the settings of `user` (the first one by default) with `mechanism` (the first one by default).

    `password` replaces the user's. Raises ConfigError if the server does not have the user or the mechanism.
    """
    user = settings.users[0] if user is None else user
    if user not in settings.everybody:
        raise ConfigError(f"unknown user {user!r}: this server has {', '.join(settings.everybody)}")
    if mechanism is not None and mechanism not in settings.mechanisms:
        has = ", ".join(settings.mechanisms) or "none"
        raise ConfigError(f"unknown mechanism {mechanism!r}: this server has {has}")
    chosen = SaslMechanism(mechanism) if mechanism is not None else next(iter(settings.mechanisms), None)
    properties = {"bootstrap.servers": servers, "security.protocol": str(settings.protocol)}
    librdkafka = dict(properties)
    if settings.protocol.has_tls:
        properties |= _truststore(files, passwords, stores)
        librdkafka["ssl.ca.location"] = str(files.ca)
        if settings.mutual_tls:
            properties |= _keystore(files, passwords, stores, user)
            librdkafka |= {"ssl.certificate.location": str(files.pem(user)), "ssl.key.location": str(files.pem(user))}
    flags: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    if chosen is SaslMechanism.GSSAPI and kdc is not None:
        if password is not None:
            raise ConfigError("invalid password with GSSAPI: users have keytabs. Change a key by security.kdc.admin()")
        properties |= {"sasl.mechanism": str(chosen), **_kerberos(kdc, user)}
        librdkafka |= {"sasl.mechanism": str(chosen), **_kerberos_librdkafka(kdc, user)}
        flags, environment = (kdc.jvm_flag,), kdc.environment
    elif chosen is not None:
        secret = passwords.users[user] if password is None else password
        properties |= {"sasl.mechanism": str(chosen), **_sasl(chosen, user, secret, token_server)}
        librdkafka |= {"sasl.mechanism": str(chosen), **_sasl_librdkafka(chosen, user, secret, token_server)}
        if chosen is SaslMechanism.OAUTHBEARER and token_server is not None:
            flags = (token_server.jvm_flag,)
    return ClientSettings(user, chosen, properties, librdkafka, flags, environment)


def _truststore(files: SecurityFiles, passwords: Passwords, stores: Stores) -> dict[str, str]:
    if stores == "PEM":
        return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(files.ca)}
    return {
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(files.truststore),
        "ssl.truststore.password": passwords.store,
    }


def _keystore(files: SecurityFiles, passwords: Passwords, stores: Stores, user: str) -> dict[str, str]:
    if stores == "PEM":
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(files.pem(user))}
    return {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(files.pkcs12(user)),
        "ssl.keystore.password": passwords.store,
        "ssl.key.password": passwords.store,
    }


def _kerberos(kdc: Kdc, user: str) -> dict[str, str]:
    return {
        "sasl.kerberos.service.name": SERVICE,
        "sasl.jaas.config": entry(SaslMechanism.GSSAPI, keytab_options(kdc.principal(user), kdc.keytab(user))),
    }


def _kerberos_librdkafka(kdc: Kdc, user: str) -> dict[str, str]:
    return {
        "sasl.kerberos.service.name": SERVICE,
        "sasl.kerberos.keytab": str(kdc.keytab(user)),
        "sasl.kerberos.principal": kdc.principal(user),
    }


def _sasl(
    mechanism: SaslMechanism, user: str, password: str, token_server: TokenServerAddress | None
) -> dict[str, str]:
    if mechanism is not SaslMechanism.OAUTHBEARER or token_server is None:
        return {"sasl.jaas.config": entry(mechanism, {"username": user, "password": password})}
    return {
        "sasl.jaas.config": entry(mechanism, {"clientId": user, "clientSecret": password, "scope": SCOPE}),
        "sasl.login.callback.handler.class": _LOGIN,
        "sasl.oauthbearer.token.endpoint.url": token_server.token_url,
    }


def _sasl_librdkafka(
    mechanism: SaslMechanism, user: str, password: str, token_server: TokenServerAddress | None
) -> dict[str, str]:
    if mechanism is not SaslMechanism.OAUTHBEARER or token_server is None:
        return {"sasl.username": user, "sasl.password": password}
    return {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": user,
        "sasl.oauthbearer.client.secret": password,
        "sasl.oauthbearer.scope": SCOPE,
        "sasl.oauthbearer.token.endpoint.url": token_server.token_url,
    }
