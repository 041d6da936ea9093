"""Other certificates, tokens and users of a secured server than `KafkaServer.security` offers."""

from __future__ import annotations

import json
import os
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
    ScramMechanism,
    UserScramCredentialDeletion,
)
from cryptography.hazmat.primitives.serialization import Encoding

from streamgroup.testing import Identity, KafkaServer, write_pkcs12
from streamgroup.testing.security.client import SCOPE
from streamgroup.testing.security.tokens import LIFETIME_S, TokenIssuer, TokenKey, TokenServerAddress
from tests.servers import address_of
from tests.waiting import wait_until

TIMEOUT_S = 20
NETWORK_THREADS = 3
"""The default of num.network.threads."""
ANY_NAMES = {"ssl.allow.san.changes": "true"}
"""The broker's property without which it takes no certificate with other host names than before (KIP-978)."""


def use_certificate(server: KafkaServer, identity: Identity) -> None:
    """Let a running broker of 4.x use another certificate for new connections. Returns when it does."""
    files = server.security.files
    write_pkcs12(files.broker, identity, json.loads(files.passwords.read_text())["store"])
    _reload(server, files.broker)
    expected = identity.certificate.public_bytes(Encoding.DER)

    def is_shown() -> bool:
        return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(address_of(server), timeout=TIMEOUT_S)) == expected

    # The broker's network threads take connections in turn, and each loads the key store by itself.
    wait_until(
        lambda: all(is_shown() for _ in range(2 * NETWORK_THREADS)), "the broker shows its new certificate", TIMEOUT_S
    )


def _reload(server: KafkaServer, keystore: Path) -> None:
    """Tell all brokers that their key store has changed: they look at no file by themselves (KIP-226)."""
    admin = AdminClient({"bootstrap.servers": server.direct_servers, "log_level": 3})
    name = f"listener.name.{server.security.settings.protocol.lower()}.ssl.keystore.location"
    entry = ConfigEntry(name, str(keystore), incremental_operation=AlterConfigOpType.SET)
    for broker in server.brokers:
        resource = ConfigResource(ResourceType.BROKER, str(broker.node_id), incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)


def replace_file(file: Path, write: Callable[[Path], object]) -> None:
    """Replace a file at once, so that no reader sees a part of it."""
    new = file.with_suffix(".new")
    write(new)
    os.replace(new, file)


def without_scram(server: KafkaServer, user: str) -> None:
    """Delete all passwords of a user for SCRAM; that for PLAIN stays."""
    admin = AdminClient({"bootstrap.servers": server.direct_servers, "log_level": 3})
    deleted = [UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256)]
    admin.alter_user_scram_credentials(deleted)[user].result(TIMEOUT_S)


def token_of(server: KafkaServer, user: str, lifetime_s: float) -> str:
    """Return an access token as the token endpoint grants it, whose life ends in so many seconds, or has ended."""
    files = server.security.files
    url = server.security.client(user, "OAUTHBEARER").properties["sasl.oauthbearer.token.endpoint.url"]
    address = TokenServerAddress(urlsplit(url).port or 0)
    issuer = TokenIssuer(TokenKey.load(files.token_key.read_bytes()), {user: "secret"}, address)
    form = {"grant_type": "client_credentials", "client_id": user, "client_secret": "secret", "scope": SCOPE}
    _, answer = issuer.post("/token", "", form, time.time() + lifetime_s - LIFETIME_S)
    return str(answer["access_token"])


def options_with_token_file(server: KafkaServer, user: str, file: Path) -> dict[str, str]:
    """Return the options of a client that reads its tokens from a file."""
    options = dict(server.security.client(user, "OAUTHBEARER").options)
    del options["kafka.sasl.jaas.config"]
    return {**options, "kafka.sasl.oauthbearer.token.endpoint.url": file.as_uri()}
