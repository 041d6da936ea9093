"""The properties and JVM flags of brokers that are secured."""

from __future__ import annotations

from streamgroup.testing.releases import Quorum, Release
from streamgroup.testing.security.jaas import broker_entries
from streamgroup.testing.security.kdc import SERVICE, Kdc
from streamgroup.testing.security.material import Passwords, SecurityFiles
from streamgroup.testing.security.settings import ADMIN, ANONYMOUS, Mechanism, SecuritySettings, authorizer_of
from streamgroup.testing.security.tokens import AUDIENCE, TokenServerAddress

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
            f"{prefix}{Mechanism.OAUTHBEARER.lower()}.sasl.server.callback.handler.class": _VALIDATOR,
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
