"""The checker for worlds with transactions of Kafka (R38): no record may be lost or visible twice.

It sees each transaction when its markers are written: the records that become visible, and the offsets of the group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from streamgroup.errors import ConfigError, FencedError, TransactionAbortedError
from streamgroup.model import CommittedOffset, OffsetRange, TopicPartition
from tests.sim.checker import DUPLICATE, FAILED, LOST, TWO_OWNERS, UNSTORED, Checker
from tests.sim.transactions import NoAnswer

if TYPE_CHECKING:
    from tests.sim.process import Process
    from tests.sim.world import Query


def is_fenced_by_a_copy(query: Query, error: BaseException) -> bool:
    """Whether a query that runs with a copy of its checkpoint has ended its transaction: both have one id. Each start
    of one would end the transaction of the other, so it needs a new checkpoint, as the error says."""
    if not isinstance(error, FencedError) or query.process is None or query.process.sink is None:
        return False
    by = query.process.sink.raised_by
    return by is not None and by.query.settings.name != query.settings.name


class TransactionChecker(Checker):
    """Holds queries to what consumers with `read_committed` see. Nothing may be repeated, whatever happens."""

    # -- transactions -------------------------------------------------------------------------------------------------

    def visible(
        self,
        committer: tuple[Process, str, int] | None,
        written: Mapping[TopicPartition, Sequence[OffsetRange]],
        offsets: Mapping[TopicPartition, int],
    ) -> None:
        """A transaction is over. `committer` is the process, member id and generation that have added `offsets`."""
        name = committer[0].name if committer is not None else "no member"
        if self._clock.trace is not None:
            text = ", ".join(str(part) for each in written.values() for part in each)
            self._clock.note("transactions", f"visible of {name}: {text}")
        for tp in sorted({*written, *offsets}):
            parts = sorted(written.get(tp, ()))
            track = self.track(tp)
            if committer is not None and parts:
                self._start(track, committer[0], parts[0].start)
            at = track.committed or 0
            for part in parts:
                if part.start != at:
                    word = DUPLICATE if part.start < at else LOST
                    raise self._violated(word, f"{name} writes {part}, and the records below {at} are visible")
                at = part.until
            if offsets.get(tp) != at:
                text = f"{name} leaves {tp} at {offsets.get(tp)}, with the records below {at} visible"
                raise self._violated(UNSTORED, text)
            track.mark(track.committed or 0, at)
        if committer is not None:
            process, member_id, generation = committer
            if not member_id:
                raise self._violated(TWO_OWNERS, f"{name} commits {sorted(offsets)} without a member")
            self.committed(process, member_id, generation, offsets)

    def replayed(
        self, process: Process, ranges: Sequence[OffsetRange], seen: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        """A replay begins at the group's offsets, unless the process was put out and does not know it yet."""
        for one in ranges:
            at = self.track(one.partition).committed
            if at is not None and one.start != at and not self._may_be_refused(process):
                raise self._violated(DUPLICATE, f"{process.name} replays {one}, and the group has {at}")

    # -- errors -------------------------------------------------------------------------------------------------------

    def failed(self, query: Query, error: BaseException) -> None:
        if isinstance(error, NoAnswer | TransactionAbortedError):  # each attempt of the batch was disturbed
            return
        if isinstance(error, ConfigError) and "no transaction has committed it" in str(error):
            raise self._violated(LOST, f"{query.name}: {error}")
        is_of_the_group = "INSTANCE_ID" in str(error)
        if isinstance(error, FencedError) and not is_of_the_group and query.process is not None:
            if self._may_be_refused(query.process):
                return
            raise self._violated(FAILED, f"{query.name} is refused, and no other run has taken over: {error}")
        super().failed(query, error)

    def _may_be_refused(self, process: Process) -> bool:
        """Whether another run, or the timeout, has raised the epoch, or the process has lost a partition of its batch,
        or another has committed records of it, or the process is put out of the group."""
        ledger, batch = process.ledger, process.ledger.in_flight
        ranges = () if batch is None else batch.planned_ranges or batch.document.ranges
        lost = frozenset() if batch is None else batch.lost
        is_fenced = process.sink is not None and (process.sink.is_fenced or process.sink.was_fenced)
        return (
            is_fenced
            or any(one.partition in lost or one.partition not in ledger.held for one in ranges)
            or any((self.track(one.partition).committed or 0) > one.start for one in ranges)
            or process.world.keeper.is_put_out(process)
        )
