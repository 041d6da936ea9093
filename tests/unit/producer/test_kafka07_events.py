"""A message set of Kafka 0.7: the unit that the producer sends, reads back and resolves."""

from __future__ import annotations

import pytest

from streamgroup.producer.kafka07_events import ConnectionLost07, MessageSet, MessageSetState
from streamgroup.wire.kafka07 import message_set07
from tests.fakes.broker07 import tp

EMPTY_MESSAGE_BYTES = 10
"""Length, magic, attributes and checksum of a message of 0.7."""


@pytest.mark.parametrize("payloads", [(), (b"",), (b"a", b"bcd")])
def test_the_size_of_a_set_is_that_of_its_bytes_as_the_broker_stores_them(payloads: tuple[bytes, ...]) -> None:
    data = message_set07(payloads)
    expected = sum(EMPTY_MESSAGE_BYTES + len(payload) for payload in payloads)
    for stored in (data, bytearray(data), memoryview(data)):
        assert MessageSet(tp(0, 0), stored, len(payloads)).size == expected


def test_a_new_set_waits_for_its_first_attempt_at_its_own_broker() -> None:
    new = MessageSet(tp(2, 17), message_set07([b"a"]), 1)
    assert (new.state, new.attempts, new.cause) == (MessageSetState.QUEUED, 0, "")
    assert not new.movable


def test_two_sets_with_the_same_records_are_two_sets() -> None:
    one, other = (MessageSet(tp(0, 0), message_set07([b"a"]), 1) for _ in range(2))
    assert one != other
    assert [other, one].index(one) == 1
    assert len({one, other}) == 2


def test_a_lost_connection_leaves_every_pending_request_sent_unless_the_shell_says_so() -> None:
    assert ConnectionLost07(0, "reset by peer").unsent == frozenset()
