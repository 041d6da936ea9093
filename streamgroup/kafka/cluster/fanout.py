"""Sends requests to many brokers at once from one thread, so that a slow broker does not delay the others.

Each broker has its own connection, which is set up while other brokers already answer. A call returns after its
timeout. A request without a response by then stays in flight: the next call with the same request returns its response.
So a broker that is always slower than the timeout is one call late.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple, TypeVar

from streamgroup.errors import StreamGroupError, TransportError
from streamgroup.frozen import frozen
from streamgroup.kafka.net.connection import throttled
from streamgroup.kafka.net.link import AnyRequest, name_of
from streamgroup.kafka.net.poller import (
    ConnectionIdle,
    ConnectionLost,
    ConnectionReady,
    Event,
    Handle,
    Poller,
    ResponseReceived,
)
from streamgroup.kafka.wire.schema import Message, Request
from streamgroup.model import Dialect
from streamgroup.options.types import ClientOptions

R = TypeVar("R", bound=Message)
Address = tuple[str, int]
AddressedRequest = tuple[Address, AnyRequest]


class Pending(TransportError):
    """The broker has not answered within the timeout of the call. The request stays in flight."""


class Unsent(TransportError):
    """The request failed because an earlier request on the same connection failed. It may not be the cause itself."""


class _Sent(NamedTuple):
    request: AnyRequest
    epoch: int


@dataclass(slots=True)
class _BrokerLink:
    """The connection to one broker, its in-flight requests, and responses that came after the end of their call."""

    handle: Handle
    connected: bool = False
    asked: dict[int, tuple[_Sent, float]] = field(default_factory=dict)
    """Request and deadline by correlation id, the oldest first."""
    responses: dict[_Sent, tuple[Any, float]] = field(default_factory=dict)
    """Untaken responses and their deadlines. Bounded: the next call to this broker drops the expired ones."""
    due: float = inf
    """The earliest deadline. `asked` is searched only after it, since there may be thousands of requests."""

    def pending(self, now: float) -> set[_Sent]:
        """Return the requests that are in flight or have an untaken response; drop expired responses."""
        self.responses = {asked: kept for asked, kept in self.responses.items() if now < kept[1]}
        return self.responses.keys() | {asked for asked, _ in self.asked.values()}

    def delay(self, seconds: float) -> None:
        """Extend the deadlines of the requests in flight, because the broker throttles the client."""
        self.asked = {number: (asked, until + seconds) for number, (asked, until) in self.asked.items()}
        self.due += seconds

    @property
    def first(self) -> AnyRequest | None:
        """The request that the broker answers next."""
        return next((asked.request for asked, _ in self.asked.values()), None)


@frozen
class _Call:
    """The requests of one call of `BrokerFanout`, and the responses so far."""

    requests: dict[AddressedRequest, None]
    """The requests, in the order of the caller."""
    epoch: int
    answers: dict[AddressedRequest, Any]

    def left(self) -> list[AddressedRequest]:
        return [request for request in self.requests if request not in self.answers]

    def take(self, address: Address, link: _BrokerLink) -> None:
        """Take the responses that `link` holds for this call."""
        for asked in tuple(link.responses):
            request = address, asked.request
            if asked.epoch == self.epoch and request in self.requests and request not in self.answers:
                self.answers[request] = link.responses.pop(asked)[0]

    def fail(self, address: Address, error: StreamGroupError, culprit: AnyRequest | None = None) -> None:
        """Fail all pending requests to `address`. With `culprit` the connection failed at that request."""
        for request in self.left():
            if request[0] == address:
                behind = culprit is not None and request[1] != culprit
                self.answers[request] = Unsent(f"{error} (in an earlier request)") if behind else error


class BrokerFanout:
    """Sends requests to many brokers at once and waits for the responses. One thread uses it."""

    def __init__(self, options: ClientOptions, clock: Callable[[], float], dialect: Dialect = Dialect.KAFKA) -> None:
        self._options = options
        self._clock = clock
        self._poller = Poller(options, clock, dialect)
        self._links: dict[Address, _BrokerLink] = {}
        """One per broker, until its connection fails or the broker leaves the cluster (`keep`)."""

    def call_each(
        self,
        requests: Mapping[Address, Request[R]],
        deadline: float,
        *,
        timeout: float | None = None,
        ceiling: int | None = None,
        epoch: int = 0,
    ) -> dict[Address, R | TransportError]:
        """Send one request to each broker. Return the response or the error of each.

        An attempt takes at most `request_timeout_ms`. A broker without a response after `timeout` seconds (None: the
        whole attempt) gets the result `Pending`; the next call with the same request and `epoch` returns its response.
        Raises any error that is not a TransportError: UnsupportedVersionError, DecodeError, BrokerError of a refused
        handshake.
        """
        found = self.call_all(requests.items(), deadline, timeout=timeout, ceiling=ceiling, epoch=epoch)
        return {address: answer for (address, _), answer in found.items()}

    def call_all(
        self,
        requests: Collection[AddressedRequest],
        deadline: float,
        *,
        timeout: float | None = None,
        ceiling: int | None = None,
        epoch: int = 0,
    ) -> dict[AddressedRequest, Any]:
        """Do as `call_each`, with any number of requests per broker. They are pipelined in the given order.

        If a connection fails, its first request without a response gets the error, and later requests get `Unsent`.
        """
        began = self._clock()
        until = min(deadline, began + self._options.request_timeout_ms / 1000)
        wait_end = until if timeout is None else min(until, began + timeout)
        answers: dict[AddressedRequest, Any] = {}
        call = _Call(dict.fromkeys(requests), epoch, answers)
        self._take(self._poller.wait(0), _Call({}, epoch, {}))  # failed connections and late responses of earlier calls
        self._send(call, until, ceiling)
        while True:
            for address, link in self._links.items():
                call.take(address, link)
            self._drop_overdue(call)
            now = self._clock()
            if len(answers) == len(call.requests) or now >= wait_end:
                break
            self._take(self._poller.wait(max(0.0, min(wait_end, self._due(until)) - now)), call)
        for address, request in call.left():
            waits = throttled(self._poller.throttled_s(self._links[address].handle)) if address in self._links else ""
            answers[address, request] = Pending(
                f"no response yet from broker {_name(address)} to {name_of(request)} after {now - began:.1f} s{waits}"
            )
        return {request: answers[request] for request in call.requests}

    def keep(self, addresses: Collection[Address]) -> None:
        """Reset the connections to all addresses but these, because they no longer belong to a broker."""
        for address in self._links.keys() - frozenset(addresses):
            self._poller.drop(self._links.pop(address).handle, reset=True)

    def close(self) -> None:
        self._poller.close()
        self._links.clear()

    def _send(self, call: _Call, until: float, ceiling: int | None) -> None:
        """Send the requests that are neither in flight nor answered."""
        now = self._clock()
        pending: dict[Address, set[_Sent]] = {}
        for address, request in call.requests:
            link = self._links.get(address)
            if link is None:
                link = self._links[address] = _BrokerLink(self._poller.connect(*address, "fanout"))
            if address not in pending:
                pending[address] = link.pending(now)
            asked = _Sent(request, call.epoch)
            if asked not in pending[address]:
                due = until + self._poller.throttled_s(link.handle)
                link.asked[self._poller.send(link.handle, request, ceiling=ceiling)] = asked, due
                link.due = min(link.due, due)

    def _take(self, events: list[Event], call: _Call) -> None:
        """Handle events: keep responses, and fail the requests of failed connections at once."""
        by_handle = {link.handle: address for address, link in self._links.items()}
        for event in events:
            address = by_handle.get(event.handle)
            link = None if address is None else self._links.get(address)
            if address is None or link is None:
                continue
            match event:
                case ConnectionReady():
                    link.connected = True
                case ResponseReceived():
                    asked, until = link.asked.pop(event.correlation_id)
                    link.responses[asked] = event.response, until
                    if event.throttle_s:
                        link.delay(event.throttle_s)
                case ConnectionIdle():
                    del self._links[address]
                case ConnectionLost():
                    del self._links[address]
                    if link.asked and not isinstance(event.error, TransportError):
                        raise event.error
                    call.take(address, link)
                    call.fail(address, event.error, link.first if link.connected else None)

    def _drop_overdue(self, call: _Call) -> None:
        """Reset connections with an overdue response, which might later be taken for that of another request (R18)."""
        now = self._clock()
        for address, link in tuple(self._links.items()):
            if now < link.due:
                continue
            names = sorted({name_of(asked.request) for asked, until in link.asked.values() if now >= until})
            link.due = min((until for _, until in link.asked.values()), default=inf)
            if names:
                self._poller.drop(link.handle, reset=True)
                del self._links[address]
                error = TransportError(f"no response from broker {_name(address)} to {', '.join(names)} in time")
                call.fail(address, error)

    def _due(self, until: float) -> float:
        return min((link.due for link in self._links.values()), default=until)


def _name(address: Address) -> str:
    return f"{address[0]}:{address[1]}"
