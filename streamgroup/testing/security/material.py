"""The files and passwords of one secured server: created at its first start, and reused with its data directory."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from streamgroup.frozen import frozen
from streamgroup.testing.directories import write_private
from streamgroup.testing.security.certificates import Authority, Identity, write_pem, write_pkcs12
from streamgroup.testing.security.settings import SaslMechanism, SecuritySettings
from streamgroup.testing.security.tokens import TokenKey

_PASSWORD_BYTES = 18


@frozen
class SecurityFiles:
    """The paths of a server's keys, certificates and settings. All files have mode 0600."""

    directory: Path

    @property
    def authority(self) -> Path:
        """The private key and the certificate of the authority, as PEM."""
        return self.directory / "authority.pem"

    @property
    def ca(self) -> Path:
        """The certificate of the authority, as PEM: the trust store of clients."""
        return self.directory / "ca.pem"

    @property
    def truststore(self) -> Path:
        """The certificate of the authority, as PKCS #12 for Java."""
        return self.directory / "truststore.p12"

    @property
    def broker(self) -> Path:
        """The key store of all brokers, as PKCS #12."""
        return self.directory / "broker.p12"

    @property
    def jaas(self) -> Path:
        """The JAAS configuration of brokers in ZooKeeper mode."""
        return self.directory / "jaas.conf"

    @property
    def token_key(self) -> Path:
        """The private key that signs access tokens, as PEM."""
        return self.directory / "token-key.pem"

    @property
    def token_server(self) -> Path:
        """The configuration of the token server."""
        return self.directory / "oidc.json"

    @property
    def kdc(self) -> Path:
        """The directory of the KDC: its database, krb5.conf, and the keytabs."""
        return self.directory / "kdc"

    @property
    def passwords(self) -> Path:
        return self.directory / "passwords.json"

    def pem(self, user: str) -> Path:
        """Return the key store of a user, as PEM."""
        return self.directory / f"user-{user}.pem"

    def pkcs12(self, user: str) -> Path:
        """Return the key store of a user, as PKCS #12."""
        return self.directory / f"user-{user}.p12"

    def client_properties(self, user: str, mechanism: str | None) -> Path:
        """Return the file for the `--command-config` of Java's tools."""
        return self.directory / f"client-{user}{f'-{mechanism}' if mechanism else ''}.properties"


@dataclass(frozen=True, slots=True, repr=False)
class Passwords:
    """The password of all stores, and those of the users. Its `repr` hides them."""

    store: str
    users: Mapping[str, str]


@dataclass(frozen=True, slots=True, repr=False)
class Material:
    """All that a server's security needs besides its settings."""

    files: SecurityFiles
    passwords: Passwords
    authority: Authority


def prepare(
    directory: Path, settings: SecuritySettings, broker_identity: Callable[[Authority], Identity] | None = None
) -> Material:
    """Return the material in `directory`, which only this user may read. Create missing files.

    The brokers' key store is always created: by `broker_identity`, or for localhost.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
    files = SecurityFiles(directory)
    passwords = _passwords(files, settings)
    if not files.authority.exists():
        write_private(files.authority, Authority.create().pem())
    authority = Authority.load(files.authority.read_bytes())
    write_private(files.ca, authority.certificate_pem())
    write_private(files.truststore, authority.truststore(passwords.store))
    write_pkcs12(files.broker, (broker_identity or Authority.issue)(authority), passwords.store)
    for user in settings.everybody:
        if not files.pem(user).exists():
            identity = authority.issue(user, hosts=())
            write_pem(files.pem(user), identity)
            write_pkcs12(files.pkcs12(user), identity, passwords.store)
    if SaslMechanism.OAUTHBEARER in settings.mechanisms and not files.token_key.exists():
        write_private(files.token_key, TokenKey.create().pem())
    return Material(files, passwords, authority)


def _passwords(files: SecurityFiles, settings: SecuritySettings) -> Passwords:
    store, users = _password(), {user: _password() for user in settings.everybody}
    if files.passwords.exists():
        known = json.loads(files.passwords.read_text())
        store, users = known["store"], {**users, **known["users"]}
    write_private(files.passwords, json.dumps({"store": store, "users": users}))
    return Passwords(store, users)


def _password() -> str:
    return secrets.token_urlsafe(_PASSWORD_BYTES)
