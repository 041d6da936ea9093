"""Hundreds of simulated worlds, and any events at any time: every batch is resolved once, in order and in time.

`world.py` has the worlds and what must hold of each. Planted bugs show that the checks notice.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from streamgroup.errors import KAFKA_ERRORS
from streamgroup.kafka.producer import events as ev
from streamgroup.kafka.producer import machine as machine_module
from streamgroup.kafka.producer import partition_queue as partition_module
from streamgroup.kafka.producer.batch import NO_IDENTITY, BatchState, ProducerBatch
from streamgroup.kafka.producer.bookkeeping import ProducerState
from streamgroup.kafka.producer.config import Idempotence
from streamgroup.kafka.producer.machine import Producer
from streamgroup.kafka.producer.partition_queue import PartitionQueue
from streamgroup.kafka.producer.reactions import Appended, CodeReaction
from tests.unit.kafka.producer import world as worlds
from tests.unit.kafka.producer.drivers import P0, P1, Driver
from tests.unit.kafka.producer.world import (
    Plan,
    ProducerSimulation,
    Records,
    first_wrong,
    harsh,
    mild,
    without_idempotence,
)

EACH = 50
"""The seeds of one test. Each planted bug shows within the first hundred of its worlds."""


@pytest.mark.slow
@pytest.mark.parametrize("block", range(5))
def test_faults_that_pass_cost_no_record_no_order_and_no_duplicate(block: int) -> None:
    assert first_wrong(mild, range(block * EACH, (block + 1) * EACH)) is None


@pytest.mark.slow
@pytest.mark.parametrize("block", range(5))
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
        world = ProducerSimulation(without_idempotence(seed), seed).run()
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
    (beyond_the_memory_of_the_broker, worlds.without_restarts),
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
    first, second = (
        ProducerSimulation(harsh(3), 3, lambda c, _: Producer(c, random.Random(3))).run() for _ in range(2)
    )
    assert [p.log for p in first.parts.values()] == [p.log for p in second.parts.values()]
    assert first.steps == second.steps


# -- any event at any time --------------------------------------------------------------------------------------------

CODES = [*KAFKA_ERRORS, 140]
COMMON = [0, 0, 0, 6, 7, 10, 19, 20, 45, 46, 47, 59]
FATAL = {21, 31, 35, 90}


class Chaos(Driver):
    """A producer that hears anything."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        super().__init__(
            idempotence=self.rng.choice(list(Idempotence)),
            linger_ms=self.rng.choice((0, 5)),
            batch_size=self.rng.choice((1, 40)),
            max_in_flight=self.rng.choice((1, 2, 5)),
            max_request_size=self.rng.choice((25, 1_000)),
            request_timeout_ms=1_000,
            delivery_timeout_ms=3_000,
            max_block_ms=2_000,
            retries=self.rng.choice((3, 2**31 - 1)),
        )
        self.appended = 0
        self.splits: list[ProducerBatch] = []
        self.reroutes: list[ProducerBatch] = []
        self.rerouted: set[ProducerBatch] = set()
        self.resolved: dict[ProducerBatch, int] = {}

    def step(self, event: ev.Event) -> list[ev.Action]:
        for action in super().step(event):
            match action:
                case ev.Split(batch=batch):
                    self.splits.append(batch)
                case ev.Reroute(batch=batch):
                    self.reroutes.append(batch)
                case ev.Delivered(batch=batch) | ev.Failed(batch=batch):
                    self.resolved[batch] = self.resolved.get(batch, 0) + 1
                    assert self.now <= batch.created_at + 3.0 + 1e-6
                    assert batch.state is BatchState.RESOLVED
                case ev.Disconnect(node=node):
                    self.forget(node)
        return self.actions

    def forget(self, node: int) -> None:
        self.sent = {token: send for token, send in self.sent.items() if send.node != node}

    def anything(self) -> None:
        """One event, whether it makes sense or not."""
        rng = self.rng
        match rng.randrange(12):
            case 0 | 1 | 2:
                payloads = [(rng.choice((P0, P1)), Records(tuple(range(rng.randint(1, 4))))) for _ in range(3)]
                self.appended += sum(records.count for _, records in payloads)
                self.step(ev.Append(payloads))
            case 3 | 4 | 5 if self.sent:
                throttle_ms = rng.choice((0, 0, 90))
                self.answer(self.code(), rng.choice(list(self.sent)), throttle_ms=throttle_ms)
            case 6:
                self.cut(rng.randrange(3), rng.random() < 0.7)
            case 7:
                self.some_metadata()
            case 8:
                self.step(
                    rng.choice([ev.ProducerIdGiven(rng.randint(1, 9), 32_766), ev.ProducerIdRefused(self.code())])
                )
            case 9 if self.splits:
                batch = self.splits.pop()
                half = batch.count // 2
                self.step(ev.SplitInto(batch, (Records((0,) * half), Records((0,) * (batch.count - half)))))
            case 9 if self.reroutes:
                self.reroute(self.reroutes.pop())
            case 10:
                self.step(rng.choice([ev.Flush(), ev.MetadataFailed("no"), ev.FindTopics(("t", "u")), ev.Written(99)]))
            case 11 if rng.random() < 0.1:
                self.step(ev.Abandon("enough"))
            case _:
                self.later(rng.choice((0.001, 0.05, 0.7)))

    def reroute(self, batch: ProducerBatch) -> None:
        if batch.state is BatchState.SPLITTING and self.rng.random() < 0.7:
            self.appended += batch.count
            self.rerouted.add(batch)
            self.step(ev.Rerouted(batch, [(self.rng.choice((P0, P1)), Records((0,) * batch.count))]))
        else:
            self.step(ev.Rerouted(batch, None))

    def code(self) -> int:
        code = self.rng.choice(COMMON if self.rng.random() < 0.8 else CODES)
        return 0 if code in FATAL and self.rng.random() < 0.8 else code

    def some_metadata(self) -> None:
        leaders = [self.rng.choice((-1, 0, 1, 2)) for _ in range(self.rng.choice((0, 1, 2, 2, 2)))]
        errors = {"t": self.rng.choice((17, 29))} if not leaders and self.rng.random() < 0.3 else {}
        topic_id = self.rng.choice(("", "first", "first", "second"))
        self.metadata(*leaders, epoch=self.rng.randint(-1, 9), topic_id=topic_id, errors=errors)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_no_event_breaks_a_producer(block: int) -> None:
    for seed in range(block * 50, block * 50 + 50):
        chaos = Chaos(seed)
        for _ in range(120):
            chaos.anything()
            assert chaos.producer.buffered_bytes >= 0
            assert chaos.producer.unresolved >= 0
        chaos.later(5.0)
        assert (chaos.producer.unresolved, chaos.producer.buffered_bytes) == (0, 0)
        assert set(chaos.resolved.values()) == {1}
        assert not chaos.rerouted & chaos.resolved.keys()
        assert sum(batch.count for batch in (*chaos.resolved, *chaos.rerouted)) == chaos.appended


@pytest.mark.slow
def test_the_chaos_reaches_every_state() -> None:
    states = set()
    for seed in range(200):
        chaos = Chaos(seed)
        for _ in range(60):
            chaos.anything()
            states.add(chaos.producer.state)
    assert states == set(ProducerState)
