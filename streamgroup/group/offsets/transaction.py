"""The offset store of a group whose sink commits offsets and records in one transaction of Kafka (R38).

The group has the offsets, and only the sink's transaction moves them over records. So a commit of the member after a
batch sends nothing: it reads the group's offsets and finds the end of the batch there. A late repetition of such a
commit could set the group back after the next transaction, since nothing fences a commit of the current generation. The
member itself commits a start position, and a position that the data-loss policy has moved: no transaction has. It never
commits the start of the batch in flight: the transaction may have moved the group beyond it, before Spark says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from streamgroup.errors import ConfigError
from streamgroup.frozen import frozen
from streamgroup.group import events as ev
from streamgroup.group.offsets.store import (
    COMMITTED,
    CommitOffsets,
    FetchOffsets,
    OffsetsCommitted,
    OffsetsFetched,
    OffsetStore,
    Outcome,
)
from streamgroup.model import OffsetRange, TopicPartition, name_some


@frozen
class _Commit:
    """A commit of the member, divided."""

    request: CommitOffsets
    by_sink: frozenset[TopicPartition]
    """The partitions that end where a batch ends."""
    own: frozenset[TopicPartition]
    """The partitions that the member itself commits."""


class TransactionOffsetStore(OffsetStore):
    """The offset store of a group whose offsets the sink's transactions commit. `kafka` is the store of the group."""

    is_the_groups = False

    def __init__(self, kafka: OffsetStore) -> None:
        self._kafka = kafka
        self._known: dict[TopicPartition, int] = {}
        """The group's offsets of the partitions held, as they were fetched or committed last."""
        self._in_flight: dict[TopicPartition, OffsetRange] = {}
        """The newest range of each partition, until the group is known to have its end."""
        self._pending: dict[int, _Commit] = {}
        """By token: commits that wait for the group's offsets, or for the answer to the member's own commit."""

    @property
    def wake_at(self) -> float | None:
        return self._kafka.wake_at

    def planned(self, ranges: Iterable[OffsetRange]) -> None:
        """Record the batch that the sink's next transaction commits."""
        self._in_flight |= {one.partition: one for one in ranges}

    def fetch(self, request: FetchOffsets, now: float) -> Outcome:
        """Fetch from the group. The group coordinator answers once no transaction with these offsets is open."""
        return self._passed_on(self._kafka.fetch(request, now), now)

    def commit(self, request: CommitOffsets, now: float) -> Outcome:
        """Find the ends of batches in the group, and commit the rest."""
        changed = {tp: one.offset for tp, one in request.offsets.items() if self._known.get(tp) != one.offset}
        self._end(request.offsets.keys() - changed.keys())
        ranges = {tp: self._in_flight[tp] for tp in changed if tp in self._in_flight}
        by_sink = frozenset(tp for tp, one in ranges.items() if one.until == changed[tp])
        unsunk = {tp for tp, one in ranges.items() if one.start == changed[tp]}
        commit = _Commit(request, by_sink, frozenset(changed) - by_sink - unsunk)
        if not by_sink:
            return self._commit_own(commit, now)
        self._pending[request.token] = commit
        # Offsets of other partitions may be in the open transactions of other members.
        looked_up = FetchOffsets(request.token, request.group, by_sink, request.timeout_ms, is_partial=True)
        return self._passed_on(self._kafka.fetch(looked_up, now), now)

    def follow(self, action: object) -> Outcome:
        """Forget pending commits, and what was known of partitions that may have moved meanwhile.

        The sink may still commit the batch in flight if a partition was lost and assigned again, so its ranges stay.
        """
        match action:
            case ev.Assigned():
                kept = action.kept | frozenset(action.revoked)
                self._known = {tp: offset for tp, offset in self._known.items() if tp in kept}
                self._pending.clear()
            case ev.Lost() | ev.Left():
                self._known.clear()
                self._pending.clear()
        return self._kafka.follow(action)

    def takes(self, event: object) -> bool:
        return self._kafka.takes(event)

    def hear(self, event: object, now: float) -> Outcome:
        return self._passed_on(self._kafka.hear(event, now), now)

    def _passed_on(self, outcome: Outcome, now: float) -> Outcome:
        """Return the outcome of Kafka's store for the member's own requests, and go on with its pending commits."""
        result = Outcome(outcome.actions)
        for answer in outcome.answers:
            commit = self._pending.pop(answer.token, None)
            match answer:
                case OffsetsFetched(refusal=None) if commit is not None:
                    more = self._compared(commit, {tp: one.offset for tp, one in answer.offsets.items()}, now)
                case OffsetsFetched() if commit is not None:
                    verdict = answer.refusal or COMMITTED
                    more = Outcome(answers=(OffsetsCommitted(answer.token, dict.fromkeys(commit.by_sink, verdict)),))
                case OffsetsFetched(refusal=None):
                    self._known = {tp: one.offset for tp, one in answer.offsets.items()}
                    more = Outcome(answers=(answer,))
                case OffsetsCommitted() if commit is not None:
                    accepted = [tp for tp in commit.own if answer.verdicts.get(tp) == COMMITTED]
                    self._known |= {tp: commit.request.offsets[tp].offset for tp in accepted}
                    others = dict.fromkeys(commit.request.offsets.keys() - commit.own, COMMITTED)
                    more = Outcome(answers=(OffsetsCommitted(answer.token, {**others, **answer.verdicts}),))
                case _:
                    more = Outcome(answers=(answer,))
            result = Outcome(result.actions + more.actions, result.answers + more.answers)
        return result

    def _compared(self, commit: _Commit, found: Mapping[TopicPartition, int], now: float) -> Outcome:
        """Go on with a commit whose batch the group has. A batch that it does not have was not written by our sink."""
        offsets = commit.request.offsets
        # A partition without an offset was deleted: the start at least was committed before the batch.
        missing = [tp for tp in commit.by_sink if tp in found and found[tp] < offsets[tp].offset]
        if missing:
            text = _NOT_COMMITTED.format(group=commit.request.group, partitions=name_some(missing))
            return Outcome((ev.Fail(ConfigError(text)),))
        self._known |= {tp: offsets[tp].offset for tp in commit.by_sink}
        self._end(commit.by_sink)
        return self._commit_own(commit, now)

    def _end(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the ranges of these partitions that the group has the end of."""
        for tp in partitions:
            if tp in self._in_flight and self._in_flight[tp].until == self._known[tp]:
                del self._in_flight[tp]

    def _commit_own(self, commit: _Commit, now: float) -> Outcome:
        request = commit.request
        if not commit.own:
            return Outcome(answers=(OffsetsCommitted(request.token, dict.fromkeys(request.offsets, COMMITTED)),))
        self._pending[request.token] = commit
        mine = replace(request, offsets={tp: request.offsets[tp] for tp in sorted(commit.own)})
        return self._passed_on(self._kafka.commit(mine, now), now)


_NOT_COMMITTED = (
    "group {group}: the sink has written a batch, and the group does not have its end for {partitions}: no transaction "
    "has committed it. With offsets.store=transaction, write the batches by "
    "foreachBatch(streamgroup.exactly_once(...)), which commits records and offsets together. A function of yours must "
    "call it for every batch, also for an empty one. Without it, leave offsets.store out"
)
