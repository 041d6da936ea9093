"""A thousand worlds: no duplicate, no gap, order kept, every batch resolved once and in time.

`plans.py` has the worlds, `world.py` what must hold of each. Planted bugs show that the checks notice.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from streamgroup.kafka.producer import machine as machine_module
from streamgroup.kafka.producer import partition as partition_module
from streamgroup.kafka.producer.batch import NO_IDENTITY, BatchState, ProducerBatch
from streamgroup.kafka.producer.machine import Producer
from streamgroup.kafka.producer.partition import PartitionQueue
from streamgroup.kafka.producer.reactions import Appended, CodeReaction
from tests.unit.kafka.producer.plans import first_wrong, harsh, mild, without_idempotence, without_restarts
from tests.unit.kafka.producer.world import Plan, World

EACH = 50
"""The seeds of one test. Each planted bug shows within the first hundred of its worlds."""


@pytest.mark.slow
@pytest.mark.parametrize("block", range(8))
def test_faults_that_pass_cost_no_record_no_order_and_no_duplicate(block: int) -> None:
    assert first_wrong(mild, range(block * EACH, (block + 1) * EACH)) is None


@pytest.mark.slow
@pytest.mark.parametrize("block", range(8))
def test_faults_that_outlast_the_timeouts_fail_batches_and_write_none_twice(block: int) -> None:
    assert first_wrong(harsh, range(block * EACH, (block + 1) * EACH)) is None


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_without_idempotence_nothing_acknowledged_is_lost(block: int) -> None:
    assert first_wrong(without_idempotence, range(block * EACH, (block + 1) * EACH)) is None


def test_without_idempotence_duplicates_are_possible() -> None:
    """The contrast: the same worlds write records twice, and with five requests in flight out of order."""
    duplicates = disorder = 0
    for seed in range(40):
        world = World(without_idempotence(seed), seed).run()
        for partition in world.parts.values():
            duplicates += len(set(partition.log)) < len(partition.log)
            first = list(dict.fromkeys(partition.log))
            disorder += first != sorted(first)
    assert duplicates
    assert disorder


# -- planted bugs -----------------------------------------------------------------------------------------------------

Plant = Callable[[pytest.MonkeyPatch], Any]
SENT, NEXT, RESET = PartitionQueue.sent, PartitionQueue.next_in_sequence, PartitionQueue.may_reset


def new_sequence_on_retry(patch: pytest.MonkeyPatch) -> None:
    def sent(self: PartitionQueue, batch: ProducerBatch) -> None:
        again = batch.state is BatchState.RETRY
        SENT(self, batch)
        if again and self.identity != NO_IDENTITY:
            self.next_sequence = batch.number(self.identity, self.next_sequence)

    patch.setattr(PartitionQueue, "sent", sent)


def retry_is_overtaken(patch: pytest.MonkeyPatch) -> None:
    """New batches go on while one waits for its retry, and take over its sequence number."""

    def next_in_sequence(self: PartitionQueue, limit: int, now: float) -> ProducerBatch | None:
        waiting = next((b for b in self.outstanding if b.state is BatchState.RETRY and not b.doubtful), None)
        if waiting is not None and not self.resetting and len(self.outstanding) == 1 and self.queue:
            self.outstanding.remove(waiting)
            self.next_sequence = waiting.base_sequence
            waiting.state = BatchState.QUEUED
            self.queue.insert(1, waiting)
        return NEXT(self, limit, now)

    patch.setattr(PartitionQueue, "next_in_sequence", next_in_sequence)


def bump_without_waiting(patch: pytest.MonkeyPatch) -> None:
    """As in Java: batches in flight get another epoch, and the broker takes them for new ones."""
    patch.setattr(PartitionQueue, "may_reset", property(lambda self: self.resetting))


def doubts_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A batch of which an attempt has no answer gets another sequence."""

    def begin_reset(self: PartitionQueue) -> None:
        self.resetting = True
        for batch in self.outstanding:
            if batch.state is BatchState.RETRY:
                batch.state = BatchState.REJECTED

    patch.setattr(PartitionQueue, "begin_reset", begin_reset)


def no_answer_means_not_appended(patch: pytest.MonkeyPatch) -> None:
    real = machine_module.reaction_to
    patch.setattr(
        machine_module, "reaction_to", lambda code: CodeReaction(real(code).reaction, Appended.NO, real(code).advice)
    )


