"""The brokers that keep the offsets of a group in ZooKeeper: `kafka.offsets.storage=kafka`, as a process asks them.

`OffsetsBroker` is the coordinator of the offsets, which moves between three nodes. It takes commits of no member only.
`BrokerCalls` are one thread's connections to these nodes. `SimOffsetsThread` is the real `OffsetsThread` with its
queue, its epochs and its answers, in simulated time instead of a thread.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Never

from streamgroup.coordinator.threads.registry_thread import OffsetsThread
from streamgroup.errors import StreamGroupError, TransportError
from streamgroup.group.events import Lane, Send
from streamgroup.group.offsets.store import Answer
from streamgroup.kafka.cluster.interface import Cluster
from streamgroup.kafka.cluster.kafka import ANY, KafkaCluster
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest
from streamgroup.options.types import ClientOptions
from tests.fakes.offsets import offsets_in
from tests.sim.broker import SimBroker
from tests.sim.clock import Act, SimulatedClock, Sleep, Steps, Until
from tests.sim.network import Line, Network, Sender
from tests.sim.settings import GROUP_ID, Settings

if TYPE_CHECKING:
    from tests.sim.broker import Logs
    from tests.sim.process import Process
    from tests.sim.registry import SimRegistry

BACKOFF_S = 0.2
FOREVER_S = 1e9
_OPTIONS = ClientOptions((("node-0", 9092),))


class OffsetsBroker(SimBroker):
    """The coordinator of the offsets. Its group has no members; `registry` judges each commit that is accepted."""

    def __init__(self, clock: SimulatedClock, logs: Logs, registry: SimRegistry) -> None:
        super().__init__(clock, logs, registry.checker, Settings((), join_version=0))
        self._registry = registry

    @property
    def is_available(self) -> bool:
        """Whether a request to the coordinator is answered well."""
        return self.clock.now >= self.loaded_at

    def accepted(self, sender: Sender, request: OffsetCommitRequest) -> None:
        assert isinstance(sender, BrokerCalls), "only a process sends requests"
        offsets = {tp: row.offset for tp, row in offsets_in(request).items()}
        self._registry.stored(sender.process, offsets, *sender.times_of(request))


# -- calls -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of the cluster that has no answer yet."""

    kind: type[Any]
    make: Callable[[int], Any]
    node: Any
    keep_trying: bool


class _Wanted(BaseException):
    """The real code has come to a call, or to a wait before the next attempt. Not an Exception: it catches those."""

    def __init__(self, call: _Call | None, cause: object = "") -> None:
        super().__init__()
        self.call = call
        self.cause = cause


class _AnsweredCluster(KafkaCluster):
    """The real cluster with the answers so far. It raises `_Wanted` where the next one is needed.

    So the real code runs once more from its beginning after each answer, up to the next call. It has no effect before
    its end but calls.
    """

    def __init__(self, clock: SimulatedClock, answers: Sequence[Any]) -> None:
        super().__init__(_OPTIONS, clock=lambda: clock.now)
        self._answers: Iterator[Any] = iter(answers)

    def call_versioned(self, kind: Any, make: Any, node: Any, deadline: float, **how: Any) -> Any:
        return self._next(_Wanted(_Call(kind, make, node, how.get("keep_trying", True))))

    def retry(self, what: str, deadline: float) -> Any:
        return self

    def again(self, cause: str | Exception) -> None:
        """As `Retry.again`."""
        self._next(_Wanted(None, cause))

    def _next(self, wanted: _Wanted) -> Any:
        for answer in self._answers:
            if isinstance(answer, Exception):
                raise answer
            return answer
        raise wanted


