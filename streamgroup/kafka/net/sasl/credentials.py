"""Creates the SASL mechanism of one exchange from the options, with its password, token or ticket."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial

from streamgroup.kafka.net.background import Background, WaitTimeout
from streamgroup.kafka.net.sasl.kerberos import TICKETS, GssapiMechanism
from streamgroup.kafka.net.sasl.mechanisms import Mechanism, OAuthBearerMechanism, PlainMechanism, ScramMechanism
from streamgroup.kafka.net.sasl.tokens import TOKENS, described_end
from streamgroup.kafka.net.tls.contexts import endpoint_context
from streamgroup.options.sasl import GSSAPI, OAUTHBEARER, PLAIN, SaslOptions
from streamgroup.options.tls import TlsOptions

_NONCE_BYTES = 24
_TIMEOUTS = {
    GSSAPI: WaitTimeout("there was no Kerberos ticket", "Check that this machine reaches the KDC that krb5.conf names"),
    OAUTHBEARER: WaitTimeout("there was no token", "Check that this machine reaches the token endpoint"),
}
_PASSWORD_TIMEOUT = WaitTimeout("there was no password", "Check the file that kafka.sasl.jaas.config refers to")


def begin_mechanism(
    options: SaslOptions, tls: TlsOptions, peer: str, notify: Callable[[], None] | None = None
) -> Background[Mechanism]:
    """Create the mechanism of one exchange with the broker at `peer`, in the background.

    A token endpoint or a KDC may take seconds. `result` raises as `make_mechanism`.
    """
    return Background(
        lambda: make_mechanism(options, tls, peer), _TIMEOUTS.get(options.mechanism, _PASSWORD_TIMEOUT), notify
    )


def make_mechanism(options: SaslOptions, tls: TlsOptions, peer: str) -> Mechanism:
    """Return the mechanism of a new exchange with the broker at `peer`. Waits for a token or a ticket if necessary.

    Raises AuthenticationError or ConfigError if retrying will not help, TransportError if a retry may succeed.
    """
    if options.mechanism == OAUTHBEARER:
        assert options.oauth is not None
        token = TOKENS.get(options.oauth, lambda: endpoint_context(tls))
        forget = partial(TOKENS.forget, options.oauth)
        return OAuthBearerMechanism(peer, token, dict(options.oauth.extensions), described_end(token), forget)
    if options.mechanism == GSSAPI:
        assert options.kerberos is not None
        context, principal = TICKETS.open(options.kerberos, peer)
        return GssapiMechanism(peer, context, principal, partial(TICKETS.forget, options.kerberos))
    assert options.password is not None
    password = options.password.reveal("kafka.sasl.jaas.config")
    if options.mechanism == PLAIN:
        return PlainMechanism(peer, options.username, password)
    nonce = secrets.token_urlsafe(_NONCE_BYTES)
    return ScramMechanism(options.mechanism, peer, options.username, password, nonce, token_auth=options.token_auth)
