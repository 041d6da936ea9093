"""Offsets in Kafka of a group whose members ZooKeeper keeps: `kafka.offsets.storage=kafka`, 0.8.2 and later (R35).

The brokers check no generation then, so there is no fence but the one before: a commit goes to Kafka when ZooKeeper has
shown that its member is still registered; with `kafka.dual.commit.enabled` when it is committed there. What a member
that stops in between sends later is not noticed. `TwoStores` decides, pure; `KafkaOffsets` asks the brokers, in a
thread of its own: a slow one must not keep the member from its session.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any, Protocol

from streamgroup.cluster.admin import committed
from streamgroup.cluster.interface import kafka_of, open_cluster
from streamgroup.cluster.kafka import KafkaCluster
from streamgroup.errors import ConfigError, ErrorCode, StreamGroupError, TransportError, error_of
from streamgroup.group import events as ev
from streamgroup.group.reactions import offsets_error
from streamgroup.group.registry import events as zk
from streamgroup.group.registry.formats import GroupPaths
from streamgroup.group.registry.offsets import OffsetsExchange, Outcome
from streamgroup.model import CommittedOffset, TopicPartition
from streamgroup.options.types import ClientOptions
from streamgroup.wire.messages import offsets as o
from streamgroup.wire.offsets import fetched_offsets
from streamgroup.znodes import Check, Refusal

log = logging.getLogger("streamgroup")

FIRST_TOKEN = 1 << 56
"""The tokens of the checks here are above those of the exchange."""
FETCH_VERSION, COMMIT_VERSION = 7, 8
"""The shapes of the answers: topics by name, one group."""

_OF_MEMBERS = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}

Offsets = Mapping[TopicPartition, CommittedOffset]
Answers = Callable[[ev.Answered | ev.Failed], None]


class Brokers(Protocol):
    """`KafkaOffsets`, as far as it is told here what to do."""

    def take(self, send: ev.Send, in_zookeeper: ev.Answered | None) -> None:
        """Answer a request, with what ZooKeeper has answered to it."""

    def forget(self) -> None:
        """Begin nothing more of what was taken."""

    def close(self) -> None:
        """The run is over."""


class TwoStores:
    """In place of an `OffsetsExchange`, whose interface it has: which store hears of a request, and when."""

    def __init__(self, paths: GroupPaths, brokers: Brokers, *, dual: bool) -> None:
        self._paths = paths
        self._brokers = brokers
        self._dual = dual
        self._inner = OffsetsExchange(paths)
        self._tokens = itertools.count(FIRST_TOKEN)
        self._checks: dict[int, ev.Send] = {}
        """By token: commits whose member is looked for. ZooKeeper's thread answers each, and a new assignment clears
        them."""
        self._both: dict[int, ev.Send] = {}
        """By token: requests that ZooKeeper answers first; leaving clears those that are left."""

    @property
    def wake_at(self) -> float | None:
        """When `hear` wants a Tick."""
        return self._inner.wake_at

    def takes(self, event: Any) -> bool:
        """Whether `event` answers a question of ours, so that the member need not hear it."""
        return self._inner.takes(event)

    def close(self) -> None:
        """The run is over."""
        self._brokers.close()

    def carry_out(self, action: Any, now: float) -> Outcome:
        """What an action of the member's means here."""
        match action:
            case ev.Send() if self._dual:
                self._both[action.token] = action
                return self._sorted(self._inner.carry_out(action, now))
            case ev.Send(api=o.OffsetFetchRequest):
                self._brokers.take(action, None)
                return Outcome()
            case ev.Send():
                token = next(self._tokens)
                self._checks[token] = action
                member_id = action.build(COMMIT_VERSION).member_id
                return Outcome((zk.Transact(token, (Check(self._paths.consumer(member_id)),)),))
            case ev.Joining() | ev.Assigned() | ev.Lost() | ev.Left():
                self._brokers.forget()
                self._checks.clear()
                if isinstance(action, ev.Left):  # nothing that ZooKeeper was asked is answered after that
                    self._both.clear()
        return self._sorted(self._inner.carry_out(action, now))

    def hear(self, event: Any, now: float) -> Outcome:
        """An event of the registry, or a Tick."""
        answers = isinstance(event, zk.Transacted | zk.Refused | zk.Unanswered)
        send = self._checks.pop(event.token, None) if answers else None
        if send is None:
            return self._sorted(self._inner.hear(event, now))
        match event:
            case zk.Transacted():
                self._brokers.take(send, None)
                return Outcome()
            case zk.Refused(refusal=Refusal.NO_NODE):
                request = send.build(COMMIT_VERSION)
                refused = commit_answer(request, dict.fromkeys(_offsets_in(request), int(ErrorCode.UNKNOWN_MEMBER_ID)))
                return Outcome(answers=(ev.Answered(send.token, refused, COMMIT_VERSION),))
            case zk.Refused():
                return Outcome(answers=(ev.Failed(send.token, event.refusal.value),))
        return Outcome(answers=(ev.Failed(send.token, event.reason),))

    def _sorted(self, outcome: Outcome) -> Outcome:
        """What ZooKeeper has answered well goes on to the brokers."""
        told = []
        for answer in outcome.answers:
            send = self._both.pop(answer.token, None)
            if send is not None and isinstance(answer, ev.Answered) and _went_well(answer.response):
                self._brokers.take(send, answer)
            else:
                told.append(answer)
        return replace(outcome, answers=tuple(told))


