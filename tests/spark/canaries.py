"""Secured servers for one application, the options that reach them with a known secret each, and the search for those.

A *canary* is text that is nowhere but in one secret: a password, or a line of a key.
"""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from streamgroup.testing import Authority, KafkaServer, PostgresServer, ZooKeeperServer, write_pkcs12
from streamgroup.testing.directories import write_private

USERS = ("scram", "oauth", "jaas", "plain")
MECHANISMS = ("SCRAM-SHA-512", "OAUTHBEARER", "PLAIN")
MODULES = "org.apache.kafka.common.security"
WAYS = ("value", "env", "file")
"""How a secret is given: itself, in an environment variable, in a file."""
JWT = re.compile(rb"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}")
"""An access token, which is made when a query runs."""


@dataclass
class Canaries:
    """The secrets of one application, and how they are given to it."""

    way: str
    home: Path
    environment: dict[str, str] = field(default_factory=dict)
    """The variables that the application needs."""
    planted: dict[str, bytes] = field(default_factory=dict)
    """Each canary by a name that says where it is from."""
    database: PostgresServer | None = None
    """The database of the offset table of one case."""

    def of_database(self) -> dict[str, str]:
        """Return the options of an offset table; none without a database."""
        if self.database is None:
            return {}
        url = urlsplit(self.database.url)
        password = self.give("offsets.store.password", url.password or "")
        address = f"postgresql://{url.hostname}:{url.port}{url.path}"
        return {"offsets.store": address, "offsets.store.user": url.username or "", "offsets.store.password": password}

    def give(self, name: str, secret: str, canary: str = "") -> str:
        """Return the text to write into an option for `secret`. `canary` is a part of it, or the whole."""
        self.planted[name] = (canary or secret).encode()
        if self.way == "env":
            variable = f"CANARY_{len(self.planted)}"
            self.environment[variable] = secret
            return f"env:{variable}"
        if self.way == "file":
            return f"file:{write_private(self.home / f'secret-{len(self.planted)}', secret)}"
        return secret

    def password(self, name: str) -> tuple[str, str]:
        """Return a new password, and the text to write into an option for it."""
        made = f"canary{secrets.token_hex(12)}"
        return made, self.give(name, made)

    def pem(self, name: str, text: bytes) -> str:
        """Return the text to write for a key or for certificates. A line of each block is a canary."""
        lines = [line for line in text.decode().splitlines() if not line.startswith("-----")]
        return self.give(name, text.decode(), lines[1])

    def found_in(self, data: bytes) -> list[str]:
        """Return the canaries that `data` contains, as they are or encoded."""
        found = [name for name, canary in self.planted.items() if any(form in data for form in forms_of(canary))]
        return [*found, "an access token"] if JWT.search(data) else found


def forms_of(canary: bytes) -> set[bytes]:
    """Return the canary in the encodings in which it might be shown. Base64 has three, by its place in the text."""
    forms = {canary, quote(canary.decode()).encode(), canary.hex().encode(), canary.decode().encode("utf-16-le")}
    for place in range(3):
        encoded = base64.b64encode(b"\0" * place + canary)
        forms.add(encoded[4 if place else 0 : -4])
    return forms


@dataclass(frozen=True)
class Case:
    """Options that reach a cluster, and options of runs that fail with the beginnings of their errors."""

    options: dict[str, str]
    failing: dict[str, dict[str, str]]
    errors: dict[str, str]
    """The patterns of the errors of each failing run."""


def jaas(module: str, **options: str) -> str:
    given = " ".join(f'{name}="{value}"' for name, value in options.items())
    return f"{MODULES}.{module} required {given};"


