"""The security that a test requests of a server, and the checks whether a Kafka release supports it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from streamgroup.errors import ConfigError
from streamgroup.frozen import frozen
from streamgroup.testing.releases import Quorum, Release
from streamgroup.testing.security.kdc import Kdc

ADMIN = "admin"
"""The super user, whom ACLs never refuse."""

ANONYMOUS = "User:ANONYMOUS"
"""The principal of every client of a PLAINTEXT listener, and of a TLS listener that asks for no certificate."""

DEFAULT_USERS = ("client",)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class SecurityProtocol(StrEnum):
    """The security protocols of listeners that a server can be given."""

    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        """True if the listener uses TLS."""
        return self is not SecurityProtocol.SASL_PLAINTEXT

    @property
    def has_sasl(self) -> bool:
        """True if clients authenticate by SASL."""
        return self is not SecurityProtocol.SSL


class SaslMechanism(StrEnum):
    """The SASL mechanisms that a server can be given. OAUTHBEARER and GSSAPI come with a server of their own."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"
    GSSAPI = "GSSAPI"

    @property
    def is_scram(self) -> bool:
        """True if the brokers keep a salted password of each user (RFC 5802)."""
        return self in (SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512)


_SINCE: dict[SecurityProtocol | SaslMechanism, tuple[tuple[int, ...], str]] = {
    SecurityProtocol.SSL: ((0, 9), "brokers have TLS since 0.9 (KAFKA-1690)"),
    SecurityProtocol.SASL_PLAINTEXT: ((0, 10), "brokers have the handshake of SASL since 0.10.0 (KIP-43)"),
    SecurityProtocol.SASL_SSL: ((0, 10), "brokers have the handshake of SASL since 0.10.0 (KIP-43)"),
    SaslMechanism.PLAIN: ((0, 10), "brokers have PLAIN since 0.10.0 (KIP-43)"),
    SaslMechanism.GSSAPI: ((0, 10), "brokers have the handshake of SASL since 0.10.0 (KIP-43)"),
    SaslMechanism.SCRAM_SHA_256: ((0, 10, 2), "brokers have SCRAM since 0.10.2 (KIP-84)"),
    SaslMechanism.SCRAM_SHA_512: ((0, 10, 2), "brokers have SCRAM since 0.10.2 (KIP-84)"),
    SaslMechanism.OAUTHBEARER: ((3, 1), "brokers check the tokens of an OIDC server since 3.1 (KIP-768)"),
}
_CLIENT_CERTIFICATES_WITH_SASL = (2, 8)


@frozen
class SecuritySettings:
    """The protocol of the listener for clients, their authentication, and whether ACLs apply.

    `users` are those besides the super user `admin`. With `mutual_tls` the listener asks for client certificates.
    """

    protocol: SecurityProtocol
    mechanisms: tuple[SaslMechanism, ...] = ()
    acls: bool = False
    mutual_tls: bool = False
    users: tuple[str, ...] = DEFAULT_USERS

    @property
    def has_scram(self) -> bool:
        """True if any mechanism is SCRAM."""
        return any(mechanism.is_scram for mechanism in self.mechanisms)

    @property
    def everybody(self) -> tuple[str, ...]:
        """All users, the super user first."""
        return (ADMIN, *self.users)

    def principal(self, user: str) -> str:
        """Return the principal of `user`, as ACLs name it."""
        return f"User:{user}" if self.protocol.has_sasl else f"User:CN={user}"


def settings_of(
    release: Release,
    security: str,
    *,
    mechanisms: Sequence[str] = (),
    acls: bool = False,
    mutual_tls: bool = False,
    users: Sequence[str] | None = None,
) -> SecuritySettings:
    """Return the settings that the arguments of `KafkaServer` ask for.

    The default of `mechanisms` is PLAIN for SASL, and that of `users` is DEFAULT_USERS.
    Raises ConfigError if they contradict each other, or if the release does not have them.
    """
    if security not in SecurityProtocol.__members__:
        raise ConfigError(f"invalid security={security!r}: expected {', '.join(SecurityProtocol)}")
    protocol = SecurityProtocol(security)
    if mechanisms and not protocol.has_sasl:
        raise ConfigError("invalid mechanisms with security='SSL': expected SASL_SSL or SASL_PLAINTEXT")
    unknown = sorted(set(mechanisms) - set(SaslMechanism))
    if unknown:
        raise ConfigError(f"invalid mechanisms {', '.join(unknown)}: expected some of {', '.join(SaslMechanism)}")
    default = (SaslMechanism.PLAIN,) if protocol.has_sasl else ()
    settings = SecuritySettings(
        protocol,
        tuple(map(SaslMechanism, dict.fromkeys(mechanisms))) or default,
        acls,
        mutual_tls,
        DEFAULT_USERS if users is None else tuple(dict.fromkeys(users)),
    )
    _check_combination(settings)
    _check_release(settings, release)
    return settings


