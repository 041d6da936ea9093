"""Determines the user that brokers see for a connection, for authorization errors."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

from streamgroup.advice import ANONYMOUS, Requester
from streamgroup.errors import ConfigError
from streamgroup.options.sasl import SaslOptions
from streamgroup.options.types import ClientOptions
from streamgroup.text import host_ports


@lru_cache(maxsize=16)
def requester_of(options: ClientOptions) -> Requester:
    """Return the principal and the bootstrap servers of `options`.

    The principal follows Kafka's default rules: the SASL user, else the subject of the client certificate, else
    `User:ANONYMOUS`. It is "" if only the brokers can tell the user, for example from a token that a function returns.
    """
    servers = host_ports(options.bootstrap_servers)
    return Requester(_principal(options), servers)


def _principal(options: ClientOptions) -> str:
    if options.sasl is not None:
        user = _sasl_user(options.sasl)
        return f"User:{user}" if user else ""
    if options.tls is None or not options.tls.has_keystore:
        return ANONYMOUS
    from streamgroup.kafka.net.tls.stores import client_subject  # noqa: PLC0415  (few users have a certificate to load it for)

    try:
        subject = client_subject(options.tls, datetime.now(UTC))
    except ConfigError:  # the connection has reported it, or a file is being replaced at the moment
        subject = ""
    return f"User:{subject}" if subject else ""


def _sasl_user(sasl: SaslOptions) -> str:
    """Return the user that the mechanism authenticates; empty if the options do not contain it."""
    if sasl.oauth is not None:
        return dict(sasl.oauth.unsecured_claims).get("sub", "")
    if sasl.kerberos is not None:  # brokers drop host and realm (sasl.kerberos.principal.to.local.rules=DEFAULT)
        return sasl.kerberos.principal.partition("@")[0].partition("/")[0]
    return "" if sasl.token_auth else sasl.username  # the id of a delegation token is not the name of its owner
