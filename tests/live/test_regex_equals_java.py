"""Java's regular expressions, translated, against Java's own."""

from __future__ import annotations

import pytest

from tests.live.java.write_regex_vectors import VECTORS, WRITTEN, ask, expressions
from tests.unit.test_java_regex import differences

pytestmark = pytest.mark.live


def test_java_matches_alike() -> None:
    patterns = expressions(2, 20_000)
    assert differences(patterns, ask(patterns)) == []


def test_the_vectors_are_what_java_answers() -> None:
    rows = [line.rsplit("\t", 1) for line in VECTORS.read_text(encoding="utf-8").splitlines()]
    assert ask([pattern for pattern, _ in rows]) == [answer for _, answer in rows]
    assert [pattern for pattern, _ in rows[: len(WRITTEN)]] == list(WRITTEN)