def _check_combination(settings: SecuritySettings) -> None:
    for user in settings.users:
        if user == ADMIN or not _NAME.fullmatch(user):
            raise ConfigError(
                f"invalid user {user!r}: expected letters, digits, dots, dashes and underscores, and not {ADMIN!r}, "
                "the super user"
            )
    if not settings.users:
        raise ConfigError("invalid users=(): at least one is needed")
    if settings.mutual_tls and not settings.protocol.has_tls:
        raise ConfigError("invalid mutual_tls=True with security='SASL_PLAINTEXT': only TLS has certificates")
    if settings.acls and not settings.protocol.has_sasl and not settings.mutual_tls:
        raise ConfigError(
            "invalid acls=True with security='SSL': without a certificate every client is "
            f"{ANONYMOUS}, as the brokers are among themselves. Add mutual_tls=True"
        )


def _check_release(settings: SecuritySettings, release: Release) -> None:
    asked: tuple[SecurityProtocol | SaslMechanism, ...] = (settings.protocol, *settings.mechanisms)
    for each in asked:
        since, reason = _SINCE[each]
        if release.number < since:
            raise ConfigError(f"cannot secure Kafka {release.version} by {each}: {reason}. Use a newer version")
    if (
        settings.mutual_tls
        and settings.protocol is SecurityProtocol.SASL_SSL
        and release.number < _CLIENT_CERTIFICATES_WITH_SASL
    ):
        raise ConfigError(
            f"cannot require client certificates with SASL_SSL of Kafka {release.version}: brokers do since 2.8 "
            "(KIP-684). Use a newer version, or security='SSL'"
        )


def authorizer_of(release: Release) -> str:
    """Return the class of the authorizer that a release brings along."""
    if release.quorum is Quorum.KRAFT:
        return "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    if release.number < (2, 4):
        return "kafka.security.auth.SimpleAclAuthorizer"
    return "kafka.security.authorizer.AclAuthorizer"


_PACKAGE = "org.apache.kafka.common.security"
_MODULES = {
    SaslMechanism.PLAIN: f"{_PACKAGE}.plain.PlainLoginModule",
    SaslMechanism.SCRAM_SHA_256: f"{_PACKAGE}.scram.ScramLoginModule",
    SaslMechanism.SCRAM_SHA_512: f"{_PACKAGE}.scram.ScramLoginModule",
    SaslMechanism.OAUTHBEARER: f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule",
    SaslMechanism.GSSAPI: "com.sun.security.auth.module.Krb5LoginModule",
}


def entry(mechanism: SaslMechanism, options: Mapping[str, str]) -> str:
    """Return the entry of a mechanism's login module, with its semicolon."""
    given = "".join(f" {name}={_quoted(value)}" for name, value in options.items())
    return f"{_MODULES[mechanism]} required{given};"


def keytab_options(principal: str, keytab: Path) -> dict[str, str]:
    """Return the options of GSSAPI's login module for a keytab."""
    return {"useKeyTab": "true", "storeKey": "true", "keyTab": str(keytab), "principal": principal}


def broker_entries(
    mechanisms: tuple[SaslMechanism, ...], passwords: Mapping[str, str], kdc: Kdc | None = None
) -> dict[SaslMechanism, str]:
    """Return the entry of each mechanism on a broker. Only that of PLAIN names the users."""
    options = {SaslMechanism.PLAIN: {f"user_{user}": password for user, password in passwords.items()}}
    if kdc is not None:
        options[SaslMechanism.GSSAPI] = keytab_options(kdc.broker, kdc.broker_keytab)
    return {each: entry(each, options.get(each, {})) for each in mechanisms}


def file_text(mechanisms: tuple[SaslMechanism, ...], passwords: Mapping[str, str], kdc: Kdc | None = None) -> str:
    """Return the JAAS file of a broker: all mechanisms share one context, and both SCRAMs one login module."""
    entries = dict.fromkeys(broker_entries(mechanisms, passwords, kdc).values())
    return "KafkaServer {\n" + "".join(f"    {each}\n" for each in entries) + "};\n"


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
