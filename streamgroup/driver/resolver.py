"""Finds start offsets of gained partitions for which neither the group nor the checkpoint has one."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future

from streamgroup.cluster.interface import Cluster
from streamgroup.driver.logs.watcher import LogWatcher
from streamgroup.driver.starts import gained_offsets, refuse
from streamgroup.errors import StreamGroupError, TransportError
from streamgroup.group.member import Resolve
from streamgroup.group.positions import Origin
from streamgroup.model import TopicPartition
from streamgroup.options.types import SourceOptions
from streamgroup.remediation import OffsetLocation
from streamgroup.run.run_events import Loss

log = logging.getLogger("streamgroup")

Found = tuple[dict[TopicPartition, int], list[Loss]]


class Resolver:
    """Asks the watcher, and retries `fetchOffset.numRetries` times. The callbacks are called in the watcher's thread.

    `report` takes losses of records, and whether they end the query. `is_new` returns whether a partition was created
    after the run began: `startingOffsets` does not apply to it (R7).
    """

    def __init__(
        self,
        options: SourceOptions,
        location: OffsetLocation,
        watcher: LogWatcher,
        report: Callable[[Collection[Loss], bool], None],
        *,
        on_found: Callable[[int, dict[TopicPartition, int]], None],
        on_failed: Callable[[int, StreamGroupError], None],
        is_new: Callable[[TopicPartition], bool] = lambda tp: False,
    ) -> None:
        self._options = options
        self._location = location
        self._watcher = watcher
        self._report = report
        self._on_found = on_found
        self._on_failed = on_failed
        self._is_new = is_new

    def resolve(self, wanted: Resolve, attempt: int = 0) -> None:
        """Ask for the start offsets of `wanted`, and return at once. Retries are calls with `attempt` above 0."""
        options = self._options
        origins = {tp: self._origin(tp, origin) for tp, origin in wanted.partitions.items()}

        def question(cluster: Cluster, deadline: float) -> Found:
            return gained_offsets(
                cluster,
                deadline,
                group=self._location.group,
                spec=options.starting,
                origins=origins,
                isolation=options.fetch.isolation,
            )

        answer = self._watcher.post(question, options.client.default_api_timeout_ms / 1000)
        answer.add_done_callback(lambda done: self._answered(wanted, attempt, done))

    def _origin(self, tp: TopicPartition, origin: Origin) -> Origin:
        return Origin.EARLIEST if origin is Origin.STARTING and self._is_new(tp) else origin

    def _answered(self, wanted: Resolve, attempt: int, answer: Future[Found]) -> None:
        try:
            self._take(wanted, attempt, answer)
        except Exception as error:  # a Future would only log it, and the query would wait for ever
            log.exception("taking the starting offsets has failed")
            self._on_failed(wanted.generation, StreamGroupError(repr(error)))

    def _take(self, wanted: Resolve, attempt: int, answer: Future[Found]) -> None:
        error = answer.exception()
        if error is None:
            offsets, losses = answer.result()
            failed = bool(losses) and self._options.fail_on_data_loss
            self._report(losses, failed)
            if failed:
                self._on_failed(wanted.generation, refuse(self._location, losses))
            else:
                self._on_found(wanted.generation, offsets)
        elif isinstance(error, TransportError) and attempt < self._options.fetch_offset_retries:
            log.warning("%s: starting offsets not found, asking again: %s", self._location.group or "no group", error)
            delay = self._options.fetch_offset_retry_interval_ms / 1000
            timer = threading.Timer(delay, self.resolve, [wanted, attempt + 1])
            timer.daemon = True
            timer.start()
        else:
            known = error if isinstance(error, StreamGroupError) else StreamGroupError(repr(error))
            self._on_failed(wanted.generation, known)
