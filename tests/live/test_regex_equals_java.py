"""Java's regular expressions, translated, against Java's own."""

from __future__ import annotations

import pytest

from tests.live.java.write_regex_vectors import VECTORS, WRITTEN, ask, expressions
from tests.unit.test_java_regex import differences

pytestmark = pytest.mark.live


@pytest.mark.parametrize("count", [6_000, pytest.param(60_000, marks=pytest.mark.long)])
def test_java_matches_alike(count: int) -> None:
    patterns = expressions(2, count)
    assert differences(patterns, ask(patterns)) == []


def test_the_vectors_are_what_java_answers() -> None:
    rows = [line.rsplit("\t", 1) for line in VECTORS.read_text(encoding="utf-8").splitlines()]
    assert ask([pattern for pattern, _ in rows]) == [answer for _, answer in rows]
    assert [pattern for pattern, _ in rows[: len(WRITTEN)]] == list(WRITTEN)