@dataclass(frozen=True, slots=True)
class _Taken:
    send: ev.Send
    in_zookeeper: ev.Answered | None
    epoch: int


class KafkaOffsets:
    """See the module. `answered` and `failed` are called in this thread."""

    def __init__(
        self, options: ClientOptions, group: str, answered: Answers, failed: Callable[[StreamGroupError], None]
    ) -> None:
        self._options = options
        self._group = group
        self._answered = answered
        self._failed = failed
        self._queue: SimpleQueue[_Taken | None] = SimpleQueue()
        self._epoch = 0
        self._thread = threading.Thread(target=self._run, name="streamgroup-offsets", daemon=True)
        self._thread.start()

    def take(self, send: ev.Send, in_zookeeper: ev.Answered | None) -> None:
        """Answer a request, with what ZooKeeper has answered to it."""
        self._queue.put(_Taken(send, in_zookeeper, self._epoch))

    def forget(self) -> None:
        """Begin nothing more of what was taken."""
        self._epoch += 1

    def close(self) -> None:
        """The run is over."""
        self.forget()
        self._queue.put(None)

    def _run(self) -> None:
        with closing(open_cluster(self._options)) as cluster:
            while (taken := self._queue.get()) is not None:
                if taken.epoch != self._epoch:
                    continue
                deadline = time.monotonic() + taken.send.timeout_ms / 1000
                try:
                    answer: ev.Answered | ev.Failed = self._ask(kafka_of(cluster, deadline), taken, deadline)
                except TransportError as error:
                    answer = ev.Failed(taken.send.token, str(error))
                except StreamGroupError as error:
                    self._failed(error)
                    continue
                except Exception as error:  # else the member would wait for ever
                    log.exception("offsets in Kafka")
                    self._failed(StreamGroupError(f"group {self._group}: its offsets in Kafka: {error!r}"))
                    continue
                self._answered(answer)

    def _ask(self, cluster: KafkaCluster, taken: _Taken, deadline: float) -> ev.Answered:
        if taken.send.api is o.OffsetFetchRequest:
            found = dict(committed(cluster, self._group, deadline, in_zookeeper=False))
            if taken.in_zookeeper is not None:
                found = larger(found, _fetched(taken.in_zookeeper, self._group))
            return ev.Answered(taken.send.token, fetch_answer(found), FETCH_VERSION)
        return ev.Answered(taken.send.token, self._commit(cluster, taken.send, deadline), COMMIT_VERSION)

    def _commit(self, cluster: KafkaCluster, send: ev.Send, deadline: float) -> o.OffsetCommitResponse:
        """As no member: the brokers know of none."""

        def make(version: int) -> o.OffsetCommitRequest:
            request: o.OffsetCommitRequest = send.build(version)
            return replace(request, generation_id_or_member_epoch=-1, member_id="", group_instance_id=None)

        coordinator = cluster.coordinator(self._group, deadline)
        _, response = cluster.call_versioned(o.OffsetCommitRequest, make, coordinator, deadline, keep_trying=False)
        codes = {
            TopicPartition(topic.name, p.partition_index): p.error_code
            for topic in response.topics
            for p in topic.partitions
        }
        code = next((code for code in codes.values() if code in _OF_MEMBERS), 0)
        if code:
            raise ConfigError(_HAS_MEMBERS.format(group=self._group, name=error_of(code).name))
        if ErrorCode.GROUP_ID_NOT_FOUND in codes.values():
            raise offsets_error(ErrorCode.GROUP_ID_NOT_FOUND, "commit", self._group)
        return commit_answer(send.build(COMMIT_VERSION), codes)


