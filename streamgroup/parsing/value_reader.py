"""The base of readers that turn values into Arrow columns, one record at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from streamgroup.parsing.framing import UnreadableError, reason_of


class ValueReader(ABC):
    """Reads values. `type` has the columns."""

    type: pa.StructType

    @abstractmethod
    def read(self, value: bytes) -> Any:
        """Return the fields of a value. Raises UnreadableError with the reason."""

    def columns(self, values: Iterable[bytes | None]) -> tuple[pa.Array, list[str | None]]:
        """Return the fields of the values, and for each value the reason why it cannot be read, or None."""
        fields: list[Any] = []
        errors: list[str | None] = []
        for value in values:
            found, error = None, None
            if value is not None:
                try:
                    found = self.read(value)
                except UnreadableError as unreadable:
                    error = str(unreadable)
            fields.append(found)
            errors.append(error)
        try:
            return pa.array(fields, self.type), errors
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            return self._one_by_one(fields, errors)

    def _one_by_one(self, fields: list[Any], errors: list[str | None]) -> tuple[pa.Array, list[str | None]]:
        """Find the values that have no place in the columns, such as a timestamp beyond the year 290 000."""
        for n, found in enumerate(fields):
            try:
                pa.array([found], self.type)
            except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                fields[n], errors[n] = None, f"a field does not fit its column: {reason_of(error, named=False)}"
        return pa.array(fields, self.type), errors
