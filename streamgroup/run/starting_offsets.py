"""Finds start offsets of gained partitions for which neither the group nor the checkpoint has one (R7)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from streamgroup.errors import DataLossError, TransportError
from streamgroup.group import events as ev
from streamgroup.group.member import Member, MemberAction, Resolve
from streamgroup.group.positions import Origin
from streamgroup.model import EARLIEST, TopicPartition, name_some
from streamgroup.planning.starts import fallbacks, lookups, resolve
from streamgroup.remediation import OffsetLocation, how_to_reset
from streamgroup.run import questions as ask
from streamgroup.run.config import RunConfig
from streamgroup.run.run_events import LostRecords, RunEvents
from streamgroup.run.steps import NOW, Steps, Until

if TYPE_CHECKING:
    from streamgroup.cluster.requests import ListedOffset

Listed = Mapping[TopicPartition, "ListedOffset"]


class StartingOffsets:
    """Finds the start offsets of one run. `is_new` returns whether a partition was created after the run began."""

    def __init__(
        self,
        config: RunConfig,
        member: Member,
        events: RunEvents,
        *,
        perform: Callable[[Iterable[MemberAction]], None],
        is_new: Callable[[TopicPartition], bool],
    ) -> None:
        self._config = config
        self._member = member
        self._events = events
        self._perform = perform
        self._is_new = is_new

    def find(self, wanted: Resolve) -> Steps[None]:
        """Give the member the start offsets of `wanted`. A transport error is retried `start_retries` times.

        Raises DataLossError if records below a start may be lost and failOnDataLoss is on, TransportError, BrokerError,
        and ConfigError if startingOffsets lacks a partition.
        """
        origins = {tp: self._origin(tp, origin) for tp, origin in wanted.partitions.items()}
        for attempt in range(self._config.start_retries + 1):
            try:
                offsets = yield from self.offsets(origins)
                break
            except TransportError as error:
                if attempt == self._config.start_retries:
                    raise
                who = f"group {self._config.group_id}" if self._config.group_id else "no group"
                text = (
                    f"{who}: cannot look up the starting offsets of {name_some(origins)}: {error}. "
                    f"Retry {attempt + 1} of {self._config.start_retries} follows in "
                    f"{self._config.start_retry_interval_s:g} s"
                )
                self._perform([ev.Note(ev.WARNING, text)])
                yield Until(lambda _: False, self._config.start_retry_interval_s)
        if wanted.generation != self._member.ledger.generation:
            return  # another assignment has begun, with a lookup of its own
        losses = losses_of(self._config.group_id, origins, offsets)
        is_failed = bool(losses) and self._config.fail_on_data_loss
        self._events.lost_records(losses, failed=is_failed)
        if is_failed:
            raise refuse(self._config.location, losses)
        now = yield NOW
        self._perform(self._member.resolved(wanted.generation, offsets, now))

    def _origin(self, tp: TopicPartition, origin: Origin) -> Origin:
        return Origin.EARLIEST if origin is Origin.STARTING and self._is_new(tp) else origin

    def offsets(self, origins: Mapping[TopicPartition, Origin]) -> Steps[dict[TopicPartition, int]]:
        """Return start offsets. All but those of the founding generation start at earliest (R7, R8)."""
        now = yield NOW
        deadline = now + self._config.api_timeout_s
        configured = self._config.starting
        founding = [tp for tp, origin in origins.items() if origin is Origin.STARTING]
        rest = [tp for tp, origin in origins.items() if origin is not Origin.STARTING]
        offsets: dict[TopicPartition, int] = {}
        if founding:
            found = yield from _list(lookups(configured, founding), deadline)
            listed = {tp: (each.offset, each.timestamp) for tp, each in found.items()}
            found = yield from _list(fallbacks(configured, listed), deadline)
            listed |= {tp: (each.offset, each.timestamp) for tp, each in found.items()}
            offsets = resolve(configured, founding, listed)
        earliest = yield from _list(dict.fromkeys(rest, EARLIEST), deadline)
        return offsets | {tp: each.offset for tp, each in earliest.items()}


def _list(wanted: Mapping[TopicPartition, int], deadline: float) -> Steps[Listed]:
    if not wanted:
        return {}
    now = yield NOW
    _, listed = yield ask.ListOffsets(wanted, max(0.0, deadline - now))
    return listed  # type: ignore[no-any-return]


def losses_of(
    group: str, origins: Mapping[TopicPartition, Origin], offsets: Mapping[TopicPartition, int]
) -> list[LostRecords]:
    """Return the records that may be lost below the start offsets. The data-loss policy decides about them."""
    return [
        _loss(group, tp, origin, offsets[tp])
        for tp, origin in sorted(origins.items(), key=lambda item: item[0])
        if origin is Origin.RECREATED or (origin is not Origin.STARTING and offsets[tp] > 0)
    ]


def _loss(group: str, tp: TopicPartition, origin: Origin, offset: int) -> LostRecords:
    who = f"group {group!r}, {tp}" if group else str(tp)
    if origin is Origin.RECREATED:
        text = f"{who}: the topic was deleted and created again; reading starts at its offset {offset}"
        return LostRecords(tp, text, "the topic was deleted and created again", to=offset)
    unknown = (
        "the group has no committed offset for it (a new partition, or the commit has expired)"
        if group
        else "the checkpoint has no offset for it (a new partition, or it was another member's)"
    )
    text = f"{who}: {unknown}, and its log starts at {offset}: records below may have been missed"
    return LostRecords(tp, text, "no committed offset, and the log starts above 0", to=offset, count=offset)


def refuse(location: OffsetLocation, losses: Collection[LostRecords]) -> DataLossError:
    """Return the error that ends a query for `losses`. `location` is where an operator can reset its offsets."""
    other = f"; or {how_to_reset(location)}" if location.group else ""
    return DataLossError("\n".join(loss.text for loss in losses) + f"\nTo go on: set failOnDataLoss=false{other}")
