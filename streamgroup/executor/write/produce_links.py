"""The connections of a producer: they send its requests and return the responses as events.

There is one connection to each broker. A request that any broker can answer (Metadata, DescribeConfigs, InitProducerId)
uses one of them, or a connection to a bootstrap server if there is none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from streamgroup.errors import AuthError, ConfigError, ErrorCode, UnsupportedVersionError
from streamgroup.kafka.cluster.metadata import topic_of, wants_rebootstrap
from streamgroup.kafka.net.poller import (
    ConnectionIdle,
    ConnectionLost,
    ConnectionReady,
    Handle,
    Poller,
    ResponseReceived,
)
from streamgroup.kafka.net.requester import requester_of
from streamgroup.kafka.producer import events as ev
from streamgroup.kafka.producer.batch import ProducerBatch
from streamgroup.kafka.producer.requests import (
    describe_limits,
    init_producer_id,
    produce_ceiling,
    produce_request,
    with_limits,
)
from streamgroup.kafka.wire.messages.cluster import MetadataRequest, MetadataRequestTopic, MetadataResponse
from streamgroup.kafka.wire.messages.produce import NO_ACKS, InitProducerIdResponse, ProduceRequest
from streamgroup.kafka.wire.messages.topics import DescribeConfigsResponse
from streamgroup.kafka.wire.primitives import Bytes
from streamgroup.model import Broker
from streamgroup.options.types import ClientOptions
from streamgroup.text import host_port

_WRITING_S = 0.005
"""Seconds between two checks whether the socket has taken a request without a response: the poller reports no event."""

Address = tuple[str, int]
Seal = Callable[[ProducerBatch, int], Bytes]
"""Returns the bytes of a batch for a version of Produce."""


@dataclass(slots=True)
class _Link:
    """The connection to one address, with its pending Produce requests."""

    handle: Handle
    node: int | None
    """The broker that its requests are for; None for a bootstrap server."""
    is_ready: bool = False
    waiting: deque[ev.Send] = field(default_factory=deque)
    """Produce requests that wait for the broker's API versions."""
    pending: dict[int, int] = field(default_factory=dict)
    """Tokens of pending Produce requests, by correlation id."""
    unwritten: list[int] = field(default_factory=list)
    """Tokens with acks=0 whose bytes may still wait for the socket."""


@dataclass(slots=True)
class _Lookup:
    """A request that any broker can answer: the metadata of `topics`, or a producer id if `topics` is None.

    If `read` is set, the metadata have been read, and the request is for the largest batches that `topics` accept.
    """

    topics: frozenset[str] | None
    since: float
    limits: frozenset[str] = frozenset()
    """The topics whose largest batches are to be read after the metadata."""
    read: ev.MetadataRead | None = None
    handle: Handle | None = None
    correlation_id: int | None = None
    failed: list[str] = field(default_factory=list)
    """Why each address has failed that it was sent to."""
    tried: set[Address] = field(default_factory=set)