class BrokerCalls:
    """One thread's connections to the brokers, and its calls over them."""

    def __init__(self, process: Process, network: Network, broker: SimBroker) -> None:
        self.process = process
        self.name = process.name
        self.fragile = False
        """The connection breaks soon after the next request."""
        self.made_at = 0.0
        """When the member made the request that is carried out."""
        self._network = network
        self._clock = network.clock
        self._broker = broker
        self._tokens = itertools.count()
        self._lines: dict[int, Line] = {}
        """By node."""
        self._answers: dict[int, Any] = {}
        """By token: the response, or the TransportError of a connection that has failed."""
        self._sent: dict[int, tuple[Any, float, float]] = {}
        """By the identity of a commit: the commit, when its member made it, when it was sent."""

    def run(self, question: Callable[[Cluster], Any], until: float) -> Steps:
        """Return what `question` returns of the real cluster; calls end at `until`."""
        answers: list[Any] = []
        while True:
            try:
                return question(_AnsweredCluster(self._clock, answers))
            except _Wanted as wanted:
                now = wanted
            try:
                answers.append((yield from self._carry_out(now, until)))
            except Exception as error:
                answers.append(error)

    def times_of(self, request: OffsetCommitRequest) -> tuple[float, float]:
        """When a commit was made, and when it was sent."""
        _, made_at, sent_at = self._sent[id(request)]
        return made_at, sent_at

    def _carry_out(self, wanted: _Wanted, until: float) -> Steps:
        call, cause = wanted.call, wanted.cause
        while call is not None:
            try:
                return (yield from self._call(call, until))
            except TransportError as error:
                if not call.keep_trying:
                    raise
                cause = error
            yield from self._back_off(cause, until)
        yield from self._back_off(cause, until)
        return None

    def _back_off(self, cause: object, until: float) -> Steps:
        wait = BACKOFF_S * (0.8 + 0.4 * self._network.chance())
        if self._clock.now + wait >= until:
            raise TransportError(str(cause))
        yield Sleep(wait)

    def _call(self, call: _Call, until: float) -> Steps:
        token, is_any = next(self._tokens), call.node == ANY
        node = 0 if is_any else call.node.node_id
        line = self._lines.get(node)
        if line is None or not line.open:
            lane = Lane.ANY if is_any else Lane.COORDINATOR
            line = self._lines[node] = Line(self._network, self._broker, self, lane, node)
        line.send(Send(token, line.lane, call.kind, partial(self._built, call.make), 0))
        if self.fragile:
            self.fragile = False
            soon = 3 * self._network.latency() * self._network.chance()
            self._clock.after(soon, partial(line.break_, "connection reset by peer"))
        yield Until(lambda: token in self._answers, until - self._clock.now)
        if token not in self._answers:
            self._lines.pop(node, line).abandon(reset=True)
            raise TransportError("no answer in time")
        answer = self._answers.pop(token)
        if isinstance(answer, TransportError):
            raise answer
        return self._broker.version(call.kind), answer

    def _built(self, make: Callable[[int], Any], version: int) -> Any:
        request = make(version)
        if isinstance(request, OffsetCommitRequest):
            self._sent[id(request)] = request, self.made_at, self._clock.now
        return request

    # -- as the sender of a connection --------------------------------------------------------------------------------

    def hear(self, act: Act) -> None:
        self.process.hear(act)

    def answered(self, line: Line, token: int, response: Any) -> None:
        if line.unanswered.pop(token, None) is not None:
            self._answers[token] = response

    def broken(self, line: Line, reason: str) -> None:
        self._answers |= dict.fromkeys(line.unanswered, TransportError(reason))

    def came_late(self) -> None:
        """A request that arrives late puts nobody out: the brokers know of no member."""

    # -- faults -------------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        for line in self._lines.values():
            line.heal()

    def stall(self, seconds: float, *, answers_only: bool) -> None:
        for line in self._lines.values():
            line.stall(seconds, answers_only=answers_only)

    def break_off(self, node: int | None = None) -> None:
        """The connections break: that to `node`, or all."""
        for line in tuple(self._lines.values()):
            if node is None or line.node == node:
                line.break_("connection reset by peer")

    def close(self) -> None:
        """The process is gone: what was written still arrives, or not."""
        for line in self._lines.values():
            line.abandon(reset=False)
        self._lines.clear()


class SimOffsetsThread(OffsetsThread):
    """See the module. `made_at` says when the member made a request, by its token."""

    def __init__(
        self,
        calls: BrokerCalls,
        made_at: Callable[[int], float],
        answered: Callable[[Answer], None],
        failed: Callable[[StreamGroupError], None],
    ) -> None:
        super().__init__(_OPTIONS, GROUP_ID, answered, failed)
        self.calls = calls
        self._made_at = made_at

    def start(self) -> Never:
        raise AssertionError("a simulated thread runs `steps`")

    def steps(self, clock: SimulatedClock) -> Steps:
        """Carry requests out one after the other, as `_run` does."""
        while True:
            yield Until(lambda: not self._queue.empty(), FOREVER_S)
            queued = self._queue.get_nowait()
            if queued is None:
                return
            if not self._is_withdrawn(queued):
                request = queued.request
                self.calls.made_at = self._made_at(request.token)
                until = clock.now + request.timeout_ms / 1000
                yield from self.calls.run(lambda cluster, queued=queued: self._serve(cluster, queued), until)  # type: ignore[misc]
