"""What the driver's threads talk to, in memory: a poller that a test scripts, one with a whole coordinator behind it,
and a cluster that is a few numbers. Every wait has a deadline.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from streamgroup.cluster.requests import ListedOffset
from streamgroup.errors import TransportError
from streamgroup.model import (
    EARLIEST,
    LATEST,
    Broker,
    ClusterSnapshot,
    Dialect,
    OffsetSpec,
    PartitionInfo,
    TopicInfo,
    TopicPartition,
)
from streamgroup.net.poller import Broken, Connected, Event, Handle, Received
from streamgroup.options.types import (
    ClientOptions,
    FetchOptions,
    GroupOptions,
    Isolation,
    LimitOptions,
    SourceOptions,
    SplitOptions,
    Subscription,
)
from streamgroup.wire.messages.cluster import MetadataRequest
from streamgroup.wire.messages.coordinator import FindCoordinatorRequest
from streamgroup.wire.messages.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from streamgroup.wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from streamgroup.wire.versions import BrokerVersions
from tests.fakes.coordinator import ScriptedCoordinator, through_bytes
from tests.waiting import wait_until

SOON = 5.0
"""Seconds that nothing here may take."""

_APIS = (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    MetadataRequest,
    SyncGroupRequest,
)
_OFFSET_APIS = (OffsetCommitRequest, OffsetFetchRequest)
VERSIONS = BrokerVersions(
    "fake", {a.API_KEY: a.VERSIONS for a in _APIS} | {a.API_KEY: (a.VERSIONS[0], 9) for a in _OFFSET_APIS}
)
"""Offsets by name: the coordinator in memory knows no topic ids."""

NODES = {0: Broker(0, "b0", 9092), 1: Broker(1, "b1", 9092)}


def client(*servers: tuple[str, int], **others: Any) -> ClientOptions:
    shorter = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 10, "default_api_timeout_ms": 3_000}
    return ClientOptions(bootstrap_servers=servers or (("127.0.0.1", 9092),), **{**shorter, **others})


def source(
    starting: int = EARLIEST, *, group: GroupOptions | None = None, topics: tuple[str, ...] = ("t",), **others: Any
) -> SourceOptions:
    given = {
        "client": client(),
        "subscription": Subscription(topics=topics),
        "starting": OffsetSpec(starting),
        "ending": None,
        "fetch": FetchOptions(),
        "limits": LimitOptions(),
        "split": SplitOptions(),
        "group": group or GroupOptions("g"),
        "fetch_offset_retry_interval_ms": 5,
    }
    return SourceOptions(**{**given, **others})


def until(condition: Callable[[], bool], what: str = "") -> None:
    """`wait_until` with the patience of a unit test, which looks often."""
    wait_until(condition, what, SOON, every=0.002)


@contextmanager
def running(target: Callable[[], Any]) -> Iterator[threading.Thread]:
    """A thread that has ended when the block has."""
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    yield thread
    thread.join(SOON)
    assert not thread.is_alive(), f"{target} has not ended"


@dataclass(frozen=True)
class Sent:
    handle: Handle
    correlation_id: int
    request: Any
    version: int


class ScriptedPoller:
    """As `Poller`: what happens on its connections is said by `deliver`, one list of events for one `wait`."""

    def __init__(self, _options: ClientOptions | None = None) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.handles: list[Handle] = []
        self.sent: list[Sent] = []
        self.dropped: list[tuple[Handle, bool]] = []
        self.closed = False
        self._live: dict[Handle, BrokerVersions | None] = {}
        self._pending: list[Event] = []
        self._woken = False

    def connect(self, host: str, port: int, tag: str = "") -> Handle:
        with self.changed:
            handle = Handle(len(self.handles), host, port, tag)
            self.handles.append(handle)
            self._live[handle] = None
            self.changed.notify_all()
            return handle

    def send(self, handle: Handle, request: Any, version: int | None = None, _ceiling: int | None = None) -> int:
        with self.changed:
            assert self._live[handle] is not None, "sent before it was connected"
            assert version is not None
            self.sent.append(Sent(handle, len(self.sent), request, version))
            self.changed.notify_all()
            return self.sent[-1].correlation_id

    def versions(self, handle: Handle) -> BrokerVersions | None:
        return self._live[handle]

    def drop(self, handle: Handle, *, reset: bool) -> None:
        with self.changed:
            if self._live.pop(handle, None) is not None or handle not in {h for h, _ in self.dropped}:
                self.dropped.append((handle, reset))
            self._pending = [event for event in self._pending if event.handle != handle]
            self.changed.notify_all()

    def wake(self) -> None:
        with self.changed:
            self._woken = True
            self.changed.notify_all()

    def wait(self, timeout: float | None) -> list[Event]:
        with self.changed:
            self.changed.wait_for(lambda: bool(self._pending) or self._woken, timeout)
            self._woken = False
            events, self._pending = self._pending, []
            for event in events:  # as in the real one: when the list is returned all of it has happened
                if isinstance(event, Connected) and event.handle in self._live:
                    self._live[event.handle] = event.versions
                elif isinstance(event, Broken):
                    self._live.pop(event.handle, None)
            return events

    def close(self, *, reset: bool = False) -> None:
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    # -- the test's side ----------------------------------------------------------------------------------------------

    def deliver(self, *events: Event) -> None:
        with self.changed:
            self._pending += events
            self.changed.notify_all()

    def handle(self, tag: str, number: int = 0) -> Handle:
        """The connection number `number` of that lane, as soon as it is there."""
        self._until(lambda: len(self._tagged(tag)) > number, f"connection {number} of {tag}")
        return self._tagged(tag)[number]

    def request(self, number: int) -> Sent:
        self._until(lambda: len(self.sent) > number, f"request {number}")
        return self.sent[number]

    def _tagged(self, tag: str) -> list[Handle]:
        return [handle for handle in self.handles if handle.tag == tag]

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, SOON), f"it never came to {what}: {self.handles}, {self.sent}"


class GroupPoller(ScriptedPoller):
    """Connects at once, and a coordinator in memory answers. `held` are APIs whose requests wait for `release`."""

    def __init__(self, coordinator: ScriptedCoordinator, held: set[type[Any]]) -> None:
        super().__init__()
        self.coordinator = coordinator
        self.held = held
        self.waiting: list[Sent] = []

    def connect(self, host: str, port: int, tag: str = "") -> Handle:
        handle = super().connect(host, port, tag)
        self.deliver(Connected(handle, VERSIONS))
        return handle

    def send(self, handle: Handle, request: Any, version: int | None = None, _ceiling: int | None = None) -> int:
        with self.changed:
            correlation_id = super().send(handle, request, version)
            if type(request) in self.held:
                self.waiting.append(self.sent[-1])
            else:
                self._handle(self.sent[-1])
            return correlation_id

    def release(self) -> None:
        """What was held back is answered now, and nothing is held back any more."""
        with self.changed:
            self.held.clear()
            waiting, self.waiting = self.waiting, []
            for sent in waiting:
                self._handle(sent)

    def asked(self, api: type[Any]) -> int:
        with self.changed:
            return sum(isinstance(sent.request, api) for sent in self.sent)

    def _handle(self, sent: Sent) -> None:
        answered = lambda response: self.deliver(Received(sent.handle, sent.correlation_id, response))  # noqa: E731
        through_bytes(self.coordinator, sent.request, sent.version, answered)


@dataclass
class Logs:
    """Topics and what their logs hold. `failures` are raised by the next calls; `hook` runs in each listing."""

    starts: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    stable: dict[TopicPartition, int] = field(default_factory=dict)
    """Last stable offsets, where they differ from the ends."""
    leaderless: set[TopicPartition] = field(default_factory=set)
    slow: set[TopicPartition] = field(default_factory=set)
    """Partitions whose leaders do not answer in time."""
    topic_ids: dict[str, str] = field(default_factory=dict)
    epochs: dict[TopicPartition, int] = field(default_factory=dict)
    """Leader epochs in the metadata; 1 of partitions that are not here."""
    epochs_listed: dict[TopicPartition, int] = field(default_factory=dict)
    """Leader epochs that come with the ends of logs; unknown of partitions that are not here."""
    segments: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    """What comes with the earliest offset, in Kafka 0.7."""
    unregistered: set[int] = field(default_factory=set)
    """Brokers that are away, in Kafka 0.7; their partitions are not in `ends`."""
    empty: tuple[str, ...] = ()
    """Topics without partitions: in Kafka 0.7, where none of their brokers is registered."""
    dialect: Dialect = Dialect.KAFKA
    failures: list[Exception] = field(default_factory=list)
    hook: Callable[[], None] | None = None
    snapshots: int = 0
    listings: list[tuple[int, tuple[TopicPartition, ...]]] = field(default_factory=list)
    closed: int = 0
    distrusted: int = 0
    """How often another broker was to be asked for the metadata."""

    def of(self, options: ClientOptions, on_change: object = None) -> FakeCluster:
        return FakeCluster(self)

    def topics(self, wanted: Collection[str] | None) -> dict[str, TopicInfo]:
        names = sorted({tp.topic for tp in self.ends} | set(self.empty))
        return {name: self._topic(name) for name in names if wanted is None or name in wanted}

    def _topic(self, name: str) -> TopicInfo:
        partitions = sorted(tp for tp in self.ends if tp.topic == name)
        infos = tuple(
            PartitionInfo(tp.partition, -1 if tp in self.leaderless else tp.partition % 2, self.epochs.get(tp, 1))
            for tp in partitions
        )
        return TopicInfo(name, infos, self.topic_ids.get(name, ""))


class FakeCluster:
    """As `Cluster`, of `Logs`."""

    def __init__(self, logs: Logs) -> None:
        self.logs = logs

    def deadline(self, timeout_ms: int) -> float:
        return time.monotonic() + timeout_ms / 1000

    def snapshot(self, topics: Collection[str] | None, deadline: float, refresh: bool = False) -> ClusterSnapshot:
        self.logs.snapshots += 1
        self._fail()
        nodes = {node: broker for node, broker in NODES.items() if node not in self.logs.unregistered}
        return ClusterSnapshot(nodes, self.logs.topics(topics), dialect=self.logs.dialect)

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: Isolation, deadline: float
    ) -> dict[TopicPartition, ListedOffset]:
        logs = self.logs
        logs.listings += [
            (at, tuple(sorted(tp for tp in wanted if wanted[tp] == at))) for at in sorted(set(wanted.values()))
        ]
        if logs.hook is not None:
            logs.hook()
        self._fail()
        if stuck := logs.leaderless & set(wanted):  # as the real one, which tries until the deadline
            time.sleep(max(0.0, min(deadline - time.monotonic(), SOON)))
            raise TransportError(f"offsets: {sorted(stuck)} have no leader")
        epochs = logs.epochs_listed
        return {
            tp: ListedOffset(
                self._offset(tp, at, isolation),
                -1,
                epochs.get(tp, -1),
                logs.segments.get(tp, ()) if at == EARLIEST else (),
            )
            for tp, at in wanted.items()
        }

    def list_offsets_once(
        self,
        wanted: Mapping[TopicPartition, int],
        isolation: Isolation,
        deadline: float,
        *,
        timeout: float,
        epoch: int,
    ) -> tuple[dict[TopicPartition, ListedOffset], list[str]]:
        """Leaders in `slow` do not answer within the timeout."""
        listed = self.list_offsets(
            {tp: at for tp, at in wanted.items() if tp not in self.logs.slow}, isolation, deadline
        )
        return listed, [f"{tp}: its leader is late" for tp in sorted(wanted.keys() & self.logs.slow)]

    def distrust_metadata(self) -> None:
        self.logs.distrusted += 1

    def close(self) -> None:
        self.logs.closed += 1

    def _offset(self, tp: TopicPartition, at: int, isolation: Isolation) -> int:
        if at == LATEST:
            end = self.logs.ends[tp]
            return self.logs.stable.get(tp, end) if isolation is Isolation.READ_COMMITTED else end
        return self.logs.starts.get(tp, 0) if at == EARLIEST else at

    def _fail(self) -> None:
        if self.logs.failures:
            raise self.logs.failures.pop(0)


def logs_of(ends: Iterable[int], topic: str = "t") -> Logs:
    return Logs(ends={TopicPartition(topic, n): end for n, end in enumerate(ends)}, topic_ids={topic: "id"})
