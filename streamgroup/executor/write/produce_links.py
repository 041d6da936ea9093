"""The connections of a producer: they carry its requests out, and bring the answers back as its events.

One connection leads to each broker. Metadata and producer ids are asked for over any of them, or over a connection to a
bootstrap server while there is none.
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
"""How often to look whether the socket has taken a request that has no response. The poller does not report that."""

Address = tuple[str, int]
Seal = Callable[[ProducerBatch, int], Bytes]
"""Returns the bytes of a batch for a version of Produce."""


@dataclass(slots=True)
class _Link:
    """The connection to one address."""

    handle: Handle
    node: int | None
    """The broker whose requests it carries; None for a bootstrap server."""
    is_ready: bool = False
    waiting: deque[ev.Send] = field(default_factory=deque)
    """Produce requests that are sent once the broker's API versions are known."""
    pending: dict[int, int] = field(default_factory=dict)
    """Tokens of Produce requests, by correlation id."""
    unwritten: list[int] = field(default_factory=list)
    """Tokens with acks=0 whose bytes may still wait for the socket."""


@dataclass(slots=True)
class _Question:
    """A request that any broker answers: the metadata of topics, or a producer id (`topics` is None).

    With `read`, which has the metadata, it is about the largest batches of `topics`.
    """

    topics: frozenset[str] | None
    since: float
    limits: frozenset[str] = frozenset()
    """The topics whose largest batches are to be read after the metadata."""
    read: ev.MetadataRead | None = None
    handle: Handle | None = None
    correlation_id: int | None = None
    failed: list[str] = field(default_factory=list)
    """The reasons of the addresses that have failed since it was asked."""
    tried: set[Address] = field(default_factory=set)