def plain_case(kafka: KafkaServer, canaries: Canaries) -> Case:
    """PLAIN with files in PEM, and runs with wrong passwords, certificates and texts."""
    module, settings = "plain.PlainLoginModule", kafka.security.client("plain", "PLAIN")
    password = canaries.give("plain: jaas", kafka.security.client("plain", "PLAIN").librdkafka["sasl.password"])
    good = {**settings.options, "kafka.sasl.jaas.config": jaas(module, username="plain", password=password)}
    good |= canaries.of_database()
    _, wrong = canaries.password("plain: wrong password")
    stranger, misspelled = canaries.password("plain: unquoted")[0], canaries.password("plain: unknown option")[1]
    other_authority = write_private(canaries.home / "other.pem", Authority.create("another").certificate_pem())
    return Case(
        good,
        {
            "wrong-password": {**good, "kafka.sasl.jaas.config": jaas(module, username="plain", password=wrong)},
            "unknown-authority": {**good, "kafka.ssl.truststore.location": str(other_authority)},
            "unquoted": {
                **good,
                "kafka.sasl.jaas.config": f"{MODULES}.{module} required username=plain password={stranger}!;",
            },
            "misspelled": {**good, "kafka.sasl.jaas.confg": jaas(module, username="plain", password=misspelled)},
            "no-variable": {
                **good,
                "kafka.sasl.jaas.config": jaas(module, username="plain", password="env:NO_SUCH_VARIABLE"),
            },
        },
        {
            "wrong-password": "rejected the credentials",
            "unknown-authority": "authority",
            "unquoted": r"option kafka\.sasl\.jaas\.config: ",
            "misspelled": "unknown option 'kafka.sasl.jaas.confg'",
            "no-variable": "the environment variable 'NO_SUCH_VARIABLE' is not set",
        },
    )


def pkcs12_stores(prefix: str, user: str, authority: Authority, canaries: Canaries) -> dict[str, str]:
    """Return the options of a key store of `user` and of a trust store, each with a password of its own."""
    store, store_password = canaries.password(f"{prefix}keystore.password of {user}")
    trust, trust_password = canaries.password(f"{prefix}truststore.password of {user}")
    key_file = write_pkcs12(canaries.home / f"{user}-key.p12", authority.issue(user, hosts=()), store)
    trust_file = write_private(canaries.home / f"{user}-trust.p12", authority.truststore(trust))
    return {
        f"{prefix}keystore.type": "PKCS12",
        f"{prefix}keystore.location": str(key_file),
        f"{prefix}keystore.password": store_password,
        f"{prefix}truststore.type": "PKCS12",
        f"{prefix}truststore.location": str(trust_file),
        f"{prefix}truststore.password": trust_password,
    }


def pem_stores(prefix: str, user: str, authority: Authority, canaries: Canaries) -> dict[str, str]:
    """Return the options that hold the key of `user`, encrypted, and certificates themselves."""
    identity = authority.issue(user, hosts=())
    of_key, key_password = canaries.password(f"{prefix}key.password of {user}")
    parts = {
        "truststore.certificates": authority.certificate_pem(),
        "keystore.key": identity.key_pem(of_key),
        "keystore.certificate.chain": identity.chain_pem(),
    }
    given = {prefix + name: canaries.pem(f"{prefix}{name} of {user}", text) for name, text in parts.items()}
    return {**given, f"{prefix}key.password": key_password}


def scram_case(kafka: KafkaServer, canaries: Canaries) -> Case:
    """SCRAM, with key store and trust store in PKCS #12, and a run with a wrong password of each store."""
    settings, authority = kafka.security.client("scram", "SCRAM-SHA-512"), kafka.security.authority
    password = canaries.give("scram: jaas", settings.librdkafka["sasl.password"])
    good = {
        **settings.options,
        "kafka.sasl.jaas.config": jaas("scram.ScramLoginModule", username="scram", password=password),
        **pkcs12_stores("kafka.ssl.", "scram", authority, canaries),
    }
    _, wrong_store = canaries.password("scram: wrong keystore.password")
    _, wrong_trust = canaries.password("scram: wrong truststore.password")
    return Case(
        good,
        {
            "wrong-keystore-password": {**good, "kafka.ssl.keystore.password": wrong_store},
            "wrong-truststore-password": {**good, "kafka.ssl.truststore.password": wrong_trust},
        },
        {
            "wrong-keystore-password": r"kafka\.ssl\.keystore\.password",
            "wrong-truststore-password": r"kafka\.ssl\.truststore\.password",
        },
    )


def oauth_case(kafka: KafkaServer, canaries: Canaries) -> Case:
    """OAUTHBEARER by options of its own, keys and certificates in options, and runs with wrong ones."""
    settings, authority = kafka.security.client("oauth", "OAUTHBEARER"), kafka.security.authority
    secret = canaries.give("oauth: client.secret", settings.librdkafka["sasl.oauthbearer.client.secret"])
    credentials = "kafka.sasl.oauthbearer.client.credentials.client"
    dropped = ("jaas.config", "truststore.location", "keystore.location")
    good = {
        **{name: value for name, value in settings.options.items() if not name.endswith(dropped)},
        f"{credentials}.id": "oauth",
        f"{credentials}.secret": secret,
        "kafka.sasl.oauthbearer.scope": "kafka",
        **pem_stores("kafka.ssl.", "oauth", authority, canaries),
    }
    _, wrong_secret = canaries.password("oauth: wrong client.secret")
    _, wrong_key = canaries.password("oauth: wrong key.password")
    return Case(
        good,
        {
            "wrong-client-secret": {**good, f"{credentials}.secret": wrong_secret},
            "wrong-key-password": {**good, "kafka.ssl.key.password": wrong_key},
        },
        {"wrong-client-secret": "401", "wrong-key-password": r"kafka\.ssl\.key\.password"},
    )


