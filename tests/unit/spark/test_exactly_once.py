"""The attempts of a batch in transactions of Kafka: which error ends them. The brokers and the tasks are left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from pyspark.sql.conf import RuntimeConfig

from streamgroup.errors import ConfigError, FencedError, TransactionAbortedError, TransportError
from streamgroup.kafka.producer.transaction import TransactionalId
from streamgroup.options.parse import parse_sink
from streamgroup.spark.exactly_once import _Part, _TransactionWriter, require_checksums

OPTIONS = parse_sink({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "copy"})
REPEATED, UNANSWERED, FENCED = (
    TransactionAbortedError("repeated"),
    TransportError("no answer"),
    FencedError("taken over"),
)


class Writer(_TransactionWriter):
    """Its attempts end with these errors, None for one that is committed; its aborts with `aborted`."""

    def __init__(self, errors: Sequence[Exception | None], aborted: FencedError | None) -> None:
        super().__init__(OPTIONS, _Part("run", 1, "g", TransactionalId("id", 1000), (), {}), 0, speculates=False)
        self._errors: Iterator[Exception | None] = iter(errors)
        self._aborted = aborted
        self.attempts = 0

    def _begin(self) -> Any:
        self.attempts += 1

    def _write_records(self, *_: Any, **__: Any) -> int:
        error = next(self._errors)
        if error is not None:
            raise error
        return 0

    def _abort(self) -> FencedError | None:
        return self._aborted


def attempts(errors: Sequence[Exception | None], aborted: FencedError | None = None) -> int:
    writer = Writer(errors, aborted)
    try:
        writer.write(None, None, 1, (), clustered=False)  # type: ignore[arg-type]
    finally:
        writer.close()
    return writer.attempts


def test_a_batch_whose_task_was_run_again_is_written_again() -> None:
    assert attempts([REPEATED, REPEATED, REPEATED, None]) == 4
    with pytest.raises(TransactionAbortedError):
        attempts([REPEATED] * 4)


def test_no_attempt_follows_if_another_run_has_taken_over() -> None:
    with pytest.raises(FencedError):
        attempts([REPEATED, None], FENCED)


def test_a_commit_without_an_answer_ends_the_query_with_its_own_error() -> None:
    """If the commit was carried out, the brokers refuse the abort, although no other run has taken over."""
    with pytest.raises(TransportError):
        attempts([UNANSWERED], FENCED)


@pytest.mark.parametrize("option", ["enabled", "enableFullRetryOnMismatch"])
def test_a_shuffle_whose_repetitions_spark_does_not_compare_is_refused(option: str) -> None:
    name = f"spark.sql.shuffle.orderIndependentChecksum.{option}"
    require_checksums(FakeConf())
    require_checksums(FakeConf({name: "true"}))
    with pytest.raises(ConfigError, match=f"while {name} is false.*Leave the option out"):
        require_checksums(FakeConf({name: "false"}))


class FakeConf(RuntimeConfig):
    """The options of a session."""

    def __init__(self, options: dict[str, str] | None = None) -> None:
        self._options = options or {}

    def get(self, key: str, default: Any = None) -> Any:
        return self._options.get(key, default)
