"""The releases of Kafka without ApiVersions (before 0.10): the API versions of each, and the probe that identifies it.

Each release has one API that the releases before it lack, and an old broker closes the connection on an unknown API.
The newest of these APIs that a broker answers therefore identifies its release. The probes change nothing on any
broker:

- FindCoordinator would create the offsets topic of an 0.8.2 cluster that has none. Without a group name the broker
  answers an error before it does that (its log shows a NullPointerException).
- OffsetFetch asks for no partition. Metadata v0 cannot ask for no topic: it asks for all, which creates none.
- A Kafka 0.7 closes the connection on the numbers of all these APIs except 3, which is Metadata and in 0.7
  MULTIPRODUCE. It reads the version, 0, as the number of produce requests: it writes nothing and answers nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from streamgroup.wire.messages.admin import DescribeGroupsRequest, ListGroupsRequest
from streamgroup.wire.messages.cluster import MetadataRequest
from streamgroup.wire.messages.coordinator import FindCoordinatorRequest
from streamgroup.wire.messages.group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from streamgroup.wire.messages.log import FetchRequest, ListOffsetsRequest
from streamgroup.wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from streamgroup.wire.messages.produce import ProduceRequest
from streamgroup.wire.primitives import Bytes
from streamgroup.wire.schema import Request, encode
from streamgroup.wire.versions import BrokerVersions

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


@dataclass(frozen=True, slots=True)
class BrokerRelease:
    """One release. `probe` is an API that earlier releases lack; the probe is its v0 with `probe_body`."""

    name: str
    newest: _Newest
    probe: type[Request[Any]]
    probe_body: Bytes

    def versions(self, broker: str) -> BrokerVersions:
        """Return the API versions of a broker of this release."""
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
"""Seconds after which the client asks a broker for ApiVersions again: brokers get upgraded."""


class ReleaseMemory:
    """The releases of brokers without ApiVersions, by `host:port`, so that each is probed once. Thread-safe.

    An entry expires after REMEMBERED_S, and is forgotten after the first failed connection to its broker.
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
        """Remember that the broker at `peer` answered the probe of `release`."""
        now = self._clock()
        with self._lock:
            # Nobody recalls brokers that are gone, so their entries are removed at this point.
            self._known = {known: row for known, row in self._known.items() if now < row[1]}
            self._known[peer] = release, now + REMEMBERED_S

    def known_releases(self, peers: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """Return address and release name of all known brokers among `peers`, to pass to another process."""
        known = ((peer, self.recall(peer)) for peer in sorted(set(peers)))
        return tuple((peer, release.name) for peer, release in known if release is not None)

    def learn(self, releases: Iterable[tuple[str, str]]) -> None:
        """Remember the result of another process's `known_releases`, unless this process knows the broker already."""
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