def jaas_oauth_case(kafka: KafkaServer, canaries: Canaries) -> Case:
    """OAUTHBEARER with the client's secret in `sasl.jaas.config`."""
    settings = kafka.security.client("jaas", "OAUTHBEARER")
    secret = canaries.give("jaas: clientSecret", settings.librdkafka["sasl.oauthbearer.client.secret"])
    _, wrong = canaries.password("jaas: wrong clientSecret")
    module = "oauthbearer.OAuthBearerLoginModule"
    good = {
        **settings.options,
        "kafka.sasl.jaas.config": jaas(module, clientId="jaas", clientSecret=secret, scope="kafka"),
    }
    bad = {**good, "kafka.sasl.jaas.config": jaas(module, clientId="jaas", clientSecret=wrong, scope="kafka")}
    return Case(good, {"wrong-secret": bad}, {"wrong-secret": "401"})


def zookeeper_pkcs12_case(zookeeper: ZooKeeperServer, chroot: str, canaries: Canaries) -> Case:
    """A Kafka 0.7 whose ZooKeeper has TLS, with a user's digest and stores in PKCS #12. One run finds no brokers."""
    authority = zookeeper.security.authority
    _, password = canaries.password("zookeeper.password")
    good = {
        "zookeeper.connect": zookeeper.client_options["zookeeper.connect"] + chroot,
        "zookeeper.username": "bob",
        "zookeeper.password": password,
        "zookeeper.ssl.client.enable": "true",
        **pkcs12_stores("zookeeper.ssl.", "bob", authority, canaries),
    }
    _, wrong_store = canaries.password("zookeeper: wrong keystore.password")
    return Case(
        good,
        {
            "no-brokers": {**good, "zookeeper.connect": good["zookeeper.connect"] + "/nothing"},
            "wrong-keystore-password": {**good, "zookeeper.ssl.keystore.password": wrong_store},
        },
        {"no-brokers": "(?i)zookeeper|broker", "wrong-keystore-password": r"zookeeper\.ssl\.keystore\.password"},
    )


def zookeeper_pem_case(zookeeper: ZooKeeperServer, chroot: str, canaries: Canaries) -> Case:
    """The same with keys and certificates in the options, and a run with a wrong password of the key."""
    authority = zookeeper.security.authority
    good = {
        "zookeeper.connect": zookeeper.client_options["zookeeper.connect"] + chroot,
        "zookeeper.ssl.client.enable": "true",
        **pem_stores("zookeeper.ssl.", "bob", authority, canaries),
    }
    _, wrong_key = canaries.password("zookeeper: wrong key.password")
    return Case(
        good,
        {"wrong-key-password": {**good, "zookeeper.ssl.key.password": wrong_key}},
        {"wrong-key-password": r"zookeeper\.ssl\.key\.password"},
    )


ZOOKEEPER_CASES: Mapping[str, Callable[[ZooKeeperServer, str, Canaries], Case]] = {
    "zookeeper-pkcs12": zookeeper_pkcs12_case,
    "zookeeper-pem": zookeeper_pem_case,
}
KAFKA_CASES: Mapping[str, Callable[[KafkaServer, Canaries], Case]] = {
    "scram": scram_case,
    "oauth": oauth_case,
    "jaas": jaas_oauth_case,
    "plain": plain_case,
}


def files_below(home: Path) -> Iterator[tuple[str, bytes]]:
    """Yield all files below a directory: paths within it, and contents."""
    for path in sorted(home.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(home)), path.read_bytes()


def variables_of(environment: bytes) -> dict[str, Any]:
    """Return the variables of a process, as /proc shows them."""
    pairs = (entry.partition(b"=") for entry in environment.split(b"\0") if entry)
    return {name.decode(errors="replace"): value for name, _, value in pairs}
