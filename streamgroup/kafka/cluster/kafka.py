"""A Kafka cluster that is reached by bootstrap servers: connections, cached metadata, retries until a deadline.

Every method takes a deadline in seconds on the given clock (`time.monotonic` by default). Until then it retries
retriable errors with backoff and jitter; its TransportError contains the last cause. One thread uses a cluster.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar

from streamgroup.advice import RESOURCES, Operation, Requester, refusal, with_remedy
from streamgroup.backoff import Backoff
from streamgroup.errors import (
    BrokerError,
    ConfigError,
    DecodeError,
    NoBrokersYetError,
    TransportError,
    error_of,
    may_succeed_later,
)
from streamgroup.kafka.cluster.fanout import Address, BrokerFanout, Pending
from streamgroup.kafka.cluster.metadata import MetadataCache, metadata_request, snapshot_of, wants_rebootstrap
from streamgroup.kafka.cluster.requests import (
    NO_OFFSET,
    EpochCheck,
    EpochEnd,
    ListedOffset,
    epoch_requests,
    offset_requests,
    read_epoch_ends,
    read_offsets,
)
from streamgroup.kafka.cluster.samples import LAST_WITH_NAMES, ROUNDS, LogSample, read_samples, sample_requests, without
from streamgroup.kafka.net.connection import Connection
from streamgroup.kafka.net.requester import requester_of
from streamgroup.kafka.wire.messages.cluster import MetadataRequest
from streamgroup.kafka.wire.messages.group import (
    GROUP_KEY,
    FindCoordinatorRequest,
    coordinator_request,
    read_coordinator,
)
from streamgroup.kafka.wire.messages.log import ListOffsetsRequest
from streamgroup.kafka.wire.messages.produce import InitProducerIdRequest
from streamgroup.kafka.wire.schema import Message, Request
from streamgroup.kafka.wire.versions import BrokerVersions
from streamgroup.model import EARLIEST, Broker, ClusterSnapshot, TopicPartition
from streamgroup.options.types import ClientOptions, Isolation
from streamgroup.text import MOST_NAMED, counted, first_of, host_ports

log = logging.getLogger("streamgroup")

R = TypeVar("R", bound=Message)

_LEAST_SHARE_S = 1.0
"""Seconds that each of several addresses gets at least, even if the deadline leaves less for each."""

ANY: Final = "any"
"""Any broker: known ones are tried until one answers."""
Node = int | Broker | Literal["any"]


class KafkaCluster:
    """A client of a cluster of Kafka 0.8 or later. It tries bootstrap servers in the order of the option."""

    def __init__(
        self,
        options: ClientOptions,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not options.bootstrap_servers:
            raise ConfigError("invalid kafka.bootstrap.servers: it is empty. Set at least one host:port")
        self.options = options
        self.clock = clock
        self._sleep = sleep
        self._rng = random.Random()
        # `_forget_brokers` bounds all three by the brokers of the cluster.
        self._connections: dict[Address, Connection] = {}
        self._failed_at: dict[Address, float] = {}
        self._distrusted_at: dict[Address, float] = {}
        """When `distrust_metadata` was called for each broker: metadata requests try other brokers first."""
        self._metadata_source: Address | None = None
        """The broker that sent the newest metadata."""
        self._fanout: BrokerFanout | None = None
        self._cache = MetadataCache(options.metadata_max_age_ms)
        self._has_warned_of_refusal = False

    def __str__(self) -> str:
        return host_ports(self.options.bootstrap_servers)

    @property
    def requester(self) -> Requester:
        """The user of the options and the bootstrap servers, for authorization errors."""
        return requester_of(self.options)

    def deadline(self, timeout_ms: int | None = None) -> float:
        return self.clock() + (self.options.default_api_timeout_ms if timeout_ms is None else timeout_ms) / 1000

    def retry(self, what: str, deadline: float) -> Retry:
        """Return a `Retry` for one operation.

        `what` is the missing result in the error: "no <what> from cluster ...".
        """
        backoff = Backoff(self.options.retry_backoff_ms, self.options.retry_backoff_max_ms, self._rng)
        return Retry(self, what, deadline, backoff, self._sleep)

    def snapshot(self, topics: Collection[str] | None, deadline: float, refresh: bool = False) -> ClusterSnapshot:
        """Return the brokers and the metadata of `topics` (None: all topics).

        They are from the cache unless it has expired or `refresh` is set. Topics that do not exist are absent, and are
        not created. Partitions without a leader have NO_LEADER. Requests are retried while a topic is being created.
        Raises BrokerError for a topic that the user may not describe. Raises TransportError if no broker gives a
        definite response by the deadline: NoBrokersYetError if the last response contains no broker.
        """
        wanted = None if topics is None else frozenset(topics)
        cached = None if refresh else self._cache.get(wanted, self.clock())
        if cached is not None:
            return cached
        retry = self.retry("metadata", deadline)
        while True:
            _, response = self.call_versioned(
                MetadataRequest, lambda version: metadata_request(wanted, version), ANY, deadline
            )
            if wants_rebootstrap(response):
                self._rebootstrap()
            snapshot, unsettled = snapshot_of(response, wanted, self.requester)
            if not unsettled:
                self._cache.put(snapshot, wanted, self.clock())
                self._forget_brokers(snapshot)
                return snapshot
            retry.again(_some(unsettled), TransportError if snapshot.brokers else NoBrokersYetError)

    def distrust_metadata(self) -> None:
        """Send the next metadata request to another broker: the last one may have old metadata."""
        if self._metadata_source is not None:
            self._distrusted_at[self._metadata_source] = self.clock()
        self.expire_metadata()

    def _forget_brokers(self, snapshot: ClusterSnapshot) -> None:
        """Close connections to addresses that no longer belong to a broker.

        Brokers that get a new address at each start would otherwise leave connections behind without end.
        """
        known = {(broker.host, broker.port) for broker in snapshot.brokers.values()}
        known.update(self.options.bootstrap_servers)
        for address in self._connections.keys() - known:
            self._connections.pop(address).close()
        if self._fanout is not None:
            self._fanout.keep(known)
        self._failed_at = {address: at for address, at in self._failed_at.items() if address in known}
        self._distrusted_at = {address: at for address, at in self._distrusted_at.items() if address in known}

    def expire_metadata(self) -> None:
        """Expire the cached metadata, because a broker's response contradicts them."""
        self._cache.expire()

    def call(
        self, request: Request[R], node: Node, deadline: float, version: int | None = None, ceiling: int | None = None
    ) -> R:
        """Send `request` to `node` (an id, a Broker, or ANY) and return the response. Connects if necessary.

        The request may reach the broker more than once. The caller handles error codes in the response. An attempt
        takes at most `request_timeout_ms`. Raises TransportError, UnsupportedVersionError, DecodeError.
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
        """Do as `call`, with a request that `make` builds for the negotiated version. Return version and response.

        Without `keep_trying` a failed connection raises TransportError at once, so that the caller can try another
        node.
        """
        retry = self.retry(f"{kind.NAME} response of {'any broker' if node == ANY else f'broker {node}'}", deadline)
        while True:
            causes: list[str] = []
            addresses = self._addresses(node, deadline, causes)
            for tried, address in enumerate(addresses):
                until = self._share(deadline, len(addresses) - tried)
                try:
                    connection = self._connected(address, until)
                    chosen = connection.versions.highest(kind, ceiling) if version is None else version
                    attempt_until = min(until, self._attempt_until(until) + connection.throttled_s)
                    response = connection.call(make(chosen), attempt_until, chosen)
                except TransportError as error:
                    self._failed_at[address] = self.clock()
                    causes.append(str(error))
                    if not keep_trying or self.clock() >= deadline:
                        break
                else:
                    if kind is MetadataRequest:
                        self._metadata_source = address
                    return chosen, response
            self.expire_metadata()
            if not keep_trying:
                raise TransportError(_some(causes))
            retry.again(_some(causes))

    def call_each(
        self,
        requests: Mapping[int, Request[R]],
        deadline: float,
        ceiling: int | None = None,
        timeout: float | None = None,
        epoch: int = 0,
    ) -> dict[int, R | TransportError]:
        """Send one request to each of several nodes at once. Return the response or the error of each.

        A node without a response after `timeout` seconds gets the result `Pending`; the next call with the same request
        and `epoch` returns its response. Without `timeout` an attempt takes at most `request_timeout_ms`.
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

    def newest_version(self, kind: type[Request[Any]], deadline: float) -> int:
        """Return the newest version of an API that all brokers support.

        Raises TransportError if a broker is unreachable.
        """
        brokers = self.snapshot((), deadline).brokers.values()
        return min(self._versions_of(broker, deadline).highest(kind) for broker in brokers)

    def has_consumer_protocol(self, deadline: float) -> bool:
        """Return whether the cluster has the consumer protocol of groups switched on (KIP-848).

        Raises TransportError if no broker answers by the deadline.
        """
        return self._versions_of_any(deadline).has_consumer_protocol

    def has_transactions_v2(self, deadline: float) -> bool:
        """Return whether the cluster has transactions V2 switched on (KIP-890).

        Raises UnsupportedVersionError if it has no transactions, TransportError if no broker answers by the deadline.
        """
        versions = self._versions_of_any(deadline)
        versions.highest(InitProducerIdRequest)
        return versions.has_transactions_v2

    def _versions_of_any(self, deadline: float) -> BrokerVersions:
        return self._versions_of(next(iter(self.snapshot((), deadline).brokers.values())), deadline)

    def _versions_of(self, broker: Broker, deadline: float) -> BrokerVersions:
        retry = self.retry(f"API versions of broker {broker}", deadline)
        while True:
            try:
                connection = self._connected((broker.host, broker.port), self._attempt_until(deadline))
                return connection.versions
            except TransportError as error:
                retry.again(error)

    def coordinator(self, key: str, deadline: float, key_type: int = GROUP_KEY) -> Broker:
        """Return the group coordinator of the group `key`, or with TRANSACTION_KEY the coordinator of that id.

        Raises BrokerError if the key is invalid or not authorized.
        """
        of_group = key_type == GROUP_KEY
        what = f"group coordinator of group {key!r}" if of_group else f"coordinator of transactional id {key!r}"
        retry = self.retry(what, deadline)
        while True:
            version, response = self.call_versioned(
                FindCoordinatorRequest, lambda v: coordinator_request(v, key, key_type), ANY, deadline
            )
            answer = read_coordinator(response, version, key)
            if isinstance(answer, Broker):
                return answer
            if answer is None:
                raise DecodeError(f"FindCoordinator v{version}: {key!r} is missing")
            if not may_succeed_later(answer):
                context = f"cannot find the {what}"
                if answer in RESOURCES:
                    # Describe is enough to ask, but who asks is about to begin a transaction. Write includes Describe.
                    operation = Operation.DESCRIBE if of_group else Operation.WRITE
                    raise refusal(answer, context, operation, key, self.requester)
                raise BrokerError(answer, context)
            retry.again(with_remedy(error_of(answer).name))

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: Isolation, deadline: float
    ) -> dict[TopicPartition, ListedOffset]:
        """Return the offset of each partition at EARLIEST, LATEST or a timestamp (ms). Asks all leaders at once.

        LATEST is the last stable offset under READ_COMMITTED, else the high watermark. A timestamp after the last
        record has the offset NO_OFFSET. Brokers before 0.10.1 know only the times of segments. There a timestamp
        resolves to the start of the newest segment whose file is not newer, or to the earliest offset, so that no later
        record is missed. Partitions without a known leader are retried. Raises TransportError if a partition has no
        response by the deadline, BrokerError if the user may not read it.
        """
        listed: dict[TopicPartition, ListedOffset] = {}
        pending = dict(wanted)
        retry = self.retry("offsets", deadline)
        while True:
            try:
                snapshot = self.snapshot({tp.topic for tp in pending}, deadline)
            except TransportError as error:
                raise retry.with_earlier_cause(error) from error
            requests, causes = offset_requests(pending, snapshot, isolation)
            for answer in self.call_each(requests, deadline).values():
                if isinstance(answer, TransportError):
                    causes.append(str(answer))
                else:
                    read_offsets(answer, listed, causes, self.requester)
            self._retry_unmatched_timestamps(pending, snapshot, isolation, deadline, listed=listed, causes=causes)
            pending = {tp: at for tp, at in pending.items() if tp not in listed}
            if not pending:
                return listed
            self.expire_metadata()
            retry.again(_some(causes))

    def _retry_unmatched_timestamps(
        self,
        asked: Mapping[TopicPartition, int],
        snapshot: ClusterSnapshot,
        isolation: Isolation,
        deadline: float,
        *,
        listed: dict[TopicPartition, ListedOffset],
        causes: list[str],
    ) -> None:
        """Repeat a timestamp without a result. In v0 it is before every segment: request the earliest offset."""
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
                read_offsets(response, listed, causes, self.requester)

    def list_offsets_once(
        self, wanted: Mapping[TopicPartition, int], isolation: Isolation, deadline: float, *, timeout: float, epoch: int
    ) -> tuple[dict[TopicPartition, ListedOffset], list[str]]:
        """Do as `list_offsets`, with one attempt of at most `timeout` seconds.

        Return the offsets, and a reason for each missing one. A slow leader does not delay the others. A later call
        with the same partitions and `epoch` returns responses that have arrived in between; the caller starts a new
        epoch if the partitions may have changed. Raises BrokerError if the user may not read a partition,
        TransportError if no metadata arrives by `deadline`.
        """
        listed: dict[TopicPartition, ListedOffset] = {}
        snapshot = self.snapshot({tp.topic for tp in wanted}, deadline)
        requests, causes = offset_requests(wanted, snapshot, isolation)
        for answer in self.call_each(requests, deadline, timeout=timeout, epoch=epoch).values():
            if isinstance(answer, TransportError):
                causes.append(str(answer))
            else:
                read_offsets(answer, listed, causes, self.requester)
        return listed, causes

    def epoch_ends(
        self, wanted: Mapping[TopicPartition, EpochCheck], deadline: float
    ) -> dict[TopicPartition, EpochEnd]:
        """Return the end offset of the leader epoch of each position. Asks all leaders at once.

        A partition without a response by the deadline is absent: its leader moves or is offline. If a leader does not
        know the end, the EpochEnd is not `known`. Raises BrokerError if the user may not describe a topic.
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
                        read_epoch_ends(answer, ends, causes, self.requester)
                pending = {tp: check for tp, check in pending.items() if tp not in ends}
                if not pending:
                    self._warn_of_refusal(ends)
                    return ends
                self.expire_metadata()
                retry.again(_some(causes))
            except TransportError:
                return ends

    def samples(self, wanted: Mapping[TopicPartition, int], deadline: float) -> dict[TopicPartition, LogSample]:
        """Return a sample of each log from the position in `wanted` on.

        The first partitions of each leader are asked first. Partitions without an answer are absent: the estimate of
        record sizes is made without them.
        """
        found: dict[TopicPartition, LogSample] = {}
        try:
            for piece in ROUNDS:
                left = without(wanted, found)
                requests = sample_requests(left, self.snapshot({tp.topic for tp in left}, deadline), piece)
                for answer in self.call_each(requests, deadline, ceiling=LAST_WITH_NAMES).values():
                    if not isinstance(answer, TransportError):
                        found |= read_samples(answer, left)
                if len(found) == len(wanted):
                    break
        except TransportError as error:
            log.debug("no samples of the logs: %s", error)
        return found

    def _warn_of_refusal(self, ends: Mapping[TopicPartition, EpochEnd]) -> None:
        """Log once that the brokers do not check positions for this user."""
        refused = sorted(tp for tp, end in ends.items() if end.refused)
        if refused and not self._has_warned_of_refusal:
            self._has_warned_of_refusal = True
            log.warning(
                "cannot check by leader epochs whether the log of %s was truncated: these brokers are older than 2.3 "
                "and answer only brokers (ClusterAction on the cluster). Reading continues without the check",
                refused[0],
            )

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        if self._fanout is not None:
            self._fanout.close()
            self._fanout = None

    def _rebootstrap(self) -> None:
        """Forget all brokers and restart from the bootstrap servers, as the broker has requested (KIP-1102)."""
        self.close()
        self._cache.forget()
        self._failed_at.clear()
        self._distrusted_at.clear()

    def _addresses(self, node: Node, deadline: float, causes: list[str]) -> list[Address]:
        """Return the addresses to try: all known ones for ANY, else the node's. An error is added to `causes`."""
        if node == ANY:
            return self._candidates()
        try:
            return [self._address(node, deadline)]
        except TransportError as error:
            causes.append(str(error))
            return []

    def _candidates(self) -> list[Address]:
        """Return open connections, then known brokers, then bootstrap servers; the latest failures come last."""
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
            raise TransportError(f"cannot connect to broker {node}: it is not in the metadata of cluster {self}")
        return broker.host, broker.port

    def _connected(self, address: Address, deadline: float) -> Connection:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = Connection(*address, self.options, self.clock)
        if not connection.open:
            connection.connect(deadline)
        return connection

    def _share(self, deadline: float, addresses: int) -> float:
        """Return the deadline of one of `addresses`, so that a silent one leaves time for the others."""
        now = self.clock()
        return min(deadline, now + max(_LEAST_SHARE_S, (deadline - now) / addresses))

    def _attempt_until(self, deadline: float) -> float:
        return min(deadline, self.clock() + self.options.request_timeout_ms / 1000)


