"""Lines for people and programs."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.logline import message_of, parse, render, snake_case

VALUES = st.one_of(st.text(), st.integers(), st.booleans())


@pytest.mark.slow
@given(st.text(), st.dictionaries(st.from_regex(r"[a-z_]{1,9}", fullmatch=True), VALUES, max_size=4))
def test_one_line_from_which_the_fields_come_back(words: str, fields: dict[str, str | int | bool]) -> None:
    fields.pop("event", None)
    fields.pop("words", None)
    line = render(words, "fence", **fields)
    assert len(line.splitlines()) == 1
    assert line.isprintable() or not words.isprintable()
    told = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in fields.items()}
    assert parse(line) == {"event": "fence", **told}


def test_a_line_reads_as_plain_words_first() -> None:
    line = render(
        "joined g, generation 3", "rebalance", group="g", generation=3, reason="the query starts", member=None
    )
    assert line == 'joined g, generation 3 | event=rebalance group=g generation=3 reason="the query starts"'
    assert message_of(line) == "joined g, generation 3"


def test_a_reason_that_looks_like_a_line_breaks_nothing() -> None:
    reason = 'he said " | event=fence count=9" \n and more'
    line = render(reason, "repeat", reason=reason, count=1)
    assert parse(line) == {"event": "repeat", "reason": reason, "count": "1"}


def test_a_log_formats_prefix_does_not_matter_and_other_lines_are_none() -> None:
    record = logging.makeLogRecord({"msg": "%s", "args": (render("w", "skip", count=2),), "levelname": "ERROR"})
    line = logging.Formatter("%(asctime)s %(levelname)s streamgroup: %(message)s").format(record)
    assert parse(line + "\n") == {"event": "skip", "count": "2"}
    assert parse("an ordinary line | count=3") == {}
    assert parse(r'another program | event=skip why="\q"') == {}
    assert message_of("an ordinary line") == "an ordinary line"


def test_a_name_of_sparks_becomes_a_key() -> None:
    assert snake_case("maxOffsetsBehindLatest") == "max_offsets_behind_latest"
    assert snake_case("rows") == "rows"