class ProduceLinks:
    """See the module. `seal` gives the bytes of a batch. For one thread."""

    def __init__(self, client: ClientOptions, seal: Seal, clock: Callable[[], float]) -> None:
        self._client = client
        self._seal = seal
        self._clock = clock
        self._poller = Poller(client, clock)
        self._requester = requester_of(client)
        self._brokers: dict[int, Broker] = {}
        self._by_node: dict[int, _Link] = {}
        self._links: dict[Handle, _Link] = {}
        self._questions: list[_Question] = []
        self._events: deque[ev.Event] = deque()

    # -- the producer's actions ---------------------------------------------------------------------------------------

    def send(self, send: ev.Send) -> None:
        """Send a Produce request, as soon as there is a connection to its broker."""
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
        """Close the connection to a broker, which has not answered in time. No event follows."""
        link = self._by_node.get(node)
        if link is not None:
            self._forget(link, "a Produce request had no answer in time")
            self._poller.drop(link.handle, reset=True)

    def read_metadata(self, topics: frozenset[str], limits: frozenset[str] = frozenset()) -> None:
        """Read the metadata of `topics`, and the largest batches that those of `limits` take.

        A broker creates a missing topic, where its configuration says so.
        """
        self._ask(_Question(topics, self._clock(), limits))

    def get_producer_id(self) -> None:
        """Ask for a producer id."""
        self._ask(_Question(None, self._clock()))

    def use_brokers(self, brokers: tuple[Broker, ...]) -> None:
        """Take the addresses of brokers over."""
        for broker in brokers:
            self._learn(broker)

    def close(self) -> None:
        """Close all connections."""
        self._poller.close()

    @property
    def is_usable(self) -> bool:
        """Whether no request is under way that a later task could mistake for its own."""
        return not self._questions and not any(link.waiting or link.pending for link in self._links.values())

    # -- waiting ------------------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None) -> list[ev.Event]:
        """Send and receive until there are events, or `timeout` seconds have passed. Return the events.

        Raises AuthError or ConfigError for a broker to which no retry connects.
        """
        if self._events:
            timeout = 0.0
        elif self._questions:
            due = min(question.since for question in self._questions) + self._client.request_timeout_ms / 1000
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
                    raise error  # no retry mends it
                case ConnectionLost(handle, error):
                    self._broken(handle, str(error))
                case ConnectionIdle(handle):
                    self._broken(handle, "it was idle for connections.max.idle.ms")
        self._note_written()
        self._expire_questions()
        events = list(self._events)
        self._events.clear()
        return events

    def _connected(self, handle: Handle) -> None:
        link = self._links.get(handle)
        if link is None or not self._poller.has(handle):
            return  # its end is among the events behind this one
        link.is_ready = True
        self._send_waiting(link)
        for question in list(self._questions):  # a refused one is taken out
            if question.handle == handle and question.correlation_id is None:
                self._put(question, link)

    def _received(self, handle: Handle, correlation_id: int, response: Any, version: int) -> None:
        link = self._links.get(handle)
        if link is None:
            return
        token = link.pending.pop(correlation_id, None)
        if token is not None:
            self._events.append(ev.Answered(token, response, version))
            return
        for question in self._questions:
            if question.handle == handle and question.correlation_id == correlation_id:
                self._answer(question, link, response)
                return

    def _broken(self, handle: Handle, reason: str) -> None:
        link = self._links.get(handle)
        if link is not None:
            self._lose(link, reason)

    def _lose(self, link: _Link, reason: str) -> None:
        """Forget a connection that is over, and report the requests that get no answer now."""
        if link.node is not None and (link.waiting or link.pending or link.unwritten):
            written = bool(link.pending or link.unwritten)
            self._events.append(ev.Disconnected(link.node, reason, written=written))
        self._forget(link, reason)

    def _forget(self, link: _Link, reason: str) -> None:
        """Forget a connection; what was asked of any broker over it is asked of another one."""
        del self._links[link.handle]
        if link.node is not None and self._by_node.get(link.node) is link:
            del self._by_node[link.node]
        for question in [question for question in self._questions if question.handle == link.handle]:
            question.failed.append(reason)
            self._ask_next(question)

    # -- requests to one broker ---------------------------------------------------------------------------------------

    def _link_to(self, broker: Broker) -> _Link:
        """Return a connection for the requests to `broker`: one to it as a bootstrap server, or a new one."""
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

    def _ask(self, question: _Question) -> None:
        self._questions.append(question)
        self._ask_next(question)

    def _ask_next(self, question: _Question) -> None:
        """Ask the next address that has not failed yet."""
        question.handle = question.correlation_id = None
        link = next(self._untried(question), None)
        if link is None:
            self._questions.remove(question)
            self._give_up(question, "; ".join(question.failed) or "no broker is known")
            return
        question.handle = link.handle
        question.tried.add((link.handle.host, link.handle.port))
        if link.is_ready:
            self._put(question, link)

    def _untried(self, question: _Question) -> Iterator[_Link]:
        """Yield connections that the question has not been put to: open ones first, then new ones."""
        tried = question.tried
        # A connection may have ended already, with an event that is still to be handled.
        alive = [link for link in self._links.values() if self._poller.has(link.handle)]
        links = sorted(alive, key=lambda link: not link.is_ready)
        yield from (link for link in links if (link.handle.host, link.handle.port) not in tried)
        for broker in self._brokers.values():
            if (broker.host, broker.port) not in tried:
                yield self._connect((broker.host, broker.port), broker.node_id)
        for address in self._client.bootstrap_servers:
            if address not in tried:
                yield self._connect(address, None)

    def _put(self, question: _Question, link: _Link) -> None:
        """Send a question. A broker without InitProducerId refuses it at once."""
        request: Any
        if question.topics is None:
            request = init_producer_id()
        elif question.read is not None:
            request = describe_limits(question.topics)
        else:
            names = tuple(MetadataRequestTopic(name=name) for name in sorted(question.topics))
            request = MetadataRequest(topics=names, allow_auto_topic_creation=True)
        try:
            question.correlation_id = self._poller.send(link.handle, request)
        except UnsupportedVersionError as error:
            self._questions.remove(question)
            if question.read is None:
                self._events.append(ev.ProducerIdRefused(ErrorCode.UNSUPPORTED_VERSION, str(error)))
            else:
                self._give_up(question, str(error))

    def _answer(
        self,
        question: _Question,
        link: _Link,
        response: MetadataResponse | InitProducerIdResponse | DescribeConfigsResponse,
    ) -> None:
        self._questions.remove(question)
        if isinstance(response, DescribeConfigsResponse):
            assert question.read is not None
            self._events.append(with_limits(question.read, response, self._requester))
            return
        if isinstance(response, InitProducerIdResponse):
            if response.error_code:
                broker = host_port(link.handle.host, link.handle.port)
                self._events.append(ev.ProducerIdRefused(response.error_code, f"from broker {broker}"))
            else:
                self._events.append(ev.ProducerIdGiven(response.producer_id, response.producer_epoch))
            return
        assert question.topics is not None
        if response.error_code or not response.brokers:
            if wants_rebootstrap(response):
                self._brokers.clear()
            self._events.append(ev.MetadataFailed(f"broker {link.handle} answered with error {response.error_code}"))
            return
        for row in response.brokers:
            self._learn(Broker(row.node_id, row.host, row.port, row.rack))
        topics = {row.name: topic_of(row) for row in response.topics if row.name and not row.error_code}
        errors = {row.name: row.error_code for row in response.topics if row.name and row.error_code}
        read = ev.MetadataRead(topics, question.topics, errors)
        if found := question.limits & topics.keys():
            self._ask(_Question(found, self._clock(), read=read))
        else:
            self._events.append(read)

    def _learn(self, broker: Broker) -> None:
        """Take a broker's address over. A connection to an earlier address is left to end by itself."""
        known = self._brokers.get(broker.node_id)
        self._brokers[broker.node_id] = broker
        if known is not None and (known.host, known.port) != (broker.host, broker.port):
            link = self._by_node.get(broker.node_id)
            if link is not None and not link.pending and not link.waiting and not link.unwritten:
                self._forget(link, "the broker has another address now")
                self._poller.drop(link.handle, reset=False)

    def _expire_questions(self) -> None:
        limit = self._clock() - self._client.request_timeout_ms / 1000
        for question in [question for question in self._questions if question.since <= limit]:
            self._questions.remove(question)
            self._give_up(question, f"no answer within request.timeout.ms={self._client.request_timeout_ms}")

    def _give_up(self, question: _Question, reason: str) -> None:
        if question.topics is None:
            self._events.append(ev.ProducerIdRefused(ErrorCode.NETWORK_EXCEPTION, reason))
        elif question.read is not None:
            self._events.append(replace(question.read, no_limits=dict.fromkeys(question.topics, reason)))
        else:
            self._events.append(ev.MetadataFailed(reason))