_NEXT_STEPS: dict[type[TransportError], str] = {
    TransportError: "Check that its brokers run, and that this machine reaches them",
    NoBrokersYetError: "Brokers of Kafka 0.8 report no broker until the first topic exists: create a topic. Later "
    "brokers report themselves once they have started",
}


class Retry:
    """The attempts of one operation: waits between them, and raises the last error at the deadline."""

    def __init__(
        self, cluster: KafkaCluster, what: str, deadline: float, backoff: Backoff, sleep: Callable[[float], None]
    ) -> None:
        self._cluster, self._what, self._deadline = cluster, what, deadline
        self._backoff, self._sleep = backoff, sleep
        self._began = cluster.clock()
        self._attempts = 0
        self._earlier = ""

    def with_earlier_cause(self, error: TransportError) -> TransportError:
        """Return `error` with the cause of the attempt before it.

        The deadline may have ended the last attempt early.
        """
        return TransportError(f"{error}{self._earlier}")

    def again(self, cause: str | Exception, raised: type[TransportError] = TransportError) -> None:
        """Wait before the next attempt. If the deadline would pass first, raise `raised` with `cause`."""
        self._attempts += 1
        wait = self._backoff.next()
        now = self._cluster.clock()
        if now + wait >= self._deadline:
            before = self._earlier if now >= self._deadline else ""  # the deadline may have ended this attempt early
            raise raised(
                f"no {self._what} from cluster {self._cluster} after {counted(self._attempts, 'attempt')} "
                f"in {now - self._began:.1f} s; last error: {cause}{before}. {_NEXT_STEPS[raised]}"
            ) from (cause if isinstance(cause, Exception) else None)
        self._earlier = f"; error before: {cause}"
        self._sleep(wait)


def _some(causes: Sequence[str]) -> str:
    return first_of(causes, MOST_NAMED, "cause", "; ")
