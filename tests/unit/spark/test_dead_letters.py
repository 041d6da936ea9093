"""DeadLetters writes the dead letters of a batch, then its other rows. A fake stands for Spark's DataFrame."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from streamgroup.errors import ConfigError, DeadLetterError
from streamgroup.parsing.limit import NO_DEAD_LETTERS, DeadLetterLimit, FirstDeadLetter
from streamgroup.parsing.parser import ERROR, Parser
from streamgroup.spark import dead_letters as module
from streamgroup.spark.dead_letters import DeadLetters, dead_letters
from streamgroup.spark.letter_targets import RECORD

PARSER = Parser("json", "id INT")
CONDITIONS = {f"{ERROR} IS NULL": lambda row: row is None, f"{ERROR} IS NOT NULL": lambda row: row is not None}


@dataclass
class Frame:
    """Parsed rows: only their errors, None for a row that was read."""

    errors: list[str | None]
    log: list[str]
    columns: list[str] = field(default_factory=lambda: [*RECORD])

    def persist(self, level: Any) -> Frame:
        self.log.append("persist")
        return self

    def unpersist(self) -> None:
        self.log.append("unpersist")

    def filter(self, condition: str) -> Frame:
        return Frame([error for error in self.errors if CONDITIONS[condition](error)], self.log)

    def drop(self, column: str) -> Frame:
        assert column == ERROR
        return self


class Target:
    """Keeps the dead letters, or fails."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.dead: list[str | None] = []

    def write(self, dead: Any, query_id: str, batch_id: int) -> None:
        self.log.append(f"dead letters of {query_id}, batch {batch_id}")
        self.dead += dead.errors

    def describe(self) -> str:
        return "path /dead"


class Batch:
    """One batch and all that it writes."""

    def __init__(self, errors: Iterable[str | None]) -> None:
        self.log: list[str] = []
        self.frame = Frame(list(errors), self.log)
        self.target = Target(self.log)
        self.good: list[str | None] = []
        self.letters: DeadLetters | None = None

    def write(self, rows: Any, batch: int) -> None:
        self.log.append(f"rows of batch {batch}")
        self.good += rows.errors

    def take(self, limit: DeadLetterLimit, *, has_target: bool = True) -> None:
        self.letters = DeadLetters(PARSER, self.write, self.target if has_target else None, limit)
        self.letters(self.frame, 4)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "with_parsed", lambda frame, parser, writers: frame)
    monkeypatch.setattr(module, "counts", lambda f: (len(f.errors), sum(e is not None for e in f.errors)))
    monkeypatch.setattr(module, "first_of_partitions", lambda f: [FirstDeadLetter("t", 0, len(f.errors), 7, "bad")])
    monkeypatch.setattr(module, "require_query_id", lambda: "q")
    monkeypatch.setattr(module, "groups_in_flight", lambda: ["etl"])
    monkeypatch.setattr(module, "query_in_flight", lambda: "orders")


MIXED = [None, "bad", None, None, "worse"]


def test_every_record_is_written_exactly_once_dead_letters_first(caplog: pytest.LogCaptureFixture) -> None:
    batch = Batch(MIXED)
    batch.take(DeadLetterLimit(max_records=2))
    assert caplog.messages == [
        "query orders: batch 4: 2 of 5 records are dead letters in path /dead "
        "| event=dead_letters query=orders group=etl batch=4 count=2 of=5"
    ]
    assert (batch.good, batch.target.dead) == ([None] * 3, ["bad", "worse"])
    assert batch.log == ["persist", "dead letters of q, batch 4", "rows of batch 4", "unpersist"]


def test_a_batch_without_dead_letters_writes_none() -> None:
    batch = Batch([None, None])
    batch.take(DeadLetterLimit(max_records=0))
    assert batch.log == ["persist", "rows of batch 4", "unpersist"]


def test_an_empty_batch_is_written_too() -> None:
    batch = Batch([])
    batch.take(NO_DEAD_LETTERS, has_target=False)
    assert batch.log == ["persist", "rows of batch 4", "unpersist"]


def test_above_the_limit_nothing_is_written() -> None:
    batch = Batch(MIXED)
    with pytest.raises(DeadLetterError, match=r"cannot parse 2 of 5 records in batch 4 of group 'etl'.* offset 7 "):
        batch.take(DeadLetterLimit(max_records=1))
    assert batch.log == ["persist", "unpersist"]
    assert batch.letters is not None
    assert isinstance(batch.letters.error, DeadLetterError)


def test_without_a_target_any_dead_letter_is_above_the_limit() -> None:
    batch = Batch(MIXED)
    with pytest.raises(DeadLetterError, match="set a topic or a path"):
        batch.take(NO_DEAD_LETTERS, has_target=False)
    assert batch.log == ["persist", "unpersist"]


def test_rows_are_not_written_where_dead_letters_could_not_be() -> None:
    batch = Batch(MIXED)

    def fail(*_: Any) -> None:
        raise RuntimeError("the target is down")

    batch.target.write = fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError):
        batch.take(DeadLetterLimit(max_records=2))
    assert batch.log == ["persist", "unpersist"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic": "t", "path": "/p"}, "both set"),
        ({"path": "/p", "options": {"a": "b"}}, "no topic is set"),
        ({"max_records": 3}, "no topic or path"),
        ({"topic": "t"}, "kafka.bootstrap.servers"),
        ({"path": "/p", "max_share": 2}, "invalid value 2 for max_share"),
    ],
)
def test_arguments_that_cannot_work_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        dead_letters(PARSER, lambda rows, batch: None, **given)
    assert said in str(raised.value)
