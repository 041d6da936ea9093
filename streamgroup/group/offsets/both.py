"""Offset stores of a group that is registered in ZooKeeper and stores offsets in Kafka, or in both (R35).

`RegisteredKafkaStore` is for `kafka.offsets.storage=kafka` (0.8.2 and later), `DualOffsetStore` for
`dual.commit.enabled`. Brokers do not check the generation of such a group. The only fence is a check before the commit:
the store sends a commit to Kafka only after ZooKeeper has shown that the member is still registered. If a member is
suspended in between and commits later, the commit is not fenced. `store_at` chooses the store by the options.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from streamgroup.advice import OffsetLocation, StoredIn
from streamgroup.frozen import frozen
from streamgroup.group import events as ev
from streamgroup.group.offsets.kafka import KafkaOffsetStore
from streamgroup.group.offsets.store import (
    NOTHING,
    Answer,
    CommitOffsets,
    FetchOffsets,
    MemoryOffsetStore,
    NoAnswer,
    OffsetsCommitted,
    OffsetsFetched,
    OffsetStore,
    Outcome,
    Request,
    Verdict,
)
from streamgroup.group.offsets.zookeeper import FENCED, ZooKeeperOffsetStore, is_of_zookeeper
from streamgroup.group.registry import events as zk
from streamgroup.group.registry.nodes import GroupPaths
from streamgroup.model import CommittedOffset, TopicPartition
from streamgroup.znodes import Check, Refusal

FIRST_TOKEN = 1 << 56
"""The tokens of the checks are above those of `ZooKeeperOffsetStore`."""


@frozen
class AskKafka:
    """Action: send this request to the brokers, without a member id. The response is an event for the store."""

    request: Request


@frozen
class WithdrawFromKafka:
    """Action: drop the requests that have not been sent to brokers yet. They get no response."""


class RegisteredKafkaStore(OffsetStore):
    """The offset store of a group that is registered in ZooKeeper and stores offsets only in Kafka."""

    is_the_groups = True

    def __init__(self, paths: GroupPaths) -> None:
        self._paths = paths
        self._tokens = itertools.count(FIRST_TOKEN)
        self._checks: dict[int, CommitOffsets] = {}
        """By token: commits that wait for the check of their member. A new assignment clears them."""

    def fetch(self, request: FetchOffsets, now: float) -> Outcome:
        return Outcome((AskKafka(request),))

    def commit(self, request: CommitOffsets, now: float) -> Outcome:
        """Check that the member is registered; the commit follows."""
        token = next(self._tokens)
        self._checks[token] = request
        return Outcome((zk.Transact(token, (Check(self._paths.consumer(request.member_id)),)),))

    def follow(self, action: object) -> Outcome:
        """Withdraw commits when the member gives up partitions or gets an assignment: Kafka would not fence them."""
        if not isinstance(action, ev.Joining | ev.Assigned | ev.Lost | ev.Left):
            return NOTHING
        return self._withdraw()

    def _withdraw(self) -> Outcome:
        self._checks.clear()
        return Outcome((WithdrawFromKafka(),))

    def takes(self, event: object) -> bool:
        return isinstance(event, Answer) or is_of_zookeeper(event, FIRST_TOKEN)

    def hear(self, event: object, now: float) -> Outcome:
        """Send a commit to the brokers once its member is known to be registered. Return the brokers' answers."""
        if isinstance(event, ev.Stop):  # the member gives its partitions up now; `Left` follows a round trip later
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


Offsets = Mapping[TopicPartition, CommittedOffset]


class DualOffsetStore(OffsetStore):
    """The offset store of a group that is registered in ZooKeeper and stores offsets in ZooKeeper and in Kafka."""

    is_the_groups = True

    def __init__(self, paths: GroupPaths) -> None:
        self._zookeeper = ZooKeeperOffsetStore(paths)
        self._asked: dict[int, Request] = {}
        """By token: requests that ZooKeeper has not answered yet. Leaving the group clears them."""
        self._found: dict[int, Offsets] = {}
        """By token: offsets in ZooKeeper for a fetch that Kafka has not answered yet."""

    @property
    def wake_at(self) -> float | None:
        return self._zookeeper.wake_at

    def fetch(self, request: FetchOffsets, now: float) -> Outcome:
        """Fetch from ZooKeeper, then from Kafka."""
        self._asked[request.token] = request
        return self._passed_on(self._zookeeper.fetch(request, now))

    def commit(self, request: CommitOffsets, now: float) -> Outcome:
        """Commit in ZooKeeper, then in Kafka."""
        self._asked[request.token] = request
        return self._passed_on(self._zookeeper.commit(request, now))

    def follow(self, action: object) -> Outcome:
        """Withdraw requests to Kafka when the member gives up partitions or gets an assignment."""
        outcome = self._passed_on(self._zookeeper.follow(action))
        if not isinstance(action, ev.Joining | ev.Assigned | ev.Lost | ev.Left):
            return outcome
        # A member that rejoins still uses the answer to its fetch. Without ZooKeeper's offsets it may be too old.
        if not isinstance(action, ev.Joining):
            self._found.clear()
        if isinstance(action, ev.Left):  # ZooKeeper sends no more answers
            self._asked.clear()
        return Outcome((WithdrawFromKafka(), *outcome.actions), outcome.answers)

    def takes(self, event: object) -> bool:
        return isinstance(event, Answer) or self._zookeeper.takes(event)

    def hear(self, event: object, now: float) -> Outcome:
        """Merge the brokers' answers with ZooKeeper's."""
        match event:
            case OffsetsFetched(refusal=None):
                in_zookeeper = self._found.pop(event.token, None)
                if in_zookeeper is None:  # the member has given up this fetch
                    return NOTHING
                return Outcome(answers=(OffsetsFetched(event.token, larger(event.offsets, in_zookeeper)),))
            case OffsetsFetched() | OffsetsCommitted() | NoAnswer():
                self._found.pop(event.token, None)
                return Outcome(answers=(event,))
        return self._passed_on(self._zookeeper.hear(event, now))

    def _passed_on(self, outcome: Outcome) -> Outcome:
        """Send to the brokers the requests that have succeeded in ZooKeeper."""
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
    """Return whether a fetch succeeded, or all partitions of a commit."""
    match answer:
        case OffsetsFetched():
            return answer.refusal is None
        case OffsetsCommitted():
            return all(one.verdict is Verdict.COMMITTED for one in answer.verdicts.values())
    return False


def larger(one: Offsets, other: Offsets) -> dict[TopicPartition, CommittedOffset]:
    """Return for each partition the commit with the larger offset; of equal ones the one with more metadata."""
    found = dict(one)
    for tp, commit in other.items():
        known = found.get(tp)
        if known is None or (commit.offset, len(commit.metadata)) > (known.offset, len(known.metadata)):
            found[tp] = commit
    return found


def store_at(location: OffsetLocation, paths: GroupPaths | None = None) -> OffsetStore:
    """Return the offset store for `location`. `paths`: the nodes of a group that is registered in ZooKeeper."""
    if not location.group:
        return MemoryOffsetStore()
    if paths is None:
        return KafkaOffsetStore()
    if location.stored_in is StoredIn.ZOOKEEPER:
        return ZooKeeperOffsetStore(paths)
    return DualOffsetStore(paths) if location.stored_in is StoredIn.BOTH else RegisteredKafkaStore(paths)
