"""The thread that asks brokers for the offsets of a group whose members ZooKeeper keeps (R35).

It carries out `AskKafka` of `RegisteredKafkaStore` and `DualOffsetStore`. It is a thread of its own because a slow
broker must not keep the member from its session.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from queue import SimpleQueue

from streamgroup.cluster.admin import committed
from streamgroup.cluster.interface import Cluster, kafka_of, open_cluster
from streamgroup.cluster.kafka import KafkaCluster
from streamgroup.errors import ConfigError, ErrorCode, StreamGroupError, TransportError, error_of
from streamgroup.group.commits import NO_GENERATION
from streamgroup.group.offsets.kafka import commit_request, commit_verdicts
from streamgroup.group.offsets.store import Answer, CommitOffsets, NoAnswer, OffsetsCommitted, OffsetsFetched, Request
from streamgroup.group.reactions import offsets_error
from streamgroup.options.types import ClientOptions
from streamgroup.wire.messages.offsets import OffsetCommitRequest

log = logging.getLogger("streamgroup")

_OF_MEMBERS = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}


@dataclass(frozen=True, slots=True)
class _Queued:
    request: Request
    epoch: int


class _WithdrawnError(Exception):
    """The commit was withdrawn before it was sent."""


class OffsetsThread:
    """Asks brokers for one run. `answered` and `failed` are called in its thread."""

    def __init__(
        self,
        options: ClientOptions,
        group: str,
        answered: Callable[[Answer], None],
        failed: Callable[[StreamGroupError], None],
    ) -> None:
        self._options = options
        self._group = group
        self._answered = answered
        self._failed = failed
        self._queue: SimpleQueue[_Queued | None] = SimpleQueue()
        self._epoch = 0
        self._thread = threading.Thread(target=self._run, name="streamgroup-offsets", daemon=True)

    def start(self) -> None:
        """Begin to send requests. Requests that were taken before are kept."""
        self._thread.start()

    def take(self, request: Request) -> None:
        """Send a request to the brokers, after all earlier ones."""
        self._queue.put(_Queued(request, self._epoch))

    def withdraw(self) -> None:
        """Drop the requests that have not been sent yet, and the commit whose coordinator is still looked for.

        The lookup may take seconds. Meanwhile another member may claim the partitions, and the broker fences nobody.
        """
        self._epoch += 1

    def close(self) -> None:
        """End the thread after the pending request."""
        self.withdraw()
        self._queue.put(None)

    def _run(self) -> None:
        with closing(open_cluster(self._options)) as cluster:
            while (queued := self._queue.get()) is not None:
                if not self._is_withdrawn(queued):
                    self._serve(cluster, queued)

    def _is_withdrawn(self, queued: _Queued) -> bool:
        return queued.epoch != self._epoch

    def _serve(self, cluster: Cluster, queued: _Queued) -> None:
        """Send one request and pass its answer on, or the error that ends the query."""
        request = queued.request
        deadline = cluster.deadline(request.timeout_ms)
        try:
            answer = self._ask(kafka_of(cluster, deadline), queued, deadline)
        except _WithdrawnError:
            return
        except TransportError as error:
            answer = NoAnswer(request.token, str(error))
        except StreamGroupError as error:
            self._failed(error)
            return
        except Exception as error:  # any defect must fail the query: the member would wait for ever
            log.exception("offsets in Kafka")
            self._failed(StreamGroupError(f"group {self._group}: its offsets in Kafka: {error!r}"))
            return
        self._answered(answer)

    def _ask(self, cluster: KafkaCluster, queued: _Queued, deadline: float) -> Answer:
        request = queued.request
        if isinstance(request, CommitOffsets):
            return self._commit(cluster, request, deadline, queued.epoch)
        return OffsetsFetched(request.token, committed(cluster, self._group, deadline, in_zookeeper=False))

    def _commit(self, cluster: KafkaCluster, request: CommitOffsets, deadline: float, epoch: int) -> OffsetsCommitted:
        """Commit without a member id: the brokers do not know the members, which ZooKeeper keeps."""
        shape = commit_request(replace(request, member_id="", generation=NO_GENERATION, instance_id=None))

        def build(version: int) -> OffsetCommitRequest:  # called when the connection is there, just before it is sent
            if epoch != self._epoch:
                raise _WithdrawnError
            return shape(version)

        coordinator = cluster.coordinator(self._group, deadline)
        _, response = cluster.call_versioned(OffsetCommitRequest, build, coordinator, deadline, keep_trying=False)
        verdicts = commit_verdicts(response)
        codes = dict.fromkeys(verdict.code for verdict in verdicts.values())
        of_members = next((code for code in codes if code in _OF_MEMBERS), None)
        if of_members is not None:
            raise ConfigError(_HAS_MEMBERS.format(group=self._group, name=error_of(of_members).name))
        if ErrorCode.GROUP_ID_NOT_FOUND in codes:
            raise offsets_error(ErrorCode.GROUP_ID_NOT_FOUND, "commit", self._group)
        return OffsetsCommitted(request.token, verdicts)


_HAS_MEMBERS = (
    "group {group}: a commit to Kafka was refused ({name}): the group has members there, too, which know nothing of "
    "those in ZooKeeper. Leave out zookeeper.connect to be a member in Kafka, or stop the members there, or give "
    "this query a kafka.group.id of its own"
)
