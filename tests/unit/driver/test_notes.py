from __future__ import annotations

import pickle

import pytest

from streamgroup.driver.notes import OptionNotesLog
from streamgroup.options.notes import Caution


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.message) for record in caplog.records]


def test_each_sentence_is_logged_once_and_a_caution_as_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    notes = OptionNotesLog()
    with caplog.at_level("INFO", "streamgroup"):
        for _ in range(2):
            notes.log(["ignored option a", Caution("anybody can read it")])
    assert said(caplog) == [("INFO", "ignored option a"), ("WARNING", "anybody can read it")]


def test_a_caution_is_logged_once_for_all_groups_of_a_process(caplog: pytest.LogCaptureFixture) -> None:
    notes = OptionNotesLog()
    with caplog.at_level("INFO", "streamgroup"):
        for group in ("g", "h", "g"):
            notes.log(["ignored option a", Caution("anybody can read it")], group)
    assert said(caplog) == [
        ("INFO", "g: ignored option a"),
        ("WARNING", "anybody can read it"),
        ("INFO", "h: ignored option a"),
    ]


def test_a_caution_stays_one_on_its_way_to_another_process() -> None:
    assert isinstance(pickle.loads(pickle.dumps(Caution("x"))), Caution)


def test_the_memory_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    notes = OptionNotesLog()
    notes.log(map(str, range(5_000)))
    assert len(notes._said) <= 1_000
