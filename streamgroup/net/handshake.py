"""Finds out what a broker speaks: a pure machine, over as many connections as that takes.

A broker from 0.10 on is asked (ApiVersions, KIP-35, KIP-511). An older one hangs up on that. Then the probes of the
older releases are sent, each on a connection of its own and the newest first, until one is answered. Behind each probe
ApiVersions is asked once more: whoever answers that is no old broker, but one that was only just starting or stopping.
Whoever answers the probe and hangs up on ApiVersions again is old, and is remembered as such.

A broker of 0.9.0 does not hang up, it steps over what it does not know. So after a silence a probe is sent behind
ApiVersions: brokers answer in order, and who answers the probe alone has stepped over the other. Who is only slow is
never taken for an old broker: its answers would lack headers and timestamps, and nobody would notice. (To 0.9.0 the
unknown request is an exception, at which it also drops what others have sent it in the same moment. So it is asked no
oftener than need be, and tasks are told what the driver knows: `FetchTask.releases`.)

The contract: send `first_requests()` on each new connection. Hand each response to `on_response`. Call `on_hang_up`
when the connection ends before `versions` is known. After each PROBE_AFTER_S without a response send `pipelined_probe`,
and call `on_probe_answered_first` when the response to that comes before the one to ApiVersions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from streamgroup import __version__
from streamgroup.errors import BrokerError, DecodeError, ErrorCode, TransportError, error_of, may_succeed_later
from streamgroup.net.releases import RELEASE_MEMORY, RELEASES, Release, ReleaseMemory
from streamgroup.wire.frames import decode_response
from streamgroup.wire.messages.cluster import ApiVersionsRequest
from streamgroup.wire.messages.coordinator import FindCoordinatorRequest
from streamgroup.wire.primitives import Bytes
from streamgroup.wire.schema import Request, encode
from streamgroup.wire.versions import BrokerVersions

_SOFTWARE_NAME = "streamgroup"
_NAMED_VERSION = 3
"""The first that names the client's software (KIP-511). A broker without it answers error 35 in the layout of v0."""


PROBE_AFTER_S = 1.0
"""After so long without an answer to ApiVersions a broker may be one that never gives it."""


class HandshakeRequest(NamedTuple):
    """A request of the handshake, with its body."""

    api: type[Request[Any]]
    version: int
    body: Bytes

    @property
    def may_be_skipped(self) -> bool:
        """Whether a broker that does not know it may go on with the next request."""
        return self.api is ApiVersionsRequest

    @property
    def may_be_anonymous(self) -> bool:
        """Whether correlation id 0 is right whatever was sent: 0.8.2 has no other for a group without a name."""
        return self.api is FindCoordinatorRequest

    def __str__(self) -> str:
        return f"{self.api.NAME} v{self.version}"


_API_VERSIONS_V0 = HandshakeRequest(ApiVersionsRequest, 0, encode(ApiVersionsRequest(), 0))
_API_VERSIONS_V3 = HandshakeRequest(
    ApiVersionsRequest,
    _NAMED_VERSION,
    encode(
        ApiVersionsRequest(client_software_name=_SOFTWARE_NAME, client_software_version=__version__), _NAMED_VERSION
    ),
)

NOT_A_BROKER_HINT = (
    "It may be Kafka 0.7 (then give 'zookeeper.connect' in place of 'kafka.bootstrap.servers'), a listener with TLS or "
    "SASL, a broker that takes no more connections, or no Kafka broker at all"
)


class Handshake:
    """See the module. `peer` is the broker's address as `host:port`."""

    __slots__ = ("_at", "_memory", "_peer", "_probe_answered", "_probe_pipelined", "versions")

    def __init__(self, peer: str, memory: ReleaseMemory = RELEASE_MEMORY) -> None:
        self._peer = peer
        self._memory = memory
        self._at: int | None = None
        """The release whose probe is asked on this connection."""
        self._probe_answered = self._probe_pipelined = False
        known = memory.recall(peer)
        self.versions: BrokerVersions | None = None if known is None else known.versions(peer)
        """What the broker speaks; known from the start where it is remembered."""

    def first_requests(self) -> tuple[HandshakeRequest, ...]:
        """What a new connection is to be asked; nothing where the versions are known."""
        if self.versions is not None:
            return ()
        if self._at is None:
            return (_API_VERSIONS_V3,)
        probe = _probe(RELEASES[self._at])
        return (probe, _API_VERSIONS_V0)

    def on_response(self, question: HandshakeRequest, frame: Bytes) -> HandshakeRequest | None:
        """The answer to `question`: what to ask besides on the same connection, if anything.

        Raises BrokerError where the broker refuses, TransportError where it may not refuse the next time, DecodeError
        for an answer that cannot be read.
        """
        if question.api is not ApiVersionsRequest:
            self._decoded(question, frame)
            self._probe_answered = True
            return None
        code = int.from_bytes(frame[4:6], "big", signed=True)  # stands first in every version
        if code == ErrorCode.UNSUPPORTED_VERSION and question.version > 0:
            return _API_VERSIONS_V0
        if code and may_succeed_later(code):
            raise TransportError(f"{self._peer}: the ApiVersions handshake: {error_of(code).name}")
        if code:
            raise BrokerError(code, f"{self._peer}: the ApiVersions handshake")
        self.versions = BrokerVersions.of(self._decoded(question, frame), self._peer)
        return None

    def on_hang_up(self) -> bool:
        """The broker has closed the connection before `versions` were known: whether to try on with a new one."""
        answered, self._probe_answered, self._probe_pipelined = self._probe_answered, False, False
        if self._at is None:
            self._at = 0
        elif answered:
            self._recognise(RELEASES[self._at])
        else:
            self._at += 1
        return self._at < len(RELEASES)

    def pipelined_probe(self) -> HandshakeRequest | None:
        """After a silence: what to ask behind ApiVersions, once."""
        if self._probe_pipelined:
            return None
        self._probe_pipelined = True
        return _probe(RELEASES[self._at or 0])

    def on_probe_answered_first(self) -> None:
        """The probe behind ApiVersions was answered, and that was not."""
        self._recognise(RELEASES[self._at or 0])

    def _recognise(self, release: Release) -> None:
        self._memory.remember(self._peer, release)
        self.versions = release.versions(self._peer)

    def forget_release(self) -> None:
        """A connection on which the versions were believed has failed: the broker may be another one by now."""
        if self.versions is not None and self.versions.release:
            self._memory.forget(self._peer)

    def _decoded(self, question: HandshakeRequest, frame: Bytes) -> Any:
        try:
            return decode_response(question.api, question.version, frame)[1]
        except DecodeError as error:
            raise type(error)(
                f"{self._peer}: the answer to {question} cannot be read: {error}. {NOT_A_BROKER_HINT}"
            ) from error


def _probe(release: Release) -> HandshakeRequest:
    return HandshakeRequest(release.probe, 0, release.question)


ALL_HANDSHAKE_REQUESTS = ", ".join(map(str, (_API_VERSIONS_V3, *map(_probe, RELEASES))))
"""For the error of a broker that hangs up on all of them."""
