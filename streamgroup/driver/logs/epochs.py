"""Leader epochs (R8, KIP-320): has a log been cut below a position since the position was taken?

A position carries the epoch under which it was taken. Where a newer one shows, the partition is *suspect* until its
leader has told where the old epoch ends. That is rare (once a partition and election) and takes one round trip.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError

from streamgroup.cluster.requests import EpochCheck, EpochEnd
from streamgroup.driver.logs.watcher import LogWatcher
from streamgroup.errors import TransportError
from streamgroup.model import UNKNOWN_EPOCH, Position, TopicPartition
from streamgroup.planning.memo import Memo

log = logging.getLogger("streamgroup")

Suspects = Mapping[TopicPartition, EpochCheck]

QUESTION_S = 1.0
"""A leader that has not answered by then is asked again with the next plan: the watcher has others to ask."""


class EpochChecks:
    """Asks, and remembers the answers while their partitions are suspect. Used by Spark's thread alone."""

    def __init__(self, watcher: LogWatcher) -> None:
        self._watcher = watcher
        self._answers: dict[TopicPartition, tuple[EpochCheck, EpochEnd]] = {}
        self._suspects: Memo[dict[TopicPartition, EpochCheck]] = Memo()
        self._question: tuple[Suspects, Future[dict[TopicPartition, EpochEnd]]] | None = None

    def suspects(self, positions: Mapping[TopicPartition, Position]) -> dict[TopicPartition, EpochCheck]:
        """The positions taken under an epoch that is not the newest. One without an epoch never is.

        `positions` must be a mapping that nobody changes in place.
        """
        return self._suspects.get(lambda: self._find(positions), positions, *self._watcher.known_since)

    def _find(self, positions: Mapping[TopicPartition, Position]) -> dict[TopicPartition, EpochCheck]:
        epochs = self._watcher.leader_epochs(positions)
        return {
            tp: EpochCheck(position.leader_epoch, epochs[tp])
            for tp, position in positions.items()
            if UNKNOWN_EPOCH < position.leader_epoch < epochs.get(tp, UNKNOWN_EPOCH)
        }

    def ask(self, positions: Mapping[TopicPartition, Position], wait: float) -> None:
        """Ask about suspects that have a leader, and wait for the answers, at most `wait` seconds.

        Raises BrokerError where a log may not be asked about.
        """
        suspects = self.suspects(positions)
        known = self.ends(suspects)
        self._answers = {tp: answer for tp, answer in self._answers.items() if tp in known}
        leader = self._watcher.snapshot.leader
        wanted = {tp: check for tp, check in suspects.items() if tp not in known and leader(tp) is not None}
        if wanted and self._question is None:
            log.debug("checking the leader epochs of %d partitions: %s", len(wanted), wanted)
            answer = self._watcher.post(lambda cluster, deadline: cluster.epoch_ends(wanted, deadline), QUESTION_S)
            self._question = wanted, answer
        if self._question is not None:
            self._collect(*self._question, wait)

    def _collect(self, asked: Suspects, answer: Future[dict[TopicPartition, EpochEnd]], wait: float) -> None:
        try:
            ends = answer.result(wait)
        except FutureTimeoutError:
            return  # it is still on its way
        except TransportError:
            ends = {}
        finally:
            if answer.done():
                self._question = None
        self._answers |= {tp: (asked[tp], end) for tp, end in ends.items()}

    def ends(self, suspects: Suspects) -> dict[TopicPartition, EpochEnd]:
        """What is known of these suspects."""
        answers = {tp: self._answers[tp] for tp in suspects if tp in self._answers}
        return {tp: end for tp, (check, end) in answers.items() if check == suspects[tp]}
