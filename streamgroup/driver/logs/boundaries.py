"""Where batches of Kafka 0.7 may end (R34): what the watcher's cluster finds by walking messages, for the planner."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING

from streamgroup.cluster.interface import Cluster, kafka07_of
from streamgroup.errors import ConfigError, TransportError
from streamgroup.logformat import KAFKA07_LOG
from streamgroup.model import LogRange, OffsetRange, Position, TopicPartition
from streamgroup.planning.batch import backlog_of
from streamgroup.planning.limits import Boundaries, rate_limit, whole_messages

if TYPE_CHECKING:
    from streamgroup.driver.logs.watcher import LogWatcher

log = logging.getLogger("streamgroup")

Walked = dict[TopicPartition, tuple[int, ...]]
Logs = Mapping[TopicPartition, LogRange]

BUDGET_S = 0.8
"""So long messages are walked for one plan: the watcher has others to ask, and a shorter batch is one, too."""
GIVE_UP_S = 30.0
"""So long a position is tried to be checked."""
AGAIN_S = 2.0
"""When it is asked about again: each question takes the watcher's time."""
PAUSE_S = 0.1
QUESTION_S = 5.0
"""How long a broker's answer counts that comes later than that."""


class _Asking:
    """Ranges are walked by the watcher's cluster, one question at a time."""

    def __init__(self, watcher: LogWatcher, *, is_checked: bool = False) -> None:
        self._watcher = watcher
        self._is_checked = is_checked
        self._asked: tuple[OffsetRange, ...] = ()
        self._answer: Future[Walked] | None = None

    @property
    def is_free(self) -> bool:
        """Whether no answer is on its way."""
        return self._answer is None

    def ask(self, wanted: tuple[OffsetRange, ...]) -> None:
        """From the start of each range, which is to be a boundary, to its end."""
        self._asked = wanted
        checked = self._is_checked
        self._answer = self._watcher.post(lambda *asked: _walk(wanted, *asked, checked=checked), QUESTION_S)

    def answers(self, wait: float) -> dict[TopicPartition, tuple[int, tuple[int, ...]]]:
        """From where each partition was walked and what was found; nothing where it takes longer than `wait` seconds.

        Raises DecodeError, BrokerError.
        """
        answer = self._answer
        if answer is None:
            return {}
        try:
            walked = answer.result(wait)
        except FutureTimeoutError:
            return {}  # it is still on its way
        except TransportError as error:
            log.debug("walking messages: %s", error)
            return {}
        finally:
            if answer.done():
                self._answer = None
        starts = {range_.partition: range_.start for range_ in self._asked}
        return {tp: (starts[tp], ends) for tp, ends in walked.items()}


class BoundaryWalks:
    """Asks, and remembers the answers while their partitions stay where they are. Used by Spark's thread alone."""

    def __init__(self, watcher: LogWatcher) -> None:
        self._asking = _Asking(watcher)
        self._walked: dict[TopicPartition, tuple[int, tuple[int, ...]]] = {}
        """By partition: the position from which it was walked, and what was found."""

    def ask(
        self,
        positions: Mapping[TopicPartition, Position],
        logs: Logs,
        max_bytes: int,
        targets: Mapping[TopicPartition, int] | None,
        wait: float,
    ) -> None:
        """See to it that limits of `max_bytes` for all can be rounded; waits at most `wait` seconds for the answers.

        What is not known by then is at hand for a later plan. Raises DecodeError where a position is no boundary,
        BrokerError for what a broker refuses.
        """
        self._walked = {
            tp: kept for tp, kept in self._walked.items() if tp in positions and kept[0] == positions[tp].offset
        }
        if self._asking.is_free:
            backlog = backlog_of(positions, {tp: known.latest for tp, known in logs.items()}, targets)
            limits = rate_limit(backlog, max_bytes)
            unknown = whole_messages(backlog, limits, self.known(logs)).unscanned
            if unknown:
                self._asking.ask(unknown)
        self._walked |= self._asking.answers(wait)

    def known(self, logs: Logs) -> Boundaries:
        """What is known, for `whole_messages`."""
        return Boundaries(
            {tp: found.segments for tp, found in logs.items()}, {tp: ends for tp, (_, ends) in self._walked.items()}
        )