def no_reset_after_a_failure(patch: pytest.MonkeyPatch) -> None:
    """The numbers of a failed batch are missing, and the broker refuses all that follow."""
    patch.setattr(Producer, "_begin_reset", lambda self, queue: None)


def no_slow_start(patch: pytest.MonkeyPatch) -> None:
    """Five batches at once to a broker that does not know the producer, and takes the second for the first."""
    patch.setattr(partition_module, "CONFIRMED_FOR_S", float("inf"))


def later_batches_tell_nothing(patch: pytest.MonkeyPatch) -> None:
    """A batch that the broker has forgotten is taken for one behind lost records."""
    real = PartitionQueue.confirm
    patch.setattr(PartitionQueue, "confirm", lambda self, batch, _, now: real(self, batch, 0, now))


def forgotten_at_once(patch: pytest.MonkeyPatch) -> None:
    """A doubtful batch whose number the broker refuses is taken for a forgotten one, whatever comes behind it."""

    def sent(self: PartitionQueue, batch: ProducerBatch) -> None:
        SENT(self, batch)
        batch.followed = batch.doubtful and batch.sent_first

    patch.setattr(PartitionQueue, "sent", sent)


def beyond_the_memory_of_the_broker(patch: pytest.MonkeyPatch) -> None:
    """New batches are sent behind a doubtful one, until the broker does not remember it. Later batches, which would
    tell that it has it, tell nothing."""
    later_batches_tell_nothing(patch)

    def next_in_sequence(self: PartitionQueue, limit: int, now: float) -> ProducerBatch | None:
        doubtful = [b for b in self.outstanding if b.doubtful]
        for batch in doubtful:
            batch.doubtful = False
        try:
            return NEXT(self, limit, now)
        finally:
            for batch in doubtful:
                batch.doubtful = True

    patch.setattr(PartitionQueue, "next_in_sequence", next_in_sequence)


def everybody_is_first(patch: pytest.MonkeyPatch) -> None:
    """A batch that the broker refuses for lack of the one before it is taken for one behind lost records."""

    def sent(self: PartitionQueue, batch: ProducerBatch) -> None:
        SENT(self, batch)
        batch.sent_first = True

    patch.setattr(PartitionQueue, "sent", sent)


def throttle_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(machine_module, "throttle_s", lambda response, version: 0.0)


def expired_is_not_in_doubt(patch: pytest.MonkeyPatch) -> None:
    """A batch whose request is pending fails as if it could not be written any more."""
    real = machine_module.reactions.timed_out

    def timed_out(*args: Any) -> Any:
        error = real(*args)
        return type(error)(error.message, error.code, False)

    patch.setattr(machine_module.reactions, "timed_out", timed_out)


def one_more_in_flight(patch: pytest.MonkeyPatch) -> None:
    real = Producer._send

    def send(self: Producer) -> None:
        object.__setattr__(self._config, "max_in_flight", self._config.max_in_flight + 1)
        try:
            real(self)
        finally:
            object.__setattr__(self._config, "max_in_flight", self._config.max_in_flight - 1)

    patch.setattr(Producer, "_send", send)


def timeouts_unseen(patch: pytest.MonkeyPatch) -> None:
    """Batches are not failed at the end of delivery.timeout.ms."""
    patch.setattr(Producer, "_expire", lambda self: None)


BUGS: tuple[tuple[Plant, Callable[[int], Plan]], ...] = (
    (new_sequence_on_retry, mild),
    (retry_is_overtaken, mild),
    (bump_without_waiting, harsh),
    (doubts_forgotten, harsh),
    (no_answer_means_not_appended, harsh),
    (no_reset_after_a_failure, harsh),
    (no_slow_start, mild),
    (later_batches_tell_nothing, mild),
    (forgotten_at_once, harsh),
    (beyond_the_memory_of_the_broker, without_restarts),
    (everybody_is_first, mild),
    (throttle_ignored, mild),
    (expired_is_not_in_doubt, harsh),
    (one_more_in_flight, mild),
    (timeouts_unseen, harsh),
)


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "plan"), BUGS, ids=[plant.__name__ for plant, _ in BUGS])
def test_the_simulation_catches_a_planted_bug(
    plant: Plant, plan: Callable[[int], Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert first_wrong(plan, range(100)) is not None


def test_a_world_is_the_same_in_every_run() -> None:
    first, second = (World(harsh(3), 3, lambda c, _: Producer(c, random.Random(3))).run() for _ in range(2))
    assert [p.log for p in first.parts.values()] == [p.log for p in second.parts.values()]
    assert first.steps == second.steps
