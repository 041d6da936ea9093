"""Any events and any error codes at any time: no step raises, and every batch is resolved once and in time."""

from __future__ import annotations

import random

import pytest

from streamgroup.errors import KAFKA_ERRORS
from streamgroup.kafka.producer import events as ev
from streamgroup.kafka.producer.batch import BatchState, ProducerBatch
from streamgroup.kafka.producer.bookkeeping import ProducerState
from streamgroup.kafka.producer.config import Idempotence
from tests.unit.kafka.producer.drivers import P0, P1, Driver
from tests.unit.kafka.producer.world import Records

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
