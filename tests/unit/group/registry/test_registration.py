"""Operations in transactions."""

from __future__ import annotations

from streamgroup.group.registry.registration import OPERATIONS_MOST, in_transactions
from streamgroup.znodes import Delete


def test_operations_that_do_not_fit_into_one_transaction_take_several() -> None:
    operations = [Delete(f"/{n}") for n in range(OPERATIONS_MOST * 2 + 1)]
    parts = list(in_transactions(operations))
    assert [len(part) for part in parts] == [OPERATIONS_MOST, OPERATIONS_MOST, 1]
    assert [op for part in parts for op in part] == operations
    assert list(in_transactions([])) == []
