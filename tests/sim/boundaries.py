"""How a process finds message boundaries of Kafka 0.7: the real checks and scans, over the bytes of simulated logs.

`SimWatcher` stands for the watcher of the logs, to whose thread `LogChecks` gives its scans. The cluster and its scan
are the real ones up to the requests: a FETCH is answered with the log's bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, cast

from streamgroup.cluster.boundary_scan import BoundaryScan
from streamgroup.cluster.kafka07 import Kafka07Cluster
from streamgroup.errors import StreamGroupError, TransportError
from streamgroup.logformat import partition_number
from streamgroup.model import ClusterSnapshot, TopicPartition
from streamgroup.options.types import ClientOptions
from streamgroup.wire.kafka07 import ErrorCode07, FetchRequest07, FetchResponse07
from tests.sim.bytelogs import Logs07

if TYPE_CHECKING:
    from tests.sim.process import Process

_OPTIONS = ClientOptions(())


class _Fanout:
    """Answers the FETCHes of a scan; a broker that is away does not answer."""

    def __init__(self, logs: Logs07) -> None:
        self._logs = logs

    def call_all(self, requests: Collection[Any], deadline: float, timeout: float = 0.0) -> dict[Any, Any]:
        return {each: self._fetched(*each) for each in requests}

    def _fetched(self, address: tuple[str, int], fetch: FetchRequest07) -> FetchResponse07 | TransportError:
        broker = int(address[0].removeprefix("b"))
        if broker in self._logs.away:
            return TransportError(f"broker {broker} does not answer")
        tp = TopicPartition(fetch.topic, partition_number(broker, fetch.partition))
        records = self._logs.fetch(tp, fetch.offset, fetch.max_size)
        if records is None:
            return FetchResponse07(ErrorCode07.OFFSET_OUT_OF_RANGE)
        return FetchResponse07(ErrorCode07.NO_ERROR, records)


class _Cluster07(Kafka07Cluster):
    """The real cluster, which knows the brokers and topics that its process has read last."""

    def __init__(self, process: Process, logs: Logs07) -> None:
        super().__init__(_OPTIONS, cast("Any", None), clock=lambda: process.clock.now)
        self._process = process
        self._scan = BoundaryScan(_OPTIONS, self.clock)
        self._scan._fanout = cast("Any", _Fanout(logs))

    def snapshot(self, topics: Collection[str] | None, deadline: float, refresh: bool = False) -> ClusterSnapshot:
        return self._process.logs.snapshot


class SimWatcher:
    """See the module; it has the part of `LogWatcher` that `LogChecks` uses."""

    def __init__(self, process: Process) -> None:
        self._process = process
        logs = process.world.logs
        self._cluster = _Cluster07(process, logs) if isinstance(logs, Logs07) else None
        self._unanswered = 0

    @property
    def is_free(self) -> bool:
        """Whether every scan is answered."""
        return not self._unanswered

    @property
    def snapshot(self) -> ClusterSnapshot:
        return self._process.logs.snapshot

    @property
    def known_since(self) -> tuple[object, object]:
        return self._process.logs.known_since

    def leader_epochs(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return self._process.logs.leader_epochs(partitions)

    def post(self, question: Callable[[Any, float], Any], timeout: float) -> Future[Any]:
        """As `LogWatcher.post`: answered a round trip later, or failed after `timeout` seconds."""
        process, answer = self._process, Future[Any]()
        clock, network = process.clock, process.network
        self._unanswered += 1
        due, until = max(clock.now, network.cut_until) + 2 * network.latency(), clock.now + timeout

        def answered() -> None:
            self._unanswered -= 1
            try:
                if due > until:
                    raise TransportError(f"no answer within {timeout:g} s")
                answer.set_result(question(self._cluster, until))
            except StreamGroupError as error:
                answer.set_exception(error)

        process.later(min(due, until) - clock.now, answered)
        return answer
