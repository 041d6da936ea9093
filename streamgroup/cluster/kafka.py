"""A cluster behind its bootstrap servers: connections to brokers, cached metadata, retries until a deadline.

Every method takes a deadline, in seconds on the clock given (`time.monotonic` by default), and retries what may be
retried with backoff and jitter until then; what it raises names the last cause. Used by one thread.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final, Literal, TypeVar

from streamgroup.cluster.fanout import Address, BrokerFanout, Pending
from streamgroup.cluster.metadata import MetadataCache, metadata_request, snapshot_of, wants_rebootstrap
from streamgroup.cluster.requests import (
    NO_OFFSET,
    EpochCheck,
    EpochEnd,
    ListedOffset,
    coordinator_request,
    epoch_requests,
    offset_requests,
    read_coordinator,
    read_epoch_ends,
    read_offsets,
)
from streamgroup.errors import BrokerError, ConfigError, TransportError, may_succeed_later
from streamgroup.model import EARLIEST, Broker, ClusterSnapshot, TopicPartition
from streamgroup.net.backoff import Backoff
from streamgroup.net.connection import Connection
from streamgroup.options.types import ClientOptions, Isolation
from streamgroup.wire.messages.cluster import MetadataRequest
from streamgroup.wire.messages.coordinator import FindCoordinatorRequest
from streamgroup.wire.messages.log import ListOffsetsRequest
from streamgroup.wire.schema import Message, Request

R = TypeVar("R", bound=Message)

_SMALLEST_SHARE_S = 1.0

ANY: Final = "any"
"""Any broker that answers."""
Node = int | Broker | Literal["any"]


class KafkaCluster:
    """A Kafka cluster as one thread uses it. Bootstrap servers are tried in the order of their list."""

    def __init__(
        self,
        options: ClientOptions,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if options.security_protocol != "PLAINTEXT":
            raise ConfigError(
                f"kafka.security.protocol={options.security_protocol} is not supported yet: only PLAINTEXT is"
            )
        if not options.bootstrap_servers:
            raise ConfigError("kafka.bootstrap.servers is empty: name at least one host:port")
        self.options = options
        self.clock = clock
        self._sleep = sleep
        self._rng = random.Random()
        # Both bounded by the brokers that there are: see `_forget_brokers`.
        self._connections: dict[Address, Connection] = {}
        self._failed_at: dict[Address, float] = {}
        self._distrusted_at: dict[Address, float] = {}
        """When the metadata of each broker was found doubtful: others, unless they fail, are asked before it."""
        self._told_by: Address | None = None
        """The broker that answered with the newest metadata."""
        self._fanout: BrokerFanout | None = None
        self._cache = MetadataCache(options.metadata_max_age_ms)

    def __str__(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.options.bootstrap_servers)

    def deadline(self, timeout_ms: int | None = None) -> float:
        """The moment `timeout_ms` from now; `default_api_timeout_ms` unless given."""
        return self.clock() + (self.options.default_api_timeout_ms if timeout_ms is None else timeout_ms) / 1000

    def retry(self, what: str, deadline: float) -> Retry:
        """The attempts at one operation; `what` is for its error message."""
        return Retry(self, what, deadline, Backoff(self.options, self._rng), self._sleep)

    def snapshot(self, topics: Collection[str] | None, deadline: float, refresh: bool = False) -> ClusterSnapshot:
        """The cluster and `topics` (None: all), from the cache unless that is too old or `refresh` is asked for.

        Topics that do not exist are absent, and are not created; partitions without a leader have NO_LEADER. A topic
        that is only just coming up is asked for again. Raises BrokerError for a topic that may not be described,
        TransportError where nothing certain is known by the deadline.
        """
        wanted = None if topics is None else frozenset(topics)
        cached = None if refresh else self._cache.get(wanted, self.clock())
        if cached is not None:
            return cached
        retry = self.retry("its metadata", deadline)
        while True:
            _, response = self.call_versioned(
                MetadataRequest, lambda version: metadata_request(wanted, version), ANY, deadline
            )
            if wants_rebootstrap(response):
                self._rebootstrap()
            snapshot, unsettled = snapshot_of(response, wanted)
            if not unsettled:
                self._cache.put(snapshot, wanted, self.clock())
                self._forget_brokers(snapshot)
                return snapshot
            retry.again("; ".join(unsettled))

    def distrust_metadata(self) -> None:
        """Ask another broker for the metadata next time: the one that answered last may lag behind the controller."""
        if self._told_by is not None:
            self._distrusted_at[self._told_by] = self.clock()
        self.expire_metadata()

    def _forget_brokers(self, snapshot: ClusterSnapshot) -> None:
        """Close connections to addresses that are no broker's any more: brokers may come back under new ones for ever,
        as they do where each start of one gives it another address."""
        known = {(broker.host, broker.port) for broker in snapshot.brokers.values()}
        known.update(self.options.bootstrap_servers)
        for address in self._connections.keys() - known:
            self._connections.pop(address).close()
        if self._fanout is not None:
            self._fanout.keep(known)
        self._failed_at = {address: at for address, at in self._failed_at.items() if address in known}
        self._distrusted_at = {address: at for address, at in self._distrusted_at.items() if address in known}

    def expire_metadata(self) -> None:
        """A broker's answer contradicts the metadata: ask anew when it is wanted next."""
        self._cache.expire()

    def call(
        self, request: Request[R], node: Node, deadline: float, version: int | None = None, ceiling: int | None = None
    ) -> R:
        """Ask `node` (an id, a Broker, or ANY) and wait; connections that fail are made again until the deadline.

        The request may reach the broker more than once. Error codes within the response are the caller's to read.
        One attempt takes `request_timeout_ms` at most. Raises TransportError, UnsupportedVersionError, DecodeError.
        """
        return self.call_versioned(type(request), lambda _: request, node, deadline, version=version, ceiling=ceiling)[
            1
        ]

    def call_versioned(
        self,
        kind: type[Request[R]],
        make: Callable[[int], Request[R]],
        node: Node,
        deadline: float,
        *,
        version: int | None = None,
        ceiling: int | None = None,
        keep_trying: bool = True,
    ) -> tuple[int, R]:
        """`call` for requests whose shape depends on the version: `make` is told it. The version and the response.

        Without `keep_trying` a connection that fails is a TransportError at once: the caller may know another node.
        """
        retry = self.retry(f"{kind.NAME} of {'any broker' if node == ANY else f'broker {node}'}", deadline)
        while True:
            causes: list[str] = []
            addresses = self._addresses(node, deadline, causes)
            for tried, address in enumerate(addresses):
                until = self._share(deadline, len(addresses) - tried)
                try:
                    connection = self._connected(address, until)
                    chosen = connection.versions.highest(kind, ceiling) if version is None else version
                    response = connection.call(make(chosen), self._attempt_until(until), chosen)
                except TransportError as error:
                    self._failed_at[address] = self.clock()
                    causes.append(str(error))
                    if not keep_trying or self.clock() >= deadline:
                        break
                else:
                    if kind is MetadataRequest:
                        self._told_by = address
                    return chosen, response
            self.expire_metadata()
            if not keep_trying:
                raise TransportError("; ".join(causes))
            retry.again("; ".join(causes))

    def call_each(
        self,
        requests: Mapping[int, Request[R]],
        deadline: float,
        ceiling: int | None = None,
        timeout: float | None = None,
        epoch: int = 0,
    ) -> dict[int, R | TransportError]:
        """Ask several nodes at once, one attempt each: what each answered, or why it did not.

        After `timeout` seconds those that have not answered are `Pending`. Their answers are taken by the next call
        that asks them the same in the same `epoch`; without it each attempt takes `request_timeout_ms` at most.
        """
        answers: dict[int, R | TransportError] = {}
        nodes: dict[Address, int] = {}
        for node in requests:
            try:
                nodes[self._address(node, deadline)] = node
            except TransportError as error:
                answers[node] = error
        if self._fanout is None:
            self._fanout = BrokerFanout(self.options, self.clock)
        wanted = {address: requests[node] for address, node in nodes.items()}
        found = self._fanout.call_each(wanted, deadline, timeout=timeout, ceiling=ceiling, epoch=epoch)
        answers |= {nodes[address]: answer for address, answer in found.items()}
        if any(isinstance(answer, TransportError) and not isinstance(answer, Pending) for answer in answers.values()):
            self.expire_metadata()
        return answers

    def coordinator(self, group: str, deadline: float) -> Broker:
        """The broker that coordinates `group`. Raises BrokerError where the group may not be used."""
        retry = self.retry(f"coordinator of group {group!r}", deadline)
        while True:
            version, response = self.call_versioned(
                FindCoordinatorRequest, lambda v: coordinator_request(v, group), ANY, deadline
            )
            answer = read_coordinator(response, version, group)
            if isinstance(answer, Broker):
                return answer
            if not may_succeed_later(answer.code):
                raise BrokerError(answer, f"group {group!r}: its coordinator")
            retry.again(answer.name)

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: Isolation, deadline: float
    ) -> dict[TopicPartition, ListedOffset]:
        """The offset of each partition at EARLIEST, LATEST or a timestamp (ms): all leaders are asked at once.

        LATEST is the last stable offset under READ_COMMITTED, else the high watermark. A timestamp beyond the last
        record has the offset NO_OFFSET. Brokers before 0.10.1 know the times of segments only: there a timestamp means
        the start of the newest segment whose file is not newer, and the earliest offset where none is as old, so that
        no later record is missed. Partitions whose leader moves or is not known are asked for again. Raises
        TransportError where one has no answer by the deadline, BrokerError where one may not be read.
        """
        listed: dict[TopicPartition, ListedOffset] = {}
        pending = dict(wanted)
        retry = self.retry("offsets", deadline)
        while True:
            try:
                snapshot = self.snapshot({tp.topic for tp in pending}, deadline)
            except TransportError as error:
                raise retry.cut_short(error) from error
            requests, causes = offset_requests(pending, snapshot, isolation)
            for answer in self.call_each(requests, deadline).values():
                if isinstance(answer, TransportError):
                    causes.append(str(answer))
                else:
                    read_offsets(answer, listed, causes)
            self._look_twice(pending, snapshot, isolation, deadline, listed=listed, causes=causes)
            pending = {tp: at for tp, at in pending.items() if tp not in listed}
            if not pending:
                return listed
            self.expire_metadata()
            retry.again("; ".join(causes))

    def _look_twice(
        self,
        asked: Mapping[TopicPartition, int],
        snapshot: ClusterSnapshot,
        isolation: Isolation,
        deadline: float,
        *,
        listed: dict[TopicPartition, ListedOffset],
        causes: list[str],
    ) -> None:
        """Nothing was found for a timestamp: in v0 no segment is as old, later no record is as late."""
        unmatched = [tp for tp, at in asked.items() if at >= 0 and tp in listed and listed[tp].offset == NO_OFFSET]
        by_node: dict[int, dict[TopicPartition, int]] = {}
        for tp in unmatched:
            leader = snapshot.leader(tp)
            if leader is not None:
                by_node.setdefault(leader.node_id, {})[tp] = asked[tp]
        for node, mine in sorted(by_node.items()):

            def make(version: int, node: int = node, mine: Mapping[TopicPartition, int] = mine) -> ListOffsetsRequest:
                again = mine if version else dict.fromkeys(mine, EARLIEST)
                return offset_requests(again, snapshot, isolation)[0][node]

            for tp in mine:
                del listed[tp]
            try:
                _, response = self.call_versioned(ListOffsetsRequest, make, node, deadline, keep_trying=False)
            except TransportError as error:
                causes.append(str(error))
            else:
                read_offsets(response, listed, causes)

    def list_offsets_once(
        self,
        wanted: Mapping[TopicPartition, int],
        isolation: Isolation,
        deadline: float,
        *,
        timeout: float,
        epoch: int,
    ) -> tuple[dict[TopicPartition, ListedOffset], list[str]]:
        """`list_offsets` in one attempt of `timeout` seconds, in which no leader holds up another; and what is amiss.

        What has no answer yet is absent; a later call for the same partitions takes an answer that came meanwhile, if
        it is of the same `epoch`: a new one begins where what is asked about may have changed.
        Raises BrokerError where a partition may not be read, TransportError where there is no metadata by `deadline`.
        """
        listed: dict[TopicPartition, ListedOffset] = {}
        snapshot = self.snapshot({tp.topic for tp in wanted}, deadline)
        requests, causes = offset_requests(wanted, snapshot, isolation)
        for answer in self.call_each(requests, deadline, timeout=timeout, epoch=epoch).values():
            if isinstance(answer, TransportError):
                causes.append(str(answer))
            else:
                read_offsets(answer, listed, causes)
        return listed, causes

    def epoch_ends(
        self, wanted: Mapping[TopicPartition, EpochCheck], deadline: float
    ) -> dict[TopicPartition, EpochEnd]:
        """Where the epochs of positions end in the logs of the leaders now: all leaders are asked at once.

        What has no answer by the deadline (its leader moves, or is gone) is absent, and holds up no other. A leader
        that cannot tell gives an EpochEnd that is not `known`. Raises BrokerError where a log may not be asked about.
        """
        ends: dict[TopicPartition, EpochEnd] = {}
        pending = dict(wanted)
        retry = self.retry("ends of leader epochs", deadline)
        while True:
            try:
                snapshot = self.snapshot({tp.topic for tp in pending}, deadline)
                requests, causes = epoch_requests(pending, snapshot)
                for answer in self.call_each(requests, deadline).values():
                    if isinstance(answer, TransportError):
                        causes.append(str(answer))
                    else:
                        read_epoch_ends(answer, ends, causes)
                pending = {tp: check for tp, check in pending.items() if tp not in ends}
                if not pending:
                    return ends
                self.expire_metadata()
                retry.again("; ".join(causes))
            except TransportError:
                return ends

    def close(self) -> None:
        """Close all connections. The cluster can be used again: it connects anew."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        if self._fanout is not None:
            self._fanout.close()
            self._fanout = None

    def _rebootstrap(self) -> None:
        """Begin again at the bootstrap servers: those known and connected to belong to another cluster by now."""
        self.close()
        self._cache.forget()
        self._failed_at.clear()
        self._distrusted_at.clear()

    def _addresses(self, node: Node, deadline: float, causes: list[str]) -> list[Address]:
        """Where to try: for ANY all that is known, for a node its one address; why there is none goes to `causes`."""
        if node == ANY:
            return self._candidates()
        try:
            return [self._address(node, deadline)]
        except TransportError as error:
            causes.append(str(error))
            return []

    def _candidates(self) -> list[Address]:
        """Open connections first, then brokers that were known, then the bootstrap servers; what failed latest last."""
        known = self._cache.last
        addresses = [address for address, connection in self._connections.items() if connection.open]
        addresses += [] if known is None else [(broker.host, broker.port) for broker in known.brokers.values()]
        addresses += self.options.bootstrap_servers
        failed_at, distrusted_at = self._failed_at, self._distrusted_at
        return sorted(dict.fromkeys(addresses), key=lambda a: (failed_at.get(a, 0.0), distrusted_at.get(a, 0.0)))

    def _address(self, node: int | Broker | str, deadline: float) -> Address:
        if isinstance(node, Broker):
            return node.host, node.port
        assert isinstance(node, int)
        broker = None if self._cache.last is None else self._cache.last.brokers.get(node)
        if broker is None or self._cache.expired:
            broker = self.snapshot((), deadline, refresh=True).brokers.get(node)
        if broker is None:
            raise TransportError(f"broker {node} is not among the brokers that the cluster {self} knows of")
        return broker.host, broker.port

    def _connected(self, address: Address, deadline: float) -> Connection:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = Connection(*address, self.options, self.clock)
        if not connection.open:
            connection.connect(deadline)
        return connection

    def _share(self, deadline: float, addresses: int) -> float:
        """Until when one of so many addresses is tried: one that is silent must leave time for the others."""
        now = self.clock()
        return min(deadline, now + max(_SMALLEST_SHARE_S, (deadline - now) / addresses))

    def _attempt_until(self, deadline: float) -> float:
        return min(deadline, self.clock() + self.options.request_timeout_ms / 1000)


class Retry:
    """The attempts at one operation: waits between them, and says so when there is no time left."""

    def __init__(
        self, cluster: KafkaCluster, what: str, deadline: float, backoff: Backoff, sleep: Callable[[float], None]
    ) -> None:
        self._cluster, self._what, self._deadline = cluster, what, deadline
        self._backoff, self._sleep = backoff, sleep
        self._began = cluster.clock()
        self._attempts = 0
        self._before = ""

    def cut_short(self, error: TransportError) -> TransportError:
        """`error`, of an attempt that the deadline may have cut short, with the cause of the one before it."""
        return TransportError(f"{error}{self._before}")

    def again(self, cause: str | Exception) -> None:
        """Wait before the next attempt. Raises TransportError, naming `cause`, where the deadline comes first."""
        self._attempts += 1
        wait = self._backoff.next()
        now = self._cluster.clock()
        if now + wait >= self._deadline:
            before = self._before if now >= self._deadline else ""  # the deadline may have cut this one short
            raise TransportError(
                f"cluster {self._cluster}: no {self._what} after {self._attempts} attempts "
                f"in {now - self._began:.1f} s; last: {cause}{before}"
            ) from (cause if isinstance(cause, Exception) else None)
        self._before = f"; before: {cause}"
        self._sleep(wait)
