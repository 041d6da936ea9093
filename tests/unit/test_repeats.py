"""The judge of repeats (C1): a record that is there twice needs a fault that explains it."""

from __future__ import annotations

import pytest

from tests.repeats import Delivered, Faults


class PlannedQuery:
    def __init__(self, planned: int) -> None:
        self.planned = planned


def batch(query: str, number: int, planned: float, *values: str) -> Delivered:
    return Delivered(query, number, planned, values)


TAKEN_OVER = [batch("a", 3, 1.0, "x", "y"), batch("b", 7, 2.0, "y", "z")]


def faults(**planned: int) -> Faults:
    made = Faults()
    for name, count in planned.items():
        with made.fault("a kill", **{name: PlannedQuery(count)}):
            pass
    return made


def test_a_batch_in_flight_at_a_fault_may_be_delivered_again() -> None:
    assert faults(a=4).check(TAKEN_OVER) == 1
    assert Faults().check([batch("a", 0, 1.0, "x"), batch("b", 0, 2.0, "y")]) == 0


@pytest.mark.parametrize("others", [{}, {"a": 3}, {"a": 5}, {"b": 8}], ids=["none", "before", "behind", "the other's"])
def test_a_repeat_without_its_fault_is_found(others: dict[str, int]) -> None:
    with pytest.raises(AssertionError, match="batch 3 of a"):
        faults(**others).check(TAKEN_OVER)


def test_one_fault_licenses_one_batch() -> None:
    made, query = Faults(), PlannedQuery(4)
    with made.fault("a session", a=query):
        query.planned = 6
    assert made.check(TAKEN_OVER) == 1
    with pytest.raises(AssertionError, match="batch 4 of a"):
        made.check([*TAKEN_OVER, batch("a", 4, 1.5, "v"), batch("b", 8, 3.0, "v")])


def test_what_a_fault_repeats_and_another_again_needs_both() -> None:
    thrice = [*TAKEN_OVER, batch("c", 0, 3.0, "y")]
    with pytest.raises(AssertionError, match="batch 7 of b"):
        faults(a=4).check(thrice)
    assert faults(a=4, b=8).check(thrice) == 2


def test_a_record_twice_in_one_batch_is_never_licensed() -> None:
    with pytest.raises(AssertionError, match="twice in itself"):
        faults(a=1).check([batch("a", 0, 1.0, "x", "x")])
