"""Negotiates the API versions of a broker over one or more connections: the handshake, as a pure state machine.

A broker from 0.10 on answers ApiVersions (KIP-35, KIP-511). An older broker closes the connection on that request. The
client then probes for each older release, the newest first, each time on a new connection: it sends a request that only
this release and later ones support, until a broker answers. It pipelines another ApiVersions after each probe. A broker
that answers this ApiVersions is not old: it was only starting or stopping. A broker that answers the probe and closes
the connection on ApiVersions is old, and its release is remembered.

A broker of 0.9.0 does not close the connection: it skips requests that it does not know. After PROBE_AFTER_S without a
response the client therefore pipelines a probe after ApiVersions. Brokers answer in order, so a broker that answers
only the probe has skipped ApiVersions. A broker that is only slow is never taken for an old one: responses in old
versions lack headers and timestamps, and no error would report that. In 0.9.0 the unknown request raises an exception
that also drops requests of other clients. The client therefore probes as rarely as possible, and the driver passes the
known releases to its tasks (`FetchTask.releases`).

How to use it: send `first_requests()` on each new connection. Pass each response to `on_response`. Call `on_hang_up`
when the connection ends before `versions` is known. After each PROBE_AFTER_S without a response send `pipelined_probe`,
and call `on_probe_answered_first` when its response comes before the response to ApiVersions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from streamgroup import __version__
from streamgroup.errors import BrokerError, DecodeError, ErrorCode, TransportError, error_of, may_succeed_later
from streamgroup.frozen import frozen
from streamgroup.kafka.wire.frames import decode_response
from streamgroup.kafka.wire.messages.admin import DescribeGroupsRequest, ListGroupsRequest
from streamgroup.kafka.wire.messages.cluster import ApiVersionsRequest, MetadataRequest
from streamgroup.kafka.wire.messages.group import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from streamgroup.kafka.wire.messages.log import FetchRequest, ListOffsetsRequest
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from streamgroup.kafka.wire.messages.produce import ProduceRequest
from streamgroup.kafka.wire.primitives import Bytes
from streamgroup.kafka.wire.schema import Request, encode
from streamgroup.kafka.wire.versions import BrokerVersions

_Newest = dict[type[Request[Any]], int]
"""The newest version of each API; the oldest version is 0."""

_0_8_0: _Newest = {MetadataRequest: 0, ProduceRequest: 0, FetchRequest: 0, ListOffsetsRequest: 0}
_0_8_1: _Newest = {**_0_8_0, OffsetCommitRequest: 0, OffsetFetchRequest: 0}
_0_8_2: _Newest = {**_0_8_1, OffsetCommitRequest: 1, OffsetFetchRequest: 1, FindCoordinatorRequest: 0}
_0_9: _Newest = {
    **_0_8_2,
    ProduceRequest: 1,
    FetchRequest: 1,
    OffsetCommitRequest: 2,
    JoinGroupRequest: 0,
    SyncGroupRequest: 0,
    HeartbeatRequest: 0,
    LeaveGroupRequest: 0,
    ListGroupsRequest: 0,
    DescribeGroupsRequest: 0,
}


@frozen
class BrokerRelease:
    """A release of Kafka without ApiVersions.

    `probe` is an API that earlier releases lack. The probe is a request of its version 0 with `probe_body`.
    """

    name: str
    newest: _Newest
    probe: type[Request[Any]]
    probe_body: Bytes

    def versions(self, broker: str) -> BrokerVersions:
        ranges = {api.API_KEY: (0, newest) for api, newest in self.newest.items()}
        return BrokerVersions(broker, ranges, self.name)


RELEASES = (
    BrokerRelease("0.9", _0_9, ListGroupsRequest, encode(ListGroupsRequest(), 0)),
    BrokerRelease("0.8.2", _0_8_2, FindCoordinatorRequest, b"\xff\xff"),
    BrokerRelease("0.8.1", _0_8_1, OffsetFetchRequest, encode(OffsetFetchRequest(group_id="streamgroup"), 0)),
    BrokerRelease("0.8.0", _0_8_0, MetadataRequest, encode(MetadataRequest(topics=()), 0)),
)
"""All releases without ApiVersions, the newest first."""

REMEMBERED_S = 600.0
"""Seconds after which the client sends ApiVersions to a broker again: brokers get upgraded."""


class ReleaseMemory:
    """Remembers the releases of brokers without ApiVersions by `host:port`, so that each is probed once. Thread-safe.

    An entry expires after REMEMBERED_S, and is removed after the first failed connection to its broker.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, tuple[BrokerRelease, float]] = {}

    def recall(self, peer: str) -> BrokerRelease | None:
        """Return the release of the broker at `peer`, or None if it is not known."""
        with self._lock:
            release, until = self._known.get(peer, (None, 0.0))
            if release is not None and self._clock() >= until:
                del self._known[peer]
                return None
            return release

    def remember(self, peer: str, release: BrokerRelease) -> None:
        now = self._clock()
        with self._lock:
            # No caller recalls brokers that are gone, so their entries are removed here.
            self._known = {known: row for known, row in self._known.items() if now < row[1]}
            self._known[peer] = release, now + REMEMBERED_S

    def known_releases(self, peers: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """Return (`host:port`, release name) of the known brokers among `peers`, to pass to another process."""
        known = ((peer, self.recall(peer)) for peer in sorted(set(peers)))
        return tuple((peer, release.name) for peer, release in known if release is not None)

    def learn(self, releases: Iterable[tuple[str, str]]) -> None:
        """Add the `known_releases` of another process. Brokers that this process knows keep their release."""
        by_name = {release.name: release for release in RELEASES}
        for peer, name in releases:
            if self.recall(peer) is None and name in by_name:
                self.remember(peer, by_name[name])

    def forget(self, peer: str) -> None:
        with self._lock:
            self._known.pop(peer, None)

    def clear(self) -> None:
        with self._lock:
            self._known.clear()


RELEASE_MEMORY = ReleaseMemory()
"""The memory of this process."""

_SOFTWARE_NAME = "streamgroup"
_NAMED_VERSION = 3
"""The first version that names the client software (KIP-511). Brokers without it answer error 35 in v0."""


PROBE_AFTER_S = 1.0
"""Seconds without a response to ApiVersions after which the broker may be one that skips the request (0.9.0)."""


class HandshakeRequest(NamedTuple):
    """A request of the handshake, with its encoded body."""

    api: type[Request[Any]]
    version: int
    body: Bytes

    @property
    def may_be_skipped(self) -> bool:
        """Whether a broker that does not know the request may skip it and answer the next request."""
        return self.api is ApiVersionsRequest

    @property
    def may_be_anonymous(self) -> bool:
        """Whether correlation id 0 matches: 0.8.2 sends it for a FindCoordinator request without a group."""
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
    "It may be Kafka 0.7 (then set 'zookeeper.connect' instead of 'kafka.bootstrap.servers'), a listener with TLS or "
    "SASL (then set 'kafka.security.protocol'), a broker at its connection limit, or another kind of server"
)

