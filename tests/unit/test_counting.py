from __future__ import annotations

import pytest

from streamgroup.counting import counted, first_of


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "record", "0 records"),
        (1, "record", "1 record"),
        (2, "record", "2 records"),
        (1, "batch", "1 batch"),
        (12, "batch", "12 batches"),
    ],
)
def test_a_noun_is_plural_but_after_one(count, noun, text):
    assert counted(count, noun) == text


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["a", "b"], "a, b"),
        (["a", "b", "c"], "a, b and 1 more topic"),
        (["a", "b", "c", "d"], "a, b and 2 more topics"),
    ],
)
def test_the_names_beyond_the_first_are_counted(names: list[str], text: str) -> None:
    assert first_of(names, 2, "topic") == text


def test_causes_are_separated_by_semicolons() -> None:
    assert first_of(["a, b", "c", "d"], 2, "cause", "; ") == "a, b; c and 1 more cause"