class ProduceLinks:
    """Sends the requests of one producer. One thread uses it.

    `seal(batch, version)` returns the bytes of a batch for a version of Produce.
    """

    def __init__(self, client: ClientOptions, seal: Seal, clock: Callable[[], float]) -> None:
        self._client = client
        self._seal = seal
        self._clock = clock
        self._poller = Poller(client, clock)
        self._requester = requester_of(client)
        self._brokers: dict[int, Broker] = {}
        self._by_node: dict[int, _Link] = {}
        self._links: dict[Handle, _Link] = {}
        self._lookups: list[_Lookup] = []
        self._events: deque[ev.Event] = deque()

    # -- the producer's actions ---------------------------------------------------------------------------------------

    def send(self, send: ev.Send) -> None:
        link = self._by_node.get(send.node)
        if link is None:
            broker = self._brokers.get(send.node)
            if broker is None:
                reason = f"broker {send.node} is not in the metadata"
                self._events.append(ev.Disconnected(send.node, reason, written=False))
                return
            link = self._link_to(broker)
        link.waiting.append(send)
        self._send_waiting(link)

    def disconnect(self, node: int) -> None:
        """Close the connection to a broker that has not answered in time. The producer gets no event about it."""
        link = self._by_node.get(node)
        if link is not None:
            self._forget(link, "a Produce request had no answer in time")
            self._poller.drop(link.handle, reset=True)

    def read_metadata(self, topics: frozenset[str], limits: frozenset[str] = frozenset()) -> None:
        """Request the metadata of `topics`, and the largest batch that each topic in `limits` accepts.

        A broker creates a missing topic if it has auto.create.topics.enable=true.
        """
        self._ask(_Lookup(topics, self._clock(), limits))

    def get_producer_id(self) -> None:
        self._ask(_Lookup(None, self._clock()))

    def use_brokers(self, brokers: tuple[Broker, ...]) -> None:
        for broker in brokers:
            self._learn(broker)

    def close(self) -> None:
        self._poller.close()

    @property
    def is_usable(self) -> bool:
        """Whether no request is pending whose response could be taken for the response to a later task's request."""
        return not self._lookups and not any(link.waiting or link.pending for link in self._links.values())

    # -- waiting ------------------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None) -> list[ev.Event]:
        """Send and receive until there are events, or `timeout` seconds have passed. Return the events.

        Raises AuthError or ConfigError if a connection fails and retrying will not help.
        """
        if self._events:
            timeout = 0.0
        elif self._lookups:
            due = min(lookup.since for lookup in self._lookups) + self._client.request_timeout_ms / 1000
            left = max(0.0, due - self._clock())
            timeout = left if timeout is None else min(timeout, left)
        if any(link.unwritten for link in self._links.values()):
            timeout = _WRITING_S if timeout is None else min(timeout, _WRITING_S)
        for event in self._poller.wait(timeout):
            match event:
                case ConnectionReady(handle):
                    self._connected(handle)
                case ResponseReceived(handle, correlation_id, response, version):
                    self._received(handle, correlation_id, response, version)
                case ConnectionLost(error=AuthError() | ConfigError() as error):
                    raise error  # retrying will not help
                case ConnectionLost(handle, error):
                    self._broken(handle, str(error))
                case ConnectionIdle(handle):
                    self._broken(handle, "it was idle for connections.max.idle.ms")
        self._note_written()
        self._expire_lookups()
        events = list(self._events)
        self._events.clear()
        return events

    def _connected(self, handle: Handle) -> None:
        link = self._links.get(handle)
        if link is None or not self._poller.has(handle):
            return  # a later event reports its end
        link.is_ready = True
        self._send_waiting(link)
        for lookup in list(self._lookups):  # a refused one is removed
            if lookup.handle == handle and lookup.correlation_id is None:
                self._put(lookup, link)

    def _received(self, handle: Handle, correlation_id: int, response: Any, version: int) -> None:
        link = self._links.get(handle)
        if link is None:
            return
        token = link.pending.pop(correlation_id, None)
        if token is not None:
            self._events.append(ev.Answered(token, response, version))
            return
        for lookup in self._lookups:
            if lookup.handle == handle and lookup.correlation_id == correlation_id:
                self._answer(lookup, link, response)
                return

    def _broken(self, handle: Handle, reason: str) -> None:
        link = self._links.get(handle)
        if link is not None:
            self._lose(link, reason)

    def _lose(self, link: _Link, reason: str) -> None:
        """Forget a connection that has ended, and report its requests without a response."""
        if link.node is not None and (link.waiting or link.pending or link.unwritten):
            written = bool(link.pending or link.unwritten)
            self._events.append(ev.Disconnected(link.node, reason, written=written))
        self._forget(link, reason)

    def _forget(self, link: _Link, reason: str) -> None:
        """Forget a connection. Requests on it that any broker answers go to another broker."""
        del self._links[link.handle]
        if link.node is not None and self._by_node.get(link.node) is link:
            del self._by_node[link.node]
        for lookup in [each for each in self._lookups if each.handle == link.handle]:
            lookup.failed.append(reason)
            self._ask_next(lookup)

    # -- requests to one broker ---------------------------------------------------------------------------------------

    def _link_to(self, broker: Broker) -> _Link:
        """Return a connection to `broker`: the one to it as a bootstrap server, or a new one."""
        for link in self._links.values():
            if link.node is None and (link.handle.host, link.handle.port) == (broker.host, broker.port):
                link.node = broker.node_id
                self._by_node[broker.node_id] = link
                return link
        return self._connect((broker.host, broker.port), broker.node_id)

    def _connect(self, address: Address, node: int | None) -> _Link:
        link = _Link(self._poller.connect(*address, tag="" if node is None else f"broker {node}"), node)
        self._links[link.handle] = link
        if node is not None:
            self._by_node[node] = link
        return link

    def _send_waiting(self, link: _Link) -> None:
        if not link.is_ready:
            return
        versions = self._poller.versions(link.handle)
        assert versions is not None
        while link.waiting:
            send = link.waiting.popleft()
            version = versions.highest(ProduceRequest, produce_ceiling(send))
            request = produce_request(send, lambda batch: self._seal(batch, version))  # noqa: B023 (used at once)
            correlation_id = self._poller.send(link.handle, request, version)
            if send.acks == NO_ACKS:
                link.unwritten.append(send.token)
            else:
                link.pending[correlation_id] = send.token

    def _note_written(self) -> None:
        for link in self._links.values():
            if link.unwritten and self._poller.has_sent_all(link.handle):
                self._events.extend(ev.Written(token) for token in link.unwritten)
                link.unwritten.clear()

    # -- requests to any broker ---------------------------------------------------------------------------------------

    def _ask(self, lookup: _Lookup) -> None:
        self._lookups.append(lookup)
        self._ask_next(lookup)

    def _ask_next(self, lookup: _Lookup) -> None:
        """Use the next address that has not failed yet."""
        lookup.handle = lookup.correlation_id = None
        link = next(self._untried(lookup), None)
        if link is None:
            self._lookups.remove(lookup)
            self._give_up(lookup, "; ".join(lookup.failed) or "no known brokers")
            return
        lookup.handle = link.handle
        lookup.tried.add((link.handle.host, link.handle.port))
        if link.is_ready:
            self._put(lookup, link)

    def _untried(self, lookup: _Lookup) -> Iterator[_Link]:
        """Yield connections that have not had the request: open ones first, then new ones."""
        tried = lookup.tried
        # A connection may have ended already, and its event may still be pending.
        alive = [link for link in self._links.values() if self._poller.has(link.handle)]
        links = sorted(alive, key=lambda link: not link.is_ready)
        yield from (link for link in links if (link.handle.host, link.handle.port) not in tried)
        for broker in self._brokers.values():
            if (broker.host, broker.port) not in tried:
                yield self._connect((broker.host, broker.port), broker.node_id)
        for address in self._client.bootstrap_servers:
            if address not in tried:
                yield self._connect(address, None)

    def _put(self, lookup: _Lookup, link: _Link) -> None:
        """Send the request. A broker without InitProducerId refuses it at once."""
        request: Any
        if lookup.topics is None:
            request = init_producer_id()
        elif lookup.read is not None:
            request = describe_limits(lookup.topics)
        else:
            names = tuple(MetadataRequestTopic(name=name) for name in sorted(lookup.topics))
            request = MetadataRequest(topics=names, allow_auto_topic_creation=True)
        try:
            lookup.correlation_id = self._poller.send(link.handle, request)
        except UnsupportedVersionError as error:
            self._lookups.remove(lookup)
            if lookup.read is None:
                self._events.append(ev.ProducerIdRefused(ErrorCode.UNSUPPORTED_VERSION, str(error)))
            else:
                self._give_up(lookup, str(error))

    def _answer(
        self,
        lookup: _Lookup,
        link: _Link,
        response: MetadataResponse | InitProducerIdResponse | DescribeConfigsResponse,
    ) -> None:
        self._lookups.remove(lookup)
        if isinstance(response, DescribeConfigsResponse):
            assert lookup.read is not None
            self._events.append(with_limits(lookup.read, response, self._requester))
            return
        if isinstance(response, InitProducerIdResponse):
            if response.error_code:
                broker = host_port(link.handle.host, link.handle.port)
                self._events.append(ev.ProducerIdRefused(response.error_code, f"from broker {broker}"))
            else:
                self._events.append(ev.ProducerIdGiven(response.producer_id, response.producer_epoch))
            return
        assert lookup.topics is not None
        if response.error_code or not response.brokers:
            if wants_rebootstrap(response):
                self._rebootstrap()
            self._events.append(
                ev.MetadataFailed(f"broker {link.handle} answered Metadata with error {response.error_code}")
            )
            return
        for row in response.brokers:
            self._learn(Broker(row.node_id, row.host, row.port, row.rack))
        topics = {row.name: topic_of(row) for row in response.topics if row.name and not row.error_code}
        errors = {row.name: row.error_code for row in response.topics if row.name and row.error_code}
        read = ev.MetadataRead(topics, lookup.topics, errors)
        if found := lookup.limits & topics.keys():
            self._ask(_Lookup(found, self._clock(), read=read))
        else:
            self._events.append(read)

    def _rebootstrap(self) -> None:
        """Forget all brokers and close the connections to them: they may be in the cluster no longer (KIP-1102)."""
        self._brokers.clear()
        links = tuple(self._links.values())
        for link in links:  # all of them, before a request is sent again
            self._poller.drop(link.handle, reset=True)
        for link in links:
            self._lose(link, "the broker answered REBOOTSTRAP_REQUIRED: connecting to bootstrap.servers again")

    def _learn(self, broker: Broker) -> None:
        """Note a broker's address. An earlier connection that has pending requests stays open until they end."""
        known = self._brokers.get(broker.node_id)
        self._brokers[broker.node_id] = broker
        if known is not None and (known.host, known.port) != (broker.host, broker.port):
            link = self._by_node.get(broker.node_id)
            if link is not None and not link.pending and not link.waiting and not link.unwritten:
                self._forget(link, "the broker has another address now")
                self._poller.drop(link.handle, reset=False)

    def _expire_lookups(self) -> None:
        limit = self._clock() - self._client.request_timeout_ms / 1000
        for lookup in [each for each in self._lookups if each.since <= limit]:
            self._lookups.remove(lookup)
            self._give_up(lookup, f"no answer within request.timeout.ms={self._client.request_timeout_ms}")

    def _give_up(self, lookup: _Lookup, reason: str) -> None:
        if lookup.topics is None:
            self._events.append(ev.ProducerIdRefused(ErrorCode.NETWORK_EXCEPTION, reason))
        elif lookup.read is not None:
            self._events.append(replace(lookup.read, no_limits=dict.fromkeys(lookup.topics, reason)))
        else:
            self._events.append(ev.MetadataFailed(reason))
