"""The options of TLS (`kafka.ssl.*`, `zookeeper.ssl.*`) as values, and the checks of their combinations.

No value here is key material that has been read: files are read and references to secrets are followed where a
connection is opened, in the driver and in each executor.
"""

from __future__ import annotations

import difflib

from streamgroup.frozen import frozen
from streamgroup.options.notes import Caution
from streamgroup.options.secrets import Secret

PEM = "PEM"
"""The type of stores that are text. The client tells JKS and PKCS12 apart by the first bytes of the file."""
PLAINTEXT = "PLAINTEXT"
SSL = "SSL"
SASL_PLAINTEXT = "SASL_PLAINTEXT"
SASL_SSL = "SASL_SSL"


@frozen
class TlsServers:
    """How messages name the servers that TLS options are for, and the options themselves."""

    prefix: str
    """The beginning of the options' names."""
    noun: str
    addresses: str
    """The setting that has the servers' host names."""
    without_tls: str
    """The next step for a plaintext listener."""
    clients: str
    """The machines that connect to them."""


BROKERS = TlsServers(
    "kafka.ssl.",
    "broker",
    "the broker's advertised.listeners",
    "Set the port of the TLS listener. If the cluster has none, set kafka.security.protocol to PLAINTEXT, or to "
    "SASL_PLAINTEXT for a listener with SASL",
    "the driver and on each executor",
)
ZOOKEEPERS = TlsServers(
    "zookeeper.ssl.",
    "ZooKeeper server",
    "the host in zookeeper.connect",
    "Set the port of the TLS listener (secureClientPort) in zookeeper.connect. If the server has none, set "
    "zookeeper.ssl.client.enable=false",
    "the driver",
)


@frozen
class TlsOptions:
    """How to secure the connections to the brokers or to ZooKeeper. Names and defaults are those of Java's clients."""

    enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    protocol: str = "TLSv1.3"
    """The newest version to use, even if `enabled_protocols` has a newer one."""
    cipher_suites: tuple[str, ...] | None = None
    """OpenSSL's names of the allowed suites. None allows those that OpenSSL enables by default."""
    endpoint_identification: str = "https"
    """Empty switches the verification of host names off."""
    truststore_type: str = "JKS"
    truststore_location: str | None = None
    truststore_password: Secret | None = None
    truststore_certificates: Secret | None = None
    keystore_type: str = "JKS"
    keystore_location: str | None = None
    keystore_password: Secret | None = None
    keystore_key: Secret | None = None
    keystore_certificate_chain: Secret | None = None
    key_password: Secret | None = None
    servers: TlsServers = BROKERS

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions of TLS to offer, in the spelling of `enabled_protocols`; none if the options exclude all."""
        suites = self.cipher_suites
        allowed = {"TLSv1.2", "TLSv1.3"} if self.protocol == "TLSv1.3" else {"TLSv1.2"}
        if suites is not None and TLS13.isdisjoint(suites):
            allowed.discard("TLSv1.3")
        if suites is not None and TLS13.issuperset(suites):
            allowed.discard("TLSv1.2")
        return tuple(version for version in self.enabled_protocols if version in allowed)

    @property
    def has_keystore(self) -> bool:
        return self.keystore_location is not None or self.keystore_key is not None


def contradictions(options: TlsOptions) -> list[str]:
    """Return the problems of options that exclude or require each other, as in Kafka's DefaultSslEngineFactory."""
    return [*_of_versions(options), *_of_truststore(options), *_of_keystore(options)]


def warnings(options: TlsOptions) -> list[str]:
    """Return notes for the log about settings that weaken the connection or have no effect."""
    found: list[str] = []
    servers = options.servers
    if not options.endpoint_identification:
        found.append(
            Caution(
                f"host names of {servers.noun}s are not verified, because {servers.prefix}endpoint.identification."
                f"algorithm is empty: any server with a trusted certificate can pose as a {servers.noun}"
            )
        )
    if options.key_password is not None and not options.has_keystore:
        found.append(f"ignored option {servers.prefix}key.password: no key store is set")
    return found


def _of_versions(options: TlsOptions) -> list[str]:
    if options.versions:
        return []
    prefix = options.servers.prefix
    return [
        f"no version of TLS is left by {prefix}enabled.protocols, {prefix}protocol and {prefix}cipher.suites: "
        "each suite belongs to TLS 1.2 or to TLS 1.3. Make them agree, or leave them out"
    ]