class PositionChecks:
    """Does a message begin at a position that was not planned here? Asked of each partition that comes to be held: its
    commit or its starting offset may be anything, and what is planned from there on ends where messages end.

    Used by Spark's thread alone.
    """

    def __init__(self, watcher: LogWatcher, clock: Callable[[], float] = time.monotonic) -> None:
        self._asking = _Asking(watcher, is_checked=True)
        self._clock = clock
        self._sound: dict[TopicPartition, int] = {}
        """By partition: the position that was found to be one, or where the last plan ended. Each `ask` drops those
        that are held no more."""
        self._since: dict[TopicPartition, float] = {}
        """By partition that is not sound: since when it is asked about."""
        self._again_at = 0.0

    def ask(self, positions: Mapping[TopicPartition, Position], logs: Logs, wait: float) -> None:
        """Ask about the positions that nothing tells to be sound.

        Waits at most `wait` seconds for the answers; where others can be planned from only when it first asks about
        one. Raises DecodeError where a position is no boundary, BrokerError for what a broker refuses.
        """
        at = {tp: position.offset for tp, position in positions.items()}
        self._sound = {tp: sound for tp, sound in self._sound.items() if at.get(tp) == sound}
        for tp, known in logs.items():
            if at[tp] in (known.earliest, known.latest, *known.segments):
                self._sound[tp] = at[tp]
        deadline = self._clock() + wait
        asked_before = frozenset(self._since)
        while unsound := self._tried(positions, logs):
            now = self._clock()
            if self._asking.is_free and now >= self._again_at:
                self._asking.ask(tuple(OffsetRange(tp, at[tp], at[tp] + 1) for tp in sorted(unsound)))
                self._again_at = now + AGAIN_S
            is_waited_for = len(unsound) == len(logs) or not unsound <= asked_before
            left = deadline - now if is_waited_for else 0.0
            answers = self._asking.answers(max(0.0, left)).items()
            self._sound |= {tp: start for tp, (start, _) in answers if at.get(tp) == start}
            if left <= 0.0:
                return
            if self._asking.is_free and not answers:
                time.sleep(min(left, PAUSE_S))  # a broker that hangs up at once is not asked all the time

    def planned(self, ranges: Iterable[OffsetRange]) -> None:
        """Batches end where messages do."""
        self._sound |= {range_.partition: range_.until for range_ in ranges}

    def unsound(self, positions: Mapping[TopicPartition, Position], logs: Logs) -> frozenset[TopicPartition]:
        """Whose position lies within its log, and nothing has told yet that a message begins there."""
        return frozenset(
            tp
            for tp, known in logs.items()
            if tp in positions and tp not in self._sound and known.earliest < positions[tp].offset < known.latest
        )

    def _tried(self, positions: Mapping[TopicPartition, Position], logs: Logs) -> frozenset[TopicPartition]:
        """The unsound ones, but for those that have been asked about for long enough: the task of a batch tells what is
        amiss with their brokers."""
        now = self._clock()
        unsound = self.unsound(positions, logs)
        self._since = {tp: self._since.get(tp, now) for tp in unsound}
        for tp in sorted(tp for tp, since in self._since.items() if now - since >= GIVE_UP_S):
            log.warning(
                "%s: no broker has told in %g s whether a message begins at position %d: planned from it all the same",
                KAFKA07_LOG.name(tp),
                GIVE_UP_S,
                positions[tp].offset,
            )
            self._sound[tp] = positions[tp].offset
        return self.unsound(positions, logs)


def _walk(wanted: tuple[OffsetRange, ...], cluster: Cluster, deadline: float, *, checked: bool) -> Walked:
    return kafka07_of(cluster, deadline).boundaries(wanted, deadline, BUDGET_S, check_crc=checked)


def require_boundaries(cluster: Cluster, ranges: Iterable[OffsetRange], logs: Logs, deadline: float) -> None:
    """Raise ConfigError where a range that a user gave begins or ends inside of a message of Kafka 0.7."""
    brokers = kafka07_of(cluster, deadline)
    for range_ in ranges:
        tp = range_.partition
        known = {logs[tp].earliest, logs[tp].latest, *logs[tp].segments}
        for option, position in (("startingOffsets", range_.start), ("endingOffsets", range_.until)):
            if position in known or brokers.is_message_start(tp, position, deadline):
                continue
            segment = max((s for s in known if s < position), default=0)
            walked = brokers.boundaries([OffsetRange(tp, segment, position)], deadline, QUESTION_S)
            before = max((end for end in walked.get(tp, ()) if end < position), default=segment)
            raise ConfigError(
                f"{option}: {position} of {KAFKA07_LOG.name(tp)} is no boundary "
                f"of a message: positions of Kafka 0.7 are bytes. A message begins at {before}, before it"
            )