def larger(one: Offsets, other: Offsets) -> dict[TopicPartition, CommittedOffset]:
    """Of each partition the commit that is further, as Java's consumer takes it while a group migrates; of two at the
    same offset the one that tells more."""
    found = dict(one)
    for tp, commit in other.items():
        known = found.get(tp)
        if known is None or (commit.offset, len(commit.metadata)) > (known.offset, len(known.metadata)):
            found[tp] = commit
    return found


def _fetched(answer: ev.Answered, group: str) -> Offsets:
    rows = fetched_offsets(answer.response, answer.version, group).partitions
    return {tp: row.committed for tp, row in rows.items() if row.committed is not None}


def _offsets_in(request: o.OffsetCommitRequest) -> Iterable[TopicPartition]:
    return [TopicPartition(t.name, p.partition_index) for t in request.topics for p in t.partitions]


def _went_well(response: Any) -> bool:
    """Whether nothing of a commit was refused; a fetch is answered as a whole."""
    if not isinstance(response, o.OffsetCommitResponse):
        return True
    return not any(p.error_code for t in response.topics for p in t.partitions)


def fetch_answer(offsets: Offsets) -> o.OffsetFetchResponse:
    """The answer to an OffsetFetch in version `FETCH_VERSION`."""
    rows: dict[str, list[o.OffsetFetchResponsePartition]] = {}
    for tp, commit in sorted(offsets.items()):
        row = o.OffsetFetchResponsePartition(
            partition_index=tp.partition,
            committed_offset=commit.offset,
            committed_leader_epoch=commit.leader_epoch,
            metadata=commit.metadata,
        )
        rows.setdefault(tp.topic, []).append(row)
    topics = (o.OffsetFetchResponseTopic(name=name, partitions=tuple(some)) for name, some in rows.items())
    return o.OffsetFetchResponse(topics=tuple(topics))


def commit_answer(request: o.OffsetCommitRequest, codes: Mapping[TopicPartition, int]) -> o.OffsetCommitResponse:
    """The answer to an OffsetCommit in version `COMMIT_VERSION`."""
    return o.OffsetCommitResponse(
        topics=tuple(
            o.OffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    o.OffsetCommitResponsePartition(
                        partition_index=p.partition_index,
                        error_code=codes.get(TopicPartition(topic.name, p.partition_index), 0),
                    )
                    for p in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


_HAS_MEMBERS = (
    "group {group}: a commit to Kafka was refused ({name}): the group has members there, too, which know nothing of "
    "those in ZooKeeper. Leave out zookeeper.connect to be a member in Kafka, or stop the members there, or give "
    "this query a kafka.group.id of its own"
)