NOT_TLS_HINT = (
    "It may be a listener without TLS (then set kafka.security.protocol=PLAINTEXT), a broker that starts, stops or is "
    "at its connection limit, or another kind of server"
)
"""The usual causes of a server that ends the connection in the TLS handshake, or says nothing."""


class Handshake:
    """The state of the handshake with the broker at `peer` (`host:port`). See the module."""

    __slots__ = ("_candidate", "_has_pipelined_probe", "_memory", "_peer", "_probe_answered", "versions")

    def __init__(self, peer: str, memory: ReleaseMemory = RELEASE_MEMORY) -> None:
        self._peer = peer
        self._memory = memory
        self._candidate: int | None = None
        """Index of the release that the current connection probes for."""
        self._probe_answered = self._has_pipelined_probe = False
        known = memory.recall(peer)
        self.versions: BrokerVersions | None = None if known is None else known.versions(peer)
        """The API versions of the broker; known from the start if its release is remembered."""

    def first_requests(self) -> tuple[HandshakeRequest, ...]:
        """Return the requests to send on a new connection; none if the versions are known."""
        if self.versions is not None:
            return ()
        if self._candidate is None:
            return (_API_VERSIONS_V3,)
        probe = _probe(RELEASES[self._candidate])
        return (probe, _API_VERSIONS_V0)

    def on_response(self, request: HandshakeRequest, frame: Bytes) -> HandshakeRequest | None:
        """Handle the response to `request`. Return a further request to send on the same connection, or None.

        Raises BrokerError if the broker refuses the handshake, TransportError if a retry may succeed, and DecodeError
        for an invalid response.
        """
        if request.api is not ApiVersionsRequest:
            self._decoded(request, frame)
            self._probe_answered = True
            return None
        code = int.from_bytes(frame[4:6], "big", signed=True)  # the first field of every version
        if code == ErrorCode.UNSUPPORTED_VERSION and request.version > 0:
            return _API_VERSIONS_V0
        if code and may_succeed_later(code):
            raise TransportError(f"ApiVersions handshake with broker {self._peer} failed: {error_of(code).name}")
        if code:
            raise BrokerError(code, f"ApiVersions handshake with broker {self._peer} failed")
        self.versions = BrokerVersions.of(self._decoded(request, frame), self._peer)
        return None

    def on_hang_up(self) -> bool:
        """Handle the end of a connection before `versions` is known. Return whether to connect again."""
        answered, self._probe_answered, self._has_pipelined_probe = self._probe_answered, False, False
        if self._candidate is None:
            self._candidate = 0
        elif answered:
            self._recognize(RELEASES[self._candidate])
        else:
            self._candidate += 1
        return self._candidate < len(RELEASES)

    def pipelined_probe(self) -> HandshakeRequest | None:
        """Return the probe to pipeline after an unanswered ApiVersions, once per connection."""
        if self._has_pipelined_probe:
            return None
        self._has_pipelined_probe = True
        return _probe(RELEASES[self._candidate or 0])

    def on_probe_answered_first(self) -> None:
        """Handle a response to the pipelined probe without one to ApiVersions: the broker has skipped ApiVersions."""
        self._recognize(RELEASES[self._candidate or 0])

    def _recognize(self, release: BrokerRelease) -> None:
        self._memory.remember(self._peer, release)
        self.versions = release.versions(self._peer)

    def forget_release(self) -> None:
        """Forget the remembered release after a failed connection: the broker may have been upgraded."""
        if self.versions is not None and self.versions.release:
            self._memory.forget(self._peer)

    def _decoded(self, request: HandshakeRequest, frame: Bytes) -> Any:
        try:
            return decode_response(request.api, request.version, frame)[1]
        except DecodeError as error:
            raise type(error)(
                f"invalid response to {request} from {self._peer}: {error}. {NOT_A_BROKER_HINT}"
            ) from error


def _probe(release: BrokerRelease) -> HandshakeRequest:
    return HandshakeRequest(release.probe, 0, release.probe_body)


ALL_HANDSHAKE_REQUESTS = ", ".join(map(str, (_API_VERSIONS_V3, *map(_probe, RELEASES))))
"""All requests of the handshake, for the error of a broker that closes the connection on each."""
