"""What is asked for by token, and timers."""

from __future__ import annotations

from streamgroup.group.registry.asking import OPERATIONS_MOST, Ask, Asking, Due
from streamgroup.group.registry.claims import in_transactions
from streamgroup.znodes import Check, Delete, Subtree


def test_every_question_has_a_token_of_its_own_and_is_answered_once() -> None:
    asking = Asking()
    look = asking.look(Ask.LOOK, [Subtree("/a")], 1.0)
    write = asking.transact(Ask.CLAIM, [Check("/a")], 2.0)
    assert look.token != write.token
    asked = asking.take(write.token)
    assert asked is not None
    assert (asked.ask, asked.sent_at) == (Ask.CLAIM, 2.0)
    assert asking.take(write.token) is None
    assert asking.is_pending(Ask.LOOK, Ask.CLAIM)
    assert not asking.is_pending(Ask.CLAIM)


def test_heartbeats_go_beside_everything_else() -> None:
    asking = Asking()
    asking.look(Ask.HEARTBEAT, [], 0.0)
    assert not asking.busy
    asking.look(Ask.CONFIRM, [], 0.0)
    assert asking.busy
    asking.reset()
    assert not asking.busy


def test_timers_are_due_in_their_order_and_once() -> None:
    asking = Asking()
    asking.set(Due.HEARTBEAT, 5.0)
    asking.set(Due.REJOIN, 6.0)
    asking.set(Due.RETRY, 9.0)
    assert asking.wake_at == 5.0
    assert asking.take_due(4.9) is None
    assert [asking.take_due(8.0), asking.take_due(8.0), asking.take_due(8.0)] == [Due.REJOIN, Due.HEARTBEAT, None]
    asking.clear(Due.RETRY)
    assert asking.wake_at is None


def test_what_does_not_fit_into_one_transaction_takes_several() -> None:
    operations = [Delete(f"/{n}") for n in range(OPERATIONS_MOST * 2 + 1)]
    parts = list(in_transactions(operations))
    assert [len(part) for part in parts] == [OPERATIONS_MOST, OPERATIONS_MOST, 1]
    assert [op for part in parts for op in part] == operations
    assert list(in_transactions([])) == []