def _of_truststore(options: TlsOptions) -> list[str]:
    problems, prefix = [], options.servers.prefix
    is_pem, location = options.truststore_type == PEM, options.truststore_location
    if options.truststore_certificates is not None:
        if not is_pem:
            problems.append(_needs_pem(prefix, "truststore.certificates", "truststore"))
        if location is not None:
            problems.append(_excludes(prefix, "truststore.certificates", "truststore.location"))
    if options.truststore_password is not None:
        if is_pem:
            problems.append(f"cannot use {prefix}truststore.password: PEM has no password. Remove the option")
        elif location is None:
            problems.append(_needs(prefix, "truststore.password", "truststore.location"))
    return problems


def _of_keystore(options: TlsOptions) -> list[str]:
    problems, prefix = [], options.servers.prefix
    is_pem, location = options.keystore_type == PEM, options.keystore_location
    key, chain = options.keystore_key, options.keystore_certificate_chain
    if key is not None or chain is not None:
        if not is_pem:
            problems.append(_needs_pem(prefix, "keystore.key", "keystore"))
        if key is None:
            problems.append(_needs(prefix, "keystore.certificate.chain", "keystore.key"))
        if chain is None:
            problems.append(_needs(prefix, "keystore.key", "keystore.certificate.chain"))
        if location is not None:
            problems.append(_excludes(prefix, "keystore.key", "keystore.location"))
    if is_pem and options.keystore_password is not None:
        problems.append(
            f"cannot use {prefix}keystore.password: in PEM only the key has a password. Set {prefix}key.password"
        )
    elif not is_pem and location is not None and options.keystore_password is None:
        problems.append(_needs(prefix, "keystore.location", "keystore.password"))
    elif not is_pem and location is None and options.keystore_password is not None:
        problems.append(_needs(prefix, "keystore.password", "keystore.location"))
    return problems


def _needs_pem(prefix: str, name: str, store: str) -> str:
    return f"cannot use {prefix}{name}: it holds PEM. Set {prefix}{store}.type=PEM"


def _needs(prefix: str, name: str, other: str) -> str:
    return f"{prefix}{name} requires {prefix}{other}. Set both"


def _excludes(prefix: str, name: str, other: str) -> str:
    return f"{prefix}{name} and {prefix}{other} exclude each other. Remove one of them"


TLS13 = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
"""The suites of TLS 1.3, which have one name in Java and OpenSSL. A suite belongs to TLS 1.3 or to TLS 1.2."""

_KEY_EXCHANGES = {
    "TLS_ECDHE_ECDSA": "ECDHE-ECDSA-",
    "TLS_ECDHE_RSA": "ECDHE-RSA-",
    "TLS_DHE_RSA": "DHE-RSA-",
    "TLS_RSA": "",
}
_CIPHERS = {
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
    "AES_256_CBC_SHA384": "AES256-SHA384",
    "AES_256_CBC_SHA256": "AES256-SHA256",
    "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_256_CBC_SHA": "AES256-SHA",
    "AES_128_CBC_SHA": "AES128-SHA",
}
_NEVER_DEFINED = {
    *(f"TLS_ECDHE_{signature}_WITH_AES_256_CBC_SHA256" for signature in ("ECDSA", "RSA")),
    *(f"{exchange}_WITH_AES_256_CBC_SHA384" for exchange in ("TLS_DHE_RSA", "TLS_RSA")),
    "TLS_RSA_WITH_CHACHA20_POLY1305_SHA256",
}
"""The products of the two tables that no RFC defines."""

OPENSSL_NAMES = {
    name: opened + cipher
    for exchange, opened in _KEY_EXCHANGES.items()
    for suffix, cipher in _CIPHERS.items()
    if (name := f"{exchange}_WITH_{suffix}") not in _NEVER_DEFINED
} | {name: name for name in sorted(TLS13)}
"""OpenSSL's name of each suite by Java's name (RFC 5246, 5288, 5289, 7905, 8446)."""

_LISTED = 3


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a suite that is named as in Java. Raises ValueError with similar names."""
    name = suite.upper()
    if name in OPENSSL_NAMES:
        return OPENSSL_NAMES[name]
    near = difflib.get_close_matches(name, OPENSSL_NAMES, n=_LISTED, cutoff=0.0)
    raise ValueError(f"unknown or insecure cipher suite {suite!r}. Similar ones are {', '.join(near)}")
