"""The worlds of the simulation, by seed, and the check of one."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from streamgroup.kafka.producer.config import Idempotence, ProducerConfig
from streamgroup.kafka.producer.machine import Producer
from tests.unit.kafka.producer.broker import Era
from tests.unit.kafka.producer.world import Faults, Plan, World

Make = Callable[[ProducerConfig, random.Random], Producer]


def mild(seed: int) -> Plan:
    """Every fault that passes within delivery.timeout.ms: everything is delivered, once and in order."""
    rng = random.Random(f"mild {seed}")
    config = ProducerConfig(
        delivery_timeout_ms=60_000,
        request_timeout_ms=1_000,
        linger_ms=rng.choice((0, 5)),
        batch_size=rng.choice((20, 60, 200)),
        max_in_flight=rng.choice((1, 2, 5, 5)),
    )
    return Plan(
        config,
        Faults(
            cut=0.08, move=0.05, odd=0.04, isr=0.04, pause=0.03, throttle=0.05, down=0.02, restart=0.02, expiry=0.02
        ),
        era=rng.choice((Era.MIDDLE, Era.MODERN)),
        version=rng.choice((5, 9, 12)),
        most_records=rng.choice((1_000, 4)),
        appends=rng.choice((8, 16)),
    )


def without_restarts(seed: int) -> Plan:
    """As `mild`, but brokers never restart: they remember the last batches of a producer."""
    plan = mild(seed)
    return replace(plan, faults=replace(plan.faults, restart=0.0))


def harsh(seed: int) -> Plan:
    """Faults that outlast the timeouts, and brokers that forget the producer or are told to fence it."""
    rng = random.Random(f"harsh {seed}")
    config = ProducerConfig(
        delivery_timeout_ms=rng.choice((700, 1_500, 4_000)),
        request_timeout_ms=rng.choice((300, 600)),
        linger_ms=rng.choice((0, 5)),
        batch_size=rng.choice((20, 60, 200)),
        max_in_flight=rng.choice((1, 2, 5, 5)),
        retries=rng.choice((2**31 - 1, 3)),
    )
    return Plan(
        config,
        Faults(
            cut=0.1, move=0.06, odd=0.05, isr=0.1, pause=0.1, throttle=0.05, down=0.05, restart=0.03, expiry=0.1,
            fenced=rng.choice((0.0, 0.05)),
        ),
        era=rng.choice(list(Era)),
        version=rng.choice((5, 9, 12)),
        first_epoch=rng.choice((0, 0, 32_765, 32_767)),
        most_records=rng.choice((1_000, 4, 2)),
        longest_pause_s=rng.choice((0.5, 2.5)),
        appends=rng.choice((8, 16)),
    )  # fmt: skip


def without_idempotence(seed: int) -> Plan:
    """As `mild`: nothing acknowledged is lost, and with one request in flight the order is kept."""
    plan = mild(seed)
    rng = random.Random(f"plain {seed}")
    config = ProducerConfig(
        idempotence=Idempotence.OFF,
        delivery_timeout_ms=60_000,
        request_timeout_ms=1_000,
        batch_size=rng.choice((20, 60)),
        max_in_flight=rng.choice((1, 5)),
    )
    return Plan(config, plan.faults, version=plan.version, appends=plan.appends)


def wrong_in(plan: Plan, seed: int, make: Make = Producer) -> list[str]:
    """The faults found in one world. A defect that raises is wrong, too."""
    try:
        world = World(plan, seed, make).run()
    except (AssertionError, ValueError, IndexError) as error:
        return [f"raised {error!r}"]
    late = [f"{o.uids} failed: {o.error}" for o in world.failures()] if plan.config.delivery_timeout_ms > 50_000 else []
    return world.wrong + late


def first_wrong(plan: Callable[[int], Plan], seeds: range, make: Make = Producer) -> str | None:
    """The first of `seeds` in whose world something is wrong, and what; None where all is right."""
    for seed in seeds:
        wrong = wrong_in(plan(seed), seed, make)
        if wrong:
            return f"{plan.__name__} {seed}: {wrong[0]}"
    return None
