"""Samples the logs where batches begin, for the estimate of the bytes of a batch (`maxBytesPerTrigger`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING

from streamgroup.cluster.interface import kafka_of
from streamgroup.cluster.samples import LogSample
from streamgroup.errors import StreamGroupError
from streamgroup.model import LogRange, Position, TopicPartition
from streamgroup.planning.record_sizes import RecordSizes

if TYPE_CHECKING:
    from streamgroup.driver.logs.watcher import LogWatcher

SAMPLE_TIMEOUT_S = 2.0
"""How long leaders have to answer; the next plan asks again. Other callers need the watcher meanwhile."""

Samples = dict[TopicPartition, LogSample]


class SizeSamples:
    """Asks leaders for samples, one question at a time. Only Spark's thread uses it."""

    def __init__(self, watcher: LogWatcher) -> None:
        self._watcher = watcher
        self._sizes = RecordSizes()
        self._question: tuple[Mapping[TopicPartition, int], Future[Samples]] | None = None

    def ask(
        self, positions: Mapping[TopicPartition, Position], logs: Mapping[TopicPartition, LogRange], wait: float
    ) -> None:
        """Sample the logs that have records at `positions`, and wait at most `wait` seconds for the answers."""
        wanted = self._sizes.wanted({tp: position.offset for tp, position in positions.items()})
        wanted = {tp: at for tp, at in wanted.items() if tp in logs and logs[tp].earliest <= at < logs[tp].latest}
        if wanted and self._question is None:
            answer = self._watcher.post(
                lambda cluster, deadline: kafka_of(cluster, deadline).samples(wanted, deadline), SAMPLE_TIMEOUT_S
            )
            self._question = wanted, answer
        if self._question is not None:
            self._collect(*self._question, wait)

    def _collect(self, asked: Mapping[TopicPartition, int], answer: Future[Samples], wait: float) -> None:
        try:
            samples = answer.result(wait)
        except FutureTimeoutError:
            return  # the answer is still pending
        except StreamGroupError:
            samples = {}  # the estimate goes without: the tasks of the batch report what is wrong with a log
        finally:
            if answer.done():
                self._question = None
        for tp, (size, offsets) in samples.items():
            self._sizes.add(tp, asked[tp], size, offsets)

    def densities(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the estimated bytes of `record_sizes.UNIT` offsets of each partition."""
        return self._sizes.densities(partitions)
