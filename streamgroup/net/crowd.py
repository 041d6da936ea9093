"""Many brokers asked at once by one thread, none of which holds up the others.

Each has a connection of its own, made while others already answer. Who asks waits no longer than it has patience for;
a broker that is late stays asked, and its answer is taken by the next call that asks the same of it. So a broker that
is always slower than the patience is heard all the same, one call later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from streamgroup.errors import TransportError
from streamgroup.net.poller import Broken, Event, Handle, Poller, Received
from streamgroup.options.types import ClientOptions
from streamgroup.wire.schema import Message, Request

R = TypeVar("R", bound=Message)
Address = tuple[str, int]


class Late(TransportError):
    """No answer yet; it is waited for."""


class _Question(NamedTuple):
    request: Request[Any]
    era: int


@dataclass(slots=True)
class _Line:
    """One broker's connection: what it was asked and until when, and late answers that nobody has taken yet."""

    handle: Handle
    asked: dict[int, tuple[_Question, float]] = field(default_factory=dict)
    """By correlation id."""
    kept: dict[_Question, tuple[Any, float]] = field(default_factory=dict)

    def knows(self, question: _Question) -> bool:
        return question in self.kept or any(each == question for each, _ in self.asked.values())


class Crowd:
    """See the module. Used by one thread."""

    def __init__(self, options: ClientOptions, clock: Callable[[], float]) -> None:
        self._options = options
        self._clock = clock
        self._poller = Poller(options, clock)
        self._lines: dict[Address, _Line] = {}

    def ask(
        self,
        requests: Mapping[Address, Request[R]],
        deadline: float,
        *,
        patience: float | None = None,
        ceiling: int | None = None,
        era: int = 0,
    ) -> dict[Address, R | TransportError]:
        """One attempt at each: what it answered, or why it did not.

        An attempt takes `request_timeout_ms` at most. After `patience` seconds (none: when the attempts are over) those
        that have not answered are `Late`; their answers count for the next call of the same `era`. Raises whatever else
        is wrong with a broker: UnsupportedVersionError, DecodeError, BrokerError where it refuses the handshake.
        """
        began = self._clock()
        until = min(deadline, began + self._options.request_timeout_ms / 1000)
        enough = until if patience is None else min(until, began + patience)
        answers: dict[Address, R | TransportError] = {}
        self._take(self._poller.wait(0), {})  # idle connections that have ended, answers that came late
        for address, request in requests.items():
            self._put(address, _Question(request, era), until, ceiling)
        while True:
            self._take_kept(requests, era, answers)
            self._drop_overdue(answers)
            now = self._clock()
            if requests.keys() <= answers.keys() or now >= enough:
                break
            self._take(self._poller.wait(max(0.0, min(enough, self._due(until)) - now)), answers)
        for address, request in requests.items():
            if address not in answers:
                answers[address] = Late(
                    f"{_name(address)}: no answer to {request.NAME} after {now - began:.1f} s; it is waited for"
                )
        return {address: answers[address] for address in requests}

    def close(self) -> None:
        """Close all connections."""
        self._poller.close()
        self._lines.clear()

    def _put(self, address: Address, question: _Question, until: float, ceiling: int | None) -> None:
        """Ask, unless the same is asked already or has been answered since."""
        line = self._lines.get(address)
        if line is None:
            line = self._lines[address] = _Line(self._poller.connect(*address, "crowd"))
        now = self._clock()
        line.kept = {asked: kept for asked, kept in line.kept.items() if now < kept[1]}
        if not line.knows(question):
            line.asked[self._poller.send(line.handle, question.request, ceiling=ceiling)] = question, until

    def _take(self, events: list[Event], answers: dict[Address, Any]) -> None:
        """What has come: answers are kept, and why there will be none goes to `answers`."""
        by_handle = {line.handle: address for address, line in self._lines.items()}
        for event in events:
            address = by_handle.get(event.handle)
            line = None if address is None else self._lines.get(address)
            if address is None or line is None:
                continue
            match event:
                case Received():
                    question, until = line.asked.pop(event.correlation_id)
                    line.kept[question] = event.response, until
                case Broken():
                    del self._lines[address]
                    if line.asked and not isinstance(event.error, TransportError):
                        raise event.error
                    answers[address] = event.error

    def _take_kept(
        self, requests: Mapping[Address, Request[R]], era: int, answers: dict[Address, R | TransportError]
    ) -> None:
        for address, request in requests.items():
            line = self._lines.get(address)
            question = _Question(request, era)
            if address not in answers and line is not None and question in line.kept:
                answers[address] = line.kept.pop(question)[0]

    def _drop_overdue(self, answers: dict[Address, Any]) -> None:
        """Reset connections with an answer that is overdue: nothing that comes later may be mistaken (R18)."""
        now = self._clock()
        for address, line in tuple(self._lines.items()):
            names = sorted({asked.request.NAME for asked, until in line.asked.values() if now >= until})
            if names:
                self._poller.drop(line.handle, reset=True)
                del self._lines[address]
                answers.setdefault(
                    address, TransportError(f"{_name(address)}: no answer to {', '.join(names)} in time")
                )

    def _due(self, until: float) -> float:
        return min((due for line in self._lines.values() for _, due in line.asked.values()), default=until)


def _name(address: Address) -> str:
    return f"{address[0]}:{address[1]}"
