"""A result is kept for as long as its inputs are the very same objects."""

from __future__ import annotations

from streamgroup.coordinator.planning.memo import Memo


def test_what_was_computed_is_kept_until_an_input_is_another_object() -> None:
    memo: Memo[list[int]] = Memo()
    one, other = [1, 2], [1, 2]
    first = memo.get(lambda: [1], one, "x")
    assert memo.get(lambda: [2], one, "x") is first
    assert memo.get(lambda: [3], other, "x") == [3], "equal, and another object"
    assert memo.get(lambda: [4], one, "x") == [4], "only the newest is kept"
    assert memo.get(lambda: [5], one) == [5], "and only for as many inputs"


def test_a_result_that_is_false_is_kept_too() -> None:
    memo: Memo[bool] = Memo()
    key = object()
    assert memo.find(key) is None
    assert memo.keep(False, key) is False
    assert memo.get(lambda: True, key) is False
