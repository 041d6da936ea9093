"""Every error code in an answer to Produce, beside what Java's producer does: one table, deviations with reasons.

Of Java's producer: `Sender.completeBatch`, `Sender.canRetry`, `TransactionManager.canRetry` and `handleFailedBatch` (of
Kafka 4.1), for a producer without transactional id.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streamgroup.authorization import RESOURCES
from streamgroup.errors import KAFKA_ERRORS, error_of
from streamgroup.producer.reactions import (
    PRODUCE,
    Appended,
    ProduceReaction,
    reaction_to,
    reaction_to_metadata,
    reaction_to_producer_id,
)

DOCS = Path(__file__).parents[3] / "docs" / "producer.md"
NEWER = 140
"""A code that only a newer broker knows."""
CODES = [code for code in KAFKA_ERRORS if code] + [NEWER]

JAVA: dict[int, str] = {
    10: "splits",
    45: "retries behind the missing batch, else bumps the epoch and retries",
    46: "succeeds",
    59: "bumps the epoch and retries",
}
"""Java's reaction, where it is neither to retry a retriable error nor to fail."""

DEVIATIONS: dict[int, str] = {
    -1: "a broker that failed for unknown reasons may succeed at the next attempt; ten attempts at most",
    8: "as -1",
    NEWER: "as -1",
    18: "a smaller batch fits into a segment",
    45: "the broker may have the batch, and have forgotten it: under another epoch it would be there twice",
    47: "the id is used by another producer: another id instead of failing",
    49: "as 47",
}


def javas(code: int) -> str:
    return JAVA.get(code) or ("retries" if error_of(code).retriable else "fails")


def ours(code: int) -> str:
    return {
        ProduceReaction.DELIVERED: "succeeds",
        ProduceReaction.RETRY: "retries",
        ProduceReaction.METADATA: "retries",
        ProduceReaction.UNEXPECTED: "retries",
        ProduceReaction.SPLIT: "splits",
        ProduceReaction.OUT_OF_ORDER: "retries behind the missing batch, else succeeds behind a later one or fails",
        ProduceReaction.NEW_EPOCH: "bumps the epoch and retries",
        ProduceReaction.NEW_ID: "takes another id and retries",
        ProduceReaction.FAIL: "fails",
        ProduceReaction.FATAL: "fails",
    }[reaction_to(code).reaction]


@pytest.mark.parametrize("code", CODES)
def test_the_producer_does_as_javas_but_where_a_reason_is_given(code: int) -> None:
    assert (ours(code) != javas(code)) == (code in DEVIATIONS), (code, ours(code), javas(code))


@pytest.mark.parametrize("code", [2, 10, 17, 18, 19, 21, 29, 31, 32, 43, 45, 47, 59, 76, 87, 100])
def test_these_codes_prove_that_the_leader_has_not_appended_the_batch(code: int) -> None:
    assert reaction_to(code).appended is Appended.NO


@pytest.mark.parametrize("code", [-1, 3, 5, 6, 7, 13, 20, 56, 74, NEWER])
def test_these_codes_leave_it_open(code: int) -> None:
    """The leader appends first and then waits for the other replicas."""
    assert reaction_to(code).appended is not Appended.NO


def test_the_table_in_the_docs_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| (-?\d+) \| `(\w+)` \| ([a-z ]+) \| (\w+) \|$", DOCS.read_text(), re.MULTILINE)
    assert [int(code) for code, *_ in rows] == sorted(PRODUCE)
    for code, name, reaction, appended in rows:
        row = reaction_to(int(code))
        assert (error_of(int(code)).name, row.reaction.value, row.appended.value) == (name, reaction, appended)


def test_a_code_that_fails_has_advice() -> None:
    failing = {
        ProduceReaction.FAIL,
        ProduceReaction.FATAL,
        ProduceReaction.SPLIT,
        ProduceReaction.OUT_OF_ORDER,
        ProduceReaction.NEW_ID,
    }
    for code in CODES:
        row = reaction_to(code)
        assert row.advice or row.reaction not in failing or code in RESOURCES, code


@pytest.mark.parametrize(
    ("code", "reaction"), [(29, ProduceReaction.FAIL), (17, ProduceReaction.FAIL), (3, ProduceReaction.RETRY)]
)
def test_a_topic_waits_unless_it_is_refused(code: int, reaction: ProduceReaction) -> None:
    assert reaction_to_metadata(code).reaction is reaction


@pytest.mark.parametrize(
    ("code", "reaction"),
    [
        (13, ProduceReaction.RETRY),
        (14, ProduceReaction.RETRY),
        (15, ProduceReaction.RETRY),
        (16, ProduceReaction.RETRY),
        (51, ProduceReaction.RETRY),
        (-1, ProduceReaction.RETRY),
        (NEWER, ProduceReaction.RETRY),
        (31, ProduceReaction.FATAL),
        (35, ProduceReaction.FATAL),
        (42, ProduceReaction.FATAL),
    ],
)
def test_an_id_is_asked_for_again_unless_it_is_refused(code: int, reaction: ProduceReaction) -> None:
    assert reaction_to_producer_id(code).reaction is reaction
