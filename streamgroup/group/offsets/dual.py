"""Offsets in ZooKeeper and in Kafka while a group migrates: `kafka.dual.commit.enabled`.

ZooKeeper comes first and fences: a commit goes to Kafka once it is committed in ZooKeeper as a whole. A fetch asks both
and takes the larger offset of each partition, as Java's consumer does.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamgroup.group import events as ev
from streamgroup.group.offsets.registered_kafka import AskKafka, WithdrawFromKafka
from streamgroup.group.offsets.store import (
    NOTHING,
    Answer,
    CommitOffsets,
    FetchOffsets,
    NoAnswer,
    OffsetsCommitted,
    OffsetsFetched,
    OffsetStore,
    Outcome,
    Request,
    Verdict,
)
from streamgroup.group.offsets.zookeeper import ZooKeeperOffsetStore
from streamgroup.group.registry.formats import GroupPaths
from streamgroup.model import CommittedOffset, TopicPartition

Offsets = Mapping[TopicPartition, CommittedOffset]


class DualOffsetStore(OffsetStore):
    """The store of a group whose offsets are in ZooKeeper and in Kafka."""

    is_the_groups = True

    def __init__(self, paths: GroupPaths) -> None:
        self._zookeeper = ZooKeeperOffsetStore(paths)
        self._asked: dict[int, Request] = {}
        """By token: requests that ZooKeeper has yet to answer; leaving clears those that are left."""
        self._found: dict[int, Offsets] = {}
        """By token: what ZooKeeper has answered to a fetch that Kafka has yet to answer."""

    @property
    def wake_at(self) -> float | None:
        """When ZooKeeper's part wants a Tick."""
        return self._zookeeper.wake_at

    def fetch(self, request: FetchOffsets, now: float) -> Outcome:
        """Fetch from ZooKeeper first."""
        self._asked[request.token] = request
        return self._passed_on(self._zookeeper.fetch(request, now))

    def commit(self, request: CommitOffsets, now: float) -> Outcome:
        """Commit in ZooKeeper first."""
        self._asked[request.token] = request
        return self._passed_on(self._zookeeper.commit(request, now))

    def follow(self, action: object) -> Outcome:
        """Withdraw what Kafka has not been asked yet once the member gives partitions up or is assigned others."""
        outcome = self._passed_on(self._zookeeper.follow(action))
        if not isinstance(action, ev.Joining | ev.Assigned | ev.Lost | ev.Left):
            return outcome
        # A member that rejoins still takes the answer to its fetch. Kafka's half alone would be an older offset.
        if not isinstance(action, ev.Joining):
            self._found.clear()
        if isinstance(action, ev.Left):  # ZooKeeper answers nothing any more
            self._asked.clear()
        return Outcome((WithdrawFromKafka(), *outcome.actions), outcome.answers)

    def takes(self, event: object) -> bool:
        """Whether `event` answers ZooKeeper's part or comes from the brokers."""
        return isinstance(event, Answer) or self._zookeeper.takes(event)

    def hear(self, event: object, now: float) -> Outcome:
        """Complete the brokers' answers with ZooKeeper's."""
        match event:
            case OffsetsFetched(refusal=None):
                in_zookeeper = self._found.pop(event.token, None)
                if in_zookeeper is None:  # the member has given this fetch up
                    return NOTHING
                return Outcome(answers=(OffsetsFetched(event.token, larger(event.offsets, in_zookeeper)),))
            case OffsetsFetched() | OffsetsCommitted() | NoAnswer():
                self._found.pop(event.token, None)
                return Outcome(answers=(event,))
        return self._passed_on(self._zookeeper.hear(event, now))

    def _passed_on(self, outcome: Outcome) -> Outcome:
        """Ask the brokers next where ZooKeeper has answered well."""
        actions, answers = list(outcome.actions), []
        for answer in outcome.answers:
            request = self._asked.pop(answer.token, None)
            if request is None or not _went_well(answer):
                answers.append(answer)
                continue
            if isinstance(answer, OffsetsFetched):
                self._found[answer.token] = answer.offsets
            actions.append(AskKafka(request))
        return Outcome(tuple(actions), tuple(answers))


def _went_well(answer: Answer) -> bool:
    """Whether nothing of a commit was refused; a fetch is answered as a whole."""
    match answer:
        case OffsetsFetched():
            return answer.refusal is None
        case OffsetsCommitted():
            return all(one.verdict is Verdict.COMMITTED for one in answer.verdicts.values())
    return False


def larger(one: Offsets, other: Offsets) -> dict[TopicPartition, CommittedOffset]:
    """Return for each partition the commit that is further; of two at the same offset the one that tells more."""
    found = dict(one)
    for tp, commit in other.items():
        known = found.get(tp)
        if known is None or (commit.offset, len(commit.metadata)) > (known.offset, len(known.metadata)):
            found[tp] = commit
    return found
