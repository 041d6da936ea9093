from __future__ import annotations

import click
import pytest

from streamgroup.cli._durations import Duration


@pytest.mark.parametrize(
    ("text", "ms", "seconds"),
    [
        ("5000", 5000, 5000),
        ("1500ms", 1500, 1.5),
        ("30s", 30_000, 30),
        ("0.5s", 500, 0.5),
        ("5m", 300_000, 300),
        ("1h", 3_600_000, 3600),
    ],
)
def test_a_number_counts_in_the_options_unit_unless_it_has_one(text: str, ms: int, seconds: float) -> None:
    assert Duration("ms", 1).convert(text, None, None) == ms
    assert Duration("s", 0).convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1s", "1 s", "1d", "1e3", "nan", "1s2", "٣"])
def test_another_text_is_an_error_that_names_the_units(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"expected milliseconds, or with a unit: 500ms, 30s, 5m"):
        Duration("ms", 1).convert(text, None, None)


@pytest.mark.parametrize("text", ["0", "0.4ms", "2h"])
def test_a_duration_beyond_the_limits_is_an_error_that_names_them(text: str) -> None:
    with pytest.raises(click.BadParameter, match="expected 1 to 3600000 milliseconds"):
        Duration("ms", 1, 3_600_000).convert(text, None, None)
