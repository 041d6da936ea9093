"""How a process finds message boundaries of Kafka 0.7: the real scan, over the bytes of simulated logs.

The cluster and its scan are the real ones up to the requests: a FETCH is answered with the log's bytes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, cast

from streamgroup.errors import TransportError
from streamgroup.kafka.cluster.kafka07 import BoundaryScan, Kafka07Cluster
from streamgroup.kafka.wire.kafka07 import ErrorCode07, FetchRequest07, FetchResponse07
from streamgroup.logformat import partition_number
from streamgroup.model import ClusterSnapshot, TopicPartition
from streamgroup.options.types import ClientOptions
from tests.sim.bytelogs import Logs07

if TYPE_CHECKING:
    from tests.sim.clock import SimulatedClock
    from tests.sim.watcher import SimWatcher

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


class SimCluster07(Kafka07Cluster):
    """The real cluster, which knows the brokers and topics that its process has read last."""

    def __init__(self, watcher: SimWatcher, clock: SimulatedClock, logs: Logs07) -> None:
        super().__init__(_OPTIONS, cast("Any", None), clock=lambda: clock.now)
        self._watcher = watcher
        self._scan = BoundaryScan(_OPTIONS, self.clock)
        self._scan._fanout = cast("Any", _Fanout(logs))

    def snapshot(self, topics: Collection[str] | None, deadline: float, refresh: bool = False) -> ClusterSnapshot:
        return self._watcher.snapshot
