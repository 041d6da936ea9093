"""The mechanism of one exchange with one broker, made in the background where it needs something from elsewhere."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable

from streamgroup.auth.mechanism import Mechanism
from streamgroup.auth.oauthbearer import OAuthBearerMechanism
from streamgroup.auth.plain import PlainMechanism
from streamgroup.auth.scram import ScramMechanism
from streamgroup.net.sasl.tokens import TOKENS
from streamgroup.net.tls.contexts import CONTEXTS
from streamgroup.options.sasl import OAUTHBEARER, PLAIN, SaslOptions
from streamgroup.options.tls import TlsOptions

_NONCE_BYTES = 24


class Credentials:
    """Makes the mechanism of one exchange with the broker at `peer`.

    A token is asked for in a thread, which calls `notify` at the end: a token endpoint may take seconds.
    """

    def __init__(
        self, options: SaslOptions, tls: TlsOptions, peer: str, notify: Callable[[], None] | None = None
    ) -> None:
        self._options, self._tls, self._peer = options, tls, peer
        self._notify = notify
        self._mechanism: Mechanism | None = None
        self._error: Exception | None = None
        self._done = threading.Event()
        if options.mechanism == OAUTHBEARER:
            threading.Thread(target=self._run, name=f"token for {peer}", daemon=True).start()
        else:
            self._mechanism = make_mechanism(options, tls, peer)
            self._done.set()

    @property
    def done(self) -> bool:
        """True if `mechanism` has one, or an error."""
        return self._done.is_set()

    def wait(self, timeout: float) -> None:
        """Wait at most `timeout` seconds until `done`."""
        self._done.wait(timeout)

    def mechanism(self) -> Mechanism:
        """Return the mechanism of a new exchange.

        Raises AuthenticationError or ConfigError if no retry can help, TransportError if one may.
        """
        if self._error is not None:
            raise self._error
        assert self._mechanism is not None
        return self._mechanism

    def _run(self) -> None:
        try:
            self._mechanism = make_mechanism(self._options, self._tls, self._peer)
        except Exception as error:
            self._error = error
        finally:
            self._done.set()
            if self._notify is not None:
                self._notify()


def make_mechanism(options: SaslOptions, tls: TlsOptions, peer: str) -> Mechanism:
    """Return the mechanism of a new exchange with the broker at `peer`. Raises as `Credentials.mechanism`."""
    if options.mechanism == OAUTHBEARER:
        assert options.oauth is not None
        token = TOKENS.get(options.oauth, lambda: CONTEXTS.get(tls))
        return OAuthBearerMechanism(peer, token, dict(options.oauth.extensions))
    assert options.password is not None
    password = options.password.reveal("kafka.sasl.jaas.config")
    if options.mechanism == PLAIN:
        return PlainMechanism(peer, options.username, password)
    nonce = secrets.token_urlsafe(_NONCE_BYTES)
    return ScramMechanism(options.mechanism, peer, options.username, password, nonce, token_auth=options.token_auth)
