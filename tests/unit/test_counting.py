from __future__ import annotations

import pytest

from streamgroup.counting import counted


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
