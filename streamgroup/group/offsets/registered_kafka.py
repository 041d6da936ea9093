"""Offsets in Kafka of a group whose members ZooKeeper keeps: `kafka.offsets.storage=kafka`, 0.8.2 and later (R35).

The brokers check no generation then. The only fence comes before the commit: it goes to Kafka once ZooKeeper has shown
that its member is still registered. A member that stops in between, and commits later, is not noticed.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from streamgroup.group import events as ev
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
)
from streamgroup.group.offsets.zookeeper import FENCED, is_of_zookeeper
from streamgroup.group.registry import events as zk
from streamgroup.group.registry.formats import GroupPaths
from streamgroup.znodes import Check, Refusal

FIRST_TOKEN = 1 << 56
"""The tokens of the checks are above those of `ZooKeeperOffsetStore`."""


@dataclass(frozen=True, slots=True)
class AskKafka:
    """An action: put this request to the brokers, who know of no member. The answer is an event for the store."""

    request: Request


@dataclass(frozen=True, slots=True)
class WithdrawFromKafka:
    """An action: drop the requests that the brokers have not been asked yet. They stay without an answer."""


class RegisteredKafkaStore(OffsetStore):
    """The store of a group in ZooKeeper whose offsets are in Kafka alone."""

    is_the_groups = True

    def __init__(self, paths: GroupPaths) -> None:
        self._paths = paths
        self._tokens = itertools.count(FIRST_TOKEN)
        self._checks: dict[int, CommitOffsets] = {}
        """By token: commits whose member is looked for. ZooKeeper's thread answers each, and a new assignment clears
        them."""

    def fetch(self, request: FetchOffsets, now: float) -> Outcome:
        return Outcome((AskKafka(request),))

    def commit(self, request: CommitOffsets, now: float) -> Outcome:
        """Check that the member is registered."""
        token = next(self._tokens)
        self._checks[token] = request
        return Outcome((zk.Transact(token, (Check(self._paths.consumer(request.member_id)),)),))

    def follow(self, action: object) -> Outcome:
        """Withdraw commits once their member gives partitions up or is assigned others. Kafka would not fence them."""
        if not isinstance(action, ev.Joining | ev.Assigned | ev.Lost | ev.Left):
            return NOTHING
        return self._withdraw()

    def _withdraw(self) -> Outcome:
        self._checks.clear()
        return Outcome((WithdrawFromKafka(),))

    def takes(self, event: object) -> bool:
        """Whether `event` answers a check or comes from the brokers."""
        return isinstance(event, Answer) or is_of_zookeeper(event, FIRST_TOKEN)

    def hear(self, event: object, now: float) -> Outcome:
        """Pass a commit on whose member is registered, and the brokers' answers."""
        if isinstance(event, ev.Stop):  # the member gives its partitions up now, and has `Left` a round trip later
            return self._withdraw()
        if isinstance(event, OffsetsFetched | OffsetsCommitted | NoAnswer):
            return Outcome(answers=(event,))
        if not isinstance(event, zk.Transacted | zk.RequestRefused | zk.Unanswered):
            return NOTHING
        request = self._checks.pop(event.token, None)
        if request is None:
            return NOTHING
        match event:
            case zk.Transacted():
                return Outcome((AskKafka(request),))
            case zk.RequestRefused(refusal=Refusal.NO_NODE):
                answer: Answer = OffsetsCommitted(request.token, dict.fromkeys(request.offsets, FENCED))
            case zk.RequestRefused():
                answer = NoAnswer(request.token, event.refusal.value)
            case zk.Unanswered():
                answer = NoAnswer(request.token, event.reason)
        return Outcome(answers=(answer,))
