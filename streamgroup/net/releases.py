"""The releases of Kafka that know no ApiVersions (before 0.10): what each speaks, and how it is told from the others.

Each release knows one API that those before it do not, and an old broker hangs up on what it does not know. So the
newest of these APIs that is answered names the release. The probes change nothing, on any broker:

- FindCoordinator would create the offsets topic of an 0.8.2 cluster that has none. Without a group's name it is
  answered by an error before that (the broker's log shows a NullPointerException).
- OffsetFetch asks for no partition, Metadata v0 cannot name none: it asks for all, and that creates no topic.
- A server of Kafka 0.7 closes the connection on the numbers of all these APIs but on Metadata's, 3, which is its
  MULTIPRODUCE. There the version, 0, stands where it has the number of produce requests: nothing is written, and
  nothing answered.
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
from streamgroup.wire.primitives import Bytes
from streamgroup.wire.schema import Request, encode
from streamgroup.wire.versions import BrokerVersions

_Newest = dict[type[Request[Any]], int]
"""The newest version of each API; the oldest is 0."""

_0_8_0: _Newest = {MetadataRequest: 0, FetchRequest: 0, ListOffsetsRequest: 0}
_0_8_1: _Newest = {**_0_8_0, OffsetCommitRequest: 0, OffsetFetchRequest: 0}
_0_8_2: _Newest = {**_0_8_1, OffsetCommitRequest: 1, OffsetFetchRequest: 1, FindCoordinatorRequest: 0}
_0_9: _Newest = {
    **_0_8_2,
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
class Release:
    """One release: `probe` is the API, asked in v0 with the body `question`, that those before it do not know."""

    name: str
    newest: _Newest
    probe: type[Request[Any]]
    question: Bytes

    def versions(self, broker: str) -> BrokerVersions:
        """What a broker of this release speaks."""
        ranges = {api.API_KEY: (0, newest) for api, newest in self.newest.items()}
        return BrokerVersions(broker, ranges, self.name)


RELEASES = (
    Release("0.9", _0_9, ListGroupsRequest, encode(ListGroupsRequest(), 0)),
    Release("0.8.2", _0_8_2, FindCoordinatorRequest, b"\xff\xff"),
    Release("0.8.1", _0_8_1, OffsetFetchRequest, encode(OffsetFetchRequest(group_id="streamgroup"), 0)),
    Release("0.8.0", _0_8_0, MetadataRequest, encode(MetadataRequest(topics=()), 0)),
)
"""The newest first."""

REMEMBERED_S = 600.0
"""Brokers get upgraded: after so long one is asked for its ApiVersions again."""


class ReleaseMemory:
    """Which brokers know no ApiVersions, by their address as `host:port`: they are not asked again and again.

    Safe to use from several threads. What is remembered ends with time, and with the first connection on which it
    turns out to be wrong.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, tuple[Release, float]] = {}

    def recall(self, peer: str) -> Release | None:
        """The release of the broker at `peer`, where it is known."""
        with self._lock:
            release, until = self._known.get(peer, (None, 0.0))
            if release is not None and self._clock() >= until:
                del self._known[peer]
                return None
            return release

    def remember(self, peer: str, release: Release) -> None:
        """The broker at `peer` has hung up on ApiVersions and answered the probe of `release`."""
        now = self._clock()
        with self._lock:
            # Brokers that are gone are never recalled, so what is remembered of them ends here.
            self._known = {known: row for known, row in self._known.items() if now < row[1]}
            self._known[peer] = release, now + REMEMBERED_S

    def known_releases(self, peers: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """What is known of `peers`, for another process: address and name of the release."""
        known = ((peer, self.recall(peer)) for peer in sorted(set(peers)))
        return tuple((peer, release.name) for peer, release in known if release is not None)

    def learn(self, told: Iterable[tuple[str, str]]) -> None:
        """Take over what another process has told, where nothing is known yet."""
        by_name = {release.name: release for release in RELEASES}
        for peer, name in told:
            if self.recall(peer) is None and name in by_name:
                self.remember(peer, by_name[name])

    def forget(self, peer: str) -> None:
        """The broker at `peer` may be another by now."""
        with self._lock:
            self._known.pop(peer, None)

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._known.clear()


RELEASE_MEMORY = ReleaseMemory()
"""This process's."""
