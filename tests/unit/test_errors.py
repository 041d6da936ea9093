from __future__ import annotations

import pickle

import pytest

from streamgroup.errors import KAFKA_ERRORS, BrokerError, ErrorCode, KafkaError, Refresh, StreamGroupError, error_of


def test_the_table_has_every_code_of_kafka_4_1_once() -> None:
    assert sorted(KAFKA_ERRORS) == list(range(-1, 134))
    assert len({row.name for row in KAFKA_ERRORS.values()}) == len(KAFKA_ERRORS)
    assert all(row.code == code and row.text for code, row in KAFKA_ERRORS.items())


@pytest.mark.parametrize("code", ErrorCode, ids=lambda code: code.name)
def test_a_code_that_code_names_has_its_row(code: ErrorCode) -> None:
    assert error_of(code).name == code.name


def test_only_a_retriable_error_asks_for_a_refresh() -> None:
    assert all(row.retriable for row in KAFKA_ERRORS.values() if row.refresh is not Refresh.NONE)


@pytest.mark.parametrize(
    ("code", "retriable", "refresh"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True, Refresh.METADATA),
        (ErrorCode.NOT_COORDINATOR, True, Refresh.COORDINATOR),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, True, Refresh.NONE),
        (ErrorCode.ILLEGAL_GENERATION, False, Refresh.NONE),
        (ErrorCode.UNKNOWN_SERVER_ERROR, False, Refresh.NONE),
    ],
)
def test_what_is_to_be_done(code: int, retriable: bool, refresh: Refresh) -> None:
    row = error_of(code)
    assert (row.retriable, row.refresh) == (retriable, refresh)


@pytest.mark.parametrize("code", [-2, 134, 32767])
def test_a_code_of_a_newer_broker_is_named_and_final(code: int) -> None:
    row = error_of(code)
    assert (row.code, row.name, row.retriable, row.refresh) == (code, f"UNKNOWN_{code}", False, Refresh.NONE)


@pytest.mark.parametrize("error", [29, KAFKA_ERRORS[29]])
def test_a_broker_error_says_what_was_asked_and_what_came(error: int | KafkaError) -> None:
    raised = BrokerError(error, "fetching orders-3")
    assert isinstance(raised, StreamGroupError)
    assert str(raised) == "fetching orders-3: TOPIC_AUTHORIZATION_FAILED (29): no permission on the topic"
    assert (raised.code, raised.name, raised.retriable) == (29, "TOPIC_AUTHORIZATION_FAILED", False)
    assert raised.refresh is Refresh.NONE


def test_a_broker_error_crosses_processes() -> None:
    raised = pickle.loads(pickle.dumps(BrokerError(6, "fetching orders-3")))
    assert isinstance(raised, BrokerError)
    assert (raised.code, raised.context) == (6, "fetching orders-3")
