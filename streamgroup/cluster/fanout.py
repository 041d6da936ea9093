"""Many brokers asked at once by one thread, none of which holds up the others.

Each has a connection of its own, made while others already answer. Who asks waits no longer than it has timeout for;
a broker that is late stays asked, and its answer is taken by the next call that asks the same of it. So a broker that
is always slower than the timeout is heard all the same, one call later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple, TypeVar

from streamgroup.errors import StreamGroupError, TransportError
from streamgroup.model import Dialect
from streamgroup.net.link import AnyRequest, name_of
from streamgroup.net.poller import Broken, Connected, Event, Handle, Poller, Received
from streamgroup.options.types import ClientOptions
from streamgroup.wire.schema import Message, Request

R = TypeVar("R", bound=Message)
Address = tuple[str, int]
Question = tuple[Address, AnyRequest]


class Pending(TransportError):
    """No answer yet; it is waited for."""


class Unsent(TransportError):
    """The connection ended at an earlier question: what became of it says nothing of this one."""


class _Asked(NamedTuple):
    request: AnyRequest
    epoch: int


@dataclass(slots=True)
class _Line:
    """One broker's connection: what it was asked and until when, and late answers that nobody has taken yet."""

    handle: Handle
    connected: bool = False
    asked: dict[int, tuple[_Asked, float]] = field(default_factory=dict)
    """By correlation id, the oldest first."""
    kept: dict[_Asked, tuple[Any, float]] = field(default_factory=dict)
    """Bounded: the next call that asks this broker drops those whose time is over; without one none is added."""
    due: float = inf
    """No answer is overdue before. What was asked is looked through only then: there may be thousands of questions."""

    def known(self, now: float) -> set[_Asked]:
        """What is asked or answered; answers that nobody has taken in their time go."""
        self.kept = {asked: kept for asked, kept in self.kept.items() if now < kept[1]}
        return self.kept.keys() | {asked for asked, _ in self.asked.values()}

    @property
    def first(self) -> AnyRequest | None:
        """What the broker was to answer next."""
        return next((asked.request for asked, _ in self.asked.values()), None)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What one call asks, and what it has heard."""

    questions: dict[Question, None]
    """In their order."""
    epoch: int
    answers: dict[Question, Any]

    def left(self) -> list[Question]:
        """What has no answer yet."""
        return [question for question in self.questions if question not in self.answers]

    def take(self, address: Address, line: _Line) -> None:
        """Take the answers that were kept."""
        for asked in tuple(line.kept):
            question = address, asked.request
            if asked.epoch == self.epoch and question in self.questions and question not in self.answers:
                self.answers[question] = line.kept.pop(asked)[0]

    def fail(self, address: Address, error: StreamGroupError, culprit: AnyRequest | None = None) -> None:
        """Nothing more comes from there. With `culprit` the connection ended at that question."""
        for question in self.left():
            if question[0] == address:
                behind = culprit is not None and question[1] != culprit
                self.answers[question] = Unsent(f"{error} (before this was answered)") if behind else error


class BrokerFanout:
    """See the module. Used by one thread."""

    def __init__(self, options: ClientOptions, clock: Callable[[], float], dialect: Dialect = Dialect.KAFKA) -> None:
        self._options = options
        self._clock = clock
        self._poller = Poller(options, clock, dialect)
        self._lines: dict[Address, _Line] = {}
        """One a broker; it goes with its connection, and when the broker is none any more (`keep`)."""

    def call_each(
        self,
        requests: Mapping[Address, Request[R]],
        deadline: float,
        *,
        timeout: float | None = None,
        ceiling: int | None = None,
        epoch: int = 0,
    ) -> dict[Address, R | TransportError]:
        """One attempt at each: what it answered, or why it did not.

        An attempt takes `request_timeout_ms` at most. After `timeout` seconds (none: when the attempts are over) those
        that have not answered are `Pending`; their answers count for the next call of the same `epoch`. Raises whatever
        else is wrong with a broker: UnsupportedVersionError, DecodeError, BrokerError where it refuses the handshake.
        """
        found = self.call_all(requests.items(), deadline, timeout=timeout, ceiling=ceiling, epoch=epoch)
        return {address: answer for (address, _), answer in found.items()}

    def call_all(
        self,
        questions: Collection[Question],
        deadline: float,
        *,
        timeout: float | None = None,
        ceiling: int | None = None,
        epoch: int = 0,
    ) -> dict[Question, Any]:
        """`ask` where one broker may be asked many things, one behind the other in the order given.

        Where the connection ends, the first question without an answer has the error, those behind it are `Unsent`.
        """
        began = self._clock()
        until = min(deadline, began + self._options.request_timeout_ms / 1000)
        enough = until if timeout is None else min(until, began + timeout)
        answers: dict[Question, Any] = {}
        wanted = _Wanted(dict.fromkeys(questions), epoch, answers)
        self._take(self._poller.wait(0), _Wanted({}, epoch, {}))  # connections that have ended, answers that came late
        self._put(wanted, until, ceiling)
        while True:
            for address, line in self._lines.items():
                wanted.take(address, line)
            self._drop_overdue(wanted)
            now = self._clock()
            if len(answers) == len(wanted.questions) or now >= enough:
                break
            self._take(self._poller.wait(max(0.0, min(enough, self._due(until)) - now)), wanted)
        for address, request in wanted.left():
            answers[address, request] = Pending(
                f"{_name(address)}: no answer to {name_of(request)} after {now - began:.1f} s; it is waited for"
            )
        return {question: answers[question] for question in wanted.questions}

    def keep(self, addresses: Collection[Address]) -> None:
        """Reset the connections to all other addresses: they no longer belong to a broker."""
        for address in self._lines.keys() - frozenset(addresses):
            self._poller.drop(self._lines.pop(address).handle, reset=True)

    def close(self) -> None:
        """Close all connections."""
        self._poller.close()
        self._lines.clear()

    def _put(self, wanted: _Wanted, until: float, ceiling: int | None) -> None:
        """Ask, unless the same is asked already or has been answered since."""
        now = self._clock()
        known: dict[Address, set[_Asked]] = {}
        for address, request in wanted.questions:
            line = self._lines.get(address)
            if line is None:
                line = self._lines[address] = _Line(self._poller.connect(*address, "fanout"))
            if address not in known:
                known[address] = line.known(now)
            asked = _Asked(request, wanted.epoch)
            if asked not in known[address]:
                line.asked[self._poller.send(line.handle, request, ceiling=ceiling)] = asked, until
                line.due = min(line.due, until)

    def _take(self, events: list[Event], wanted: _Wanted) -> None:
        """What has come: answers are kept, and why there will be none is told at once."""
        by_handle = {line.handle: address for address, line in self._lines.items()}
        for event in events:
            address = by_handle.get(event.handle)
            line = None if address is None else self._lines.get(address)
            if address is None or line is None:
                continue
            match event:
                case Connected():
                    line.connected = True
                case Received():
                    asked, until = line.asked.pop(event.correlation_id)
                    line.kept[asked] = event.response, until
                case Broken():
                    del self._lines[address]
                    if line.asked and not isinstance(event.error, TransportError):
                        raise event.error
                    wanted.take(address, line)
                    wanted.fail(address, event.error, line.first if line.connected else None)

    def _drop_overdue(self, wanted: _Wanted) -> None:
        """Reset connections with an answer that is overdue: nothing that comes later may be mistaken (R18)."""
        now = self._clock()
        for address, line in tuple(self._lines.items()):
            if now < line.due:
                continue
            names = sorted({name_of(asked.request) for asked, until in line.asked.values() if now >= until})
            line.due = min((until for _, until in line.asked.values()), default=inf)
            if names:
                self._poller.drop(line.handle, reset=True)
                del self._lines[address]
                wanted.fail(address, TransportError(f"{_name(address)}: no answer to {', '.join(names)} in time"))

    def _due(self, until: float) -> float:
        return min((line.due for line in self._lines.values()), default=until)


def _name(address: Address) -> str:
    return f"{address[0]}:{address[1]}"
