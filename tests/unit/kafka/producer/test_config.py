"""The configuration of a producer: a combination that Java's producer refuses is an error that names the options."""

from __future__ import annotations

import pytest

from streamgroup.errors import ConfigError
from streamgroup.kafka.producer.config import MOST_IN_FLIGHT, Idempotence, ProducerConfig


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"acks": 2}, "invalid acks 2"),
        ({"delivery_timeout_ms": 10}, "delivery.timeout.ms=10 is below"),
        ({"idempotence": Idempotence.REQUIRED, "acks": 1}, "enable.idempotence=true needs acks=all"),
        ({"idempotence": Idempotence.REQUIRED, "max_in_flight": 6}, "at most 5"),
        ({"idempotence": Idempotence.REQUIRED, "retries": 0}, "retries of at least 1"),
    ],
)
def test_a_combination_that_cannot_work_is_refused(config: dict[str, int], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ProducerConfig(**config)  # type: ignore[arg-type]


@pytest.mark.parametrize("config", [{"acks": 1}, {"acks": 0}, {"max_in_flight": 6}, {"retries": 0}])
def test_options_that_forbid_idempotence_turn_its_default_off(config: dict[str, int]) -> None:
    assert not ProducerConfig(**config).wants_idempotence  # type: ignore[arg-type]


def test_a_delivery_timeout_of_exactly_one_lingering_and_one_request_is_enough() -> None:
    config = ProducerConfig(linger_ms=5, request_timeout_ms=100, delivery_timeout_ms=105)
    assert config.delivery_timeout_ms == 105
    with pytest.raises(ConfigError) as raised:
        ProducerConfig(linger_ms=5, request_timeout_ms=100, delivery_timeout_ms=104)
    assert str(raised.value) == (
        "delivery.timeout.ms=104 is below linger.ms=5 plus request.timeout.ms=100: increase it, or decrease one of the "
        "two"
    )


@pytest.mark.parametrize("acks", [-2, 2, 3])
def test_acks_that_kafka_does_not_have_are_refused_with_those_that_it_has(acks: int) -> None:
    with pytest.raises(ConfigError, match=rf"^invalid acks {acks}: expected 0, 1 or all \(-1\)$"):
        ProducerConfig(acks=acks)


@pytest.mark.parametrize(("in_flight", "wants"), [(0, False), (1, True), (MOST_IN_FLIGHT, True), (6, False)])
def test_idempotence_allows_as_many_requests_in_flight_as_a_broker_remembers_batches(
    in_flight: int, wants: bool
) -> None:
    assert ProducerConfig(max_in_flight=in_flight).wants_idempotence is wants
    if not wants:
        with pytest.raises(ConfigError, match=f"here they are -1, {in_flight} and 2147483647. Change them, or leave"):
            ProducerConfig(max_in_flight=in_flight, idempotence=Idempotence.REQUIRED)
