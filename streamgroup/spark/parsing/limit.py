"""The limit of dead letters in one batch, and the error above it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from streamgroup.errors import ConfigError
from streamgroup.frozen import frozen
from streamgroup.text import counted

DEFAULT_SHARE = 0.1
"""The share if neither limit is set: a wrong schema must not turn a whole topic into dead letters."""
_MOST_SHOWN = 10


@frozen
class DeadLetterLimit:
    """How many records of one batch may be dead letters. If both limits are set, both apply.

    `max_share` is a share of the batch's records from 0 to 1, rounded up to whole records. So a small batch may have
    one dead letter, unless the share is 0.
    """

    max_records: int | None = None
    max_share: float | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError for a limit below 0 or a share above 1."""
        if self.max_records is not None and self.max_records < 0:
            raise ConfigError(f"invalid value {self.max_records} for max_records: expected a number from 0 on")
        if self.max_share is not None and not 0 <= self.max_share <= 1:
            raise ConfigError(f"invalid value {self.max_share} for max_share: expected a number from 0 to 1")

    def allowed(self, records: int) -> int:
        """Return how many of `records` may be dead letters."""
        share = self.max_share
        if share is None:
            share = DEFAULT_SHARE if self.max_records is None else 1.0
        # As a fraction of the decimal text: 0.07 * 100 is 7.000000000000001 as a float, which would round up to 8.
        of_share = math.ceil(Fraction(str(share)) * records)
        return of_share if self.max_records is None else min(self.max_records, of_share)

    def words(self, records: int) -> str:
        """Return how many of `records` the limit allows, with its settings."""
        given = {"max_records": self.max_records, "max_share": self.max_share}
        names = [f"{name} = {value}" for name, value in given.items() if value is not None]
        return f"{self.allowed(records)} ({' and '.join(names) or f'max_share = {DEFAULT_SHARE}, the default'})"


NO_DEAD_LETTERS = DeadLetterLimit(max_records=0)
"""The limit without a target for dead letters."""


@frozen
class FirstDeadLetter:
    """The dead letters of one topic-partition in a batch: their number, and offset and error of the first."""

    topic: str
    partition: int
    count: int
    offset: int
    error: str


def text_above_limit(
    batch: int,
    groups: Sequence[str],
    *,
    dead: int,
    records: int,
    limit: DeadLetterLimit,
    first: Sequence[FirstDeadLetter],
) -> str:
    """Return the message of the error for a batch with more dead letters than `limit` allows."""
    whose = "".join(f" of group {group!r}" for group in groups)
    shown = [
        f"{one.topic}-{one.partition}: {counted(one.count, 'record')}, the first at offset {one.offset} ({one.error})"
        for one in first[:_MOST_SHOWN]
    ]
    more = f"; and {counted(len(first) - _MOST_SHOWN, 'more partition')}" if len(first) > _MOST_SHOWN else ""
    if limit == NO_DEAD_LETTERS:
        above, steps = "", "set a topic or a path for dead letters"
    else:
        above, steps = f", more than the {limit.words(records)} that may be dead letters", "raise the limit"
    what = f"cannot parse {dead} of {counted(records, 'record')} in batch {batch}{whose}{above}"
    return (
        f"{what}: {'; '.join(shown)}{more}. The query has written no row and no dead letter of this batch, and has "
        f"not committed it. Correct the parser, or {steps}; the next start reads the batch again"
    )
