"""Answers the run's questions: with the watcher's cluster, with the group's store, or from what is known already."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from streamgroup.cluster.interface import Cluster
from streamgroup.driver.application.claims import Claim
from streamgroup.driver.batch_read import log_ends, tasks_of
from streamgroup.driver.log_output import NOTES
from streamgroup.driver.logs.checks import LogChecks
from streamgroup.driver.logs.watcher import LogWatcher
from streamgroup.driver.membership.group_backend import GroupBackend
from streamgroup.model import ClusterSnapshot
from streamgroup.net.resolve import require_resolvable
from streamgroup.options.types import SourceOptions
from streamgroup.planning.subscription import of_interest, require_columns
from streamgroup.run import interface as ask
from streamgroup.run.planner import Planner

log = logging.getLogger("streamgroup")


class QuestionAnswerer:
    """Answers the questions of one run. `answer` may wait for brokers, `post` never waits."""

    def __init__(
        self,
        options: SourceOptions,
        *,
        watcher: LogWatcher,
        backend: GroupBackend,
        checks: LogChecks,
        planner: Planner,
        claim: Claim | None,
        is_stopped: Callable[[], bool],
    ) -> None:
        self._options = options
        self._watcher = watcher
        self._backend = backend
        self._checks = checks
        self._planner = planner
        self._claim = claim
        self._is_stopped = is_stopped
        self._timeout_s = options.client.default_api_timeout_ms / 1000

    def answer(self, question: ask.Question) -> object:
        """Answer a question of a call. Called without a lock."""
        answer: object = None
        match question:
            case ask.Connect(topics):
                answer = self._connect(topics)
            case ask.ReadMetadata(topics):
                answer = self._snapshot(topics, self._timeout_s)
            case ask.SnapshotEnds():
                subscription, isolation = self._options.subscription, self._options.fetch.isolation
                answer = self._watcher.ask(
                    lambda cluster, deadline: log_ends(cluster, deadline, subscription, isolation), self._timeout_s
                )
            case ask.ListEnds(positions, timeout):
                answer = self._watcher.ends(positions, timeout)
            case ask.CheckPositions(positions, logs, limits, timeout):
                self._checks.ask(positions, logs, limits, self._planner.targets, timeout)
            case ask.FetchCommitted(timeout, wanted):
                answer = self._backend.committed(timeout, wanted)
            case ask.MakeFetchTasks(document, ranges, packed):
                logs = self._watcher.known([r.partition for r in ranges])
                snapshot, options = self._watcher.snapshot, self._options
                answer = tasks_of(ranges, snapshot, options, document.positions, logs, packed_offsets=packed)
            case _:
                raise AssertionError(f"no call asks {question}")
        return answer

    def post(self, question: ask.Question) -> Future[Any]:
        """Have a question of a background task answered by the thread of the watcher or of the registry."""
        match question:
            case ask.ListOffsets(wanted, timeout):
                isolation = self._options.fetch.isolation
                return self._watcher.post(
                    lambda cluster, deadline: cluster.list_offsets(wanted, isolation, deadline), timeout
                )
            case ask.DescribeGroup(timeout):
                return self._backend.described(timeout)
        raise AssertionError(f"no background task asks {question}")

    def _connect(self, topics: frozenset[str] | None) -> ClusterSnapshot:
        options = self._options
        group = options.group
        assert group is not None, "options of a batch read"
        if self._claim is not None and group.is_member:
            self._claim.take(self._is_stopped)
        NOTES.log(options.notes, group.group_id or "no group")
        left = require_resolvable(options.client.bootstrap_servers, self._timeout_s)
        self._watcher.start()
        snapshot = self._snapshot(topics, max(1.0, left))
        require_columns(options.fetch, snapshot)
        self._backend.opened(snapshot.dialect)
        self._backend.thread.start()
        return snapshot

    def _snapshot(self, topics: frozenset[str] | None, timeout: float) -> ClusterSnapshot:
        def read(cluster: Cluster, deadline: float) -> ClusterSnapshot:
            snapshot = cluster.snapshot(topics, deadline, refresh=True)
            # Here, in the watcher's thread, it cannot replace a newer one.
            self._watcher.snapshot = of_interest(snapshot, self._options.subscription, ())
            return snapshot

        return self._watcher.ask(read, timeout)
