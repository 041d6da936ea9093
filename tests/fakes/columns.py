"""Rows and columns of Spark in memory: the part of DataFrame, Column and `pyspark.sql.functions` that needs no parser.

A column is a function of a row, and a struct is a dict. Null is None, as Spark has it: a condition that is null does
not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

Row = Mapping[str, Any]
Compute = Callable[[Row], Any]


class Column:
    """A value of each row. `name` is the one that it has in a select."""

    def __init__(self, compute: Compute, name: str = "") -> None:
        self.compute = compute
        self.name = name

    def alias(self, name: str) -> Column:
        return Column(self.compute, name)

    def cast(self, to: str) -> Column:
        return Column(lambda row: _cast(self.compute(row), to), self.name)

    def isNull(self) -> Column:  # noqa: N802  (Spark's name)
        return Column(lambda row: self.compute(row) is None)

    def getField(self, name: str) -> Column:  # noqa: N802
        return Column(lambda row: _of_null(self.compute(row), lambda fields: fields[name]), name)

    def __getattr__(self, name: str) -> Column:
        return self.getField(name)

    def __invert__(self) -> Column:
        return Column(lambda row: _of_null(self.compute(row), lambda value: not value))


class When(Column):
    """`when(condition, value)`: null where the condition does not hold, unless `otherwise` says more."""

    def __init__(self, condition: Column, value: Any) -> None:
        self._condition = condition
        self._value = _column(value)
        super().__init__(lambda row: self._choose(row, Column(lambda _: None)))

    def otherwise(self, value: Any) -> Column:
        return Column(lambda row: self._choose(row, _column(value)))

    def _choose(self, row: Row, other: Column) -> Any:
        return (self._value if self._condition.compute(row) else other).compute(row)


class Functions:
    """Stands for the module `pyspark.sql.functions`."""

    @staticmethod
    def col(name: str) -> Column:
        return Column(lambda row: row[name], name)

    @staticmethod
    def lit(value: Any) -> Column:
        return Column(lambda _: value)

    @staticmethod
    def when(condition: Column, value: Any) -> When:
        return When(condition, value)

    @staticmethod
    def coalesce(*columns: Column) -> Column:
        return Column(lambda row: next((v for c in columns if (v := c.compute(row)) is not None), None))

    @staticmethod
    def struct(*columns: Column) -> Column:
        return Column(lambda row: {column.name: column.compute(row) for column in columns})

    @staticmethod
    def array(*columns: Column) -> Column:
        return Column(lambda row: [column.compute(row) for column in columns])

    @staticmethod
    def concat(*arrays: Column) -> Column:
        def joined(row: Row) -> Any:
            parts = [array.compute(row) for array in arrays]
            return None if None in parts else [value for part in parts for value in part]

        return Column(joined)

    @staticmethod
    def filter(array: Column, condition: Callable[[Column], Column]) -> Column:
        def holds(value: Any) -> Any:
            return condition(Column(lambda _: value)).compute({})

        return Column(lambda row: _of_null(array.compute(row), lambda values: [v for v in values if holds(v)]))

    @staticmethod
    def unix_millis(column: Column) -> Column:
        return Column(lambda row: _of_null(column.compute(row), _milliseconds))


class Frame:
    """A DataFrame. `writes` has what was written: the calls that say where, and the rows."""

    def __init__(
        self, rows: Iterable[Row], columns: Sequence[str], writes: list[tuple[Any, ...]] | None = None
    ) -> None:
        self.rows = [dict(row) for row in rows]
        self.columns = list(columns)
        self.writes: list[tuple[Any, ...]] = [] if writes is None else writes

    def select(self, *columns: str | Column) -> Frame:
        taken = [Functions.col(column) if isinstance(column, str) else column for column in columns]
        names = [column.name for column in taken]
        assert all(names), "each column has a name"
        rows = [{column.name: column.compute(row) for column in taken} for row in self.rows]
        return Frame(rows, names, self.writes)

    def withColumn(self, name: str, column: Column) -> Frame:  # noqa: N802  (Spark's name)
        names = [other for other in self.columns if other != name]
        rows = [{**row, name: column.compute(row)} for row in self.rows]
        return Frame(rows, self.columns if name in self.columns else [*names, name], self.writes)

    def drop(self, name: str) -> Frame:
        left = [other for other in self.columns if other != name]
        return Frame([{other: row[other] for other in left} for row in self.rows], left, self.writes)

    @property
    def write(self) -> Writer:
        return Writer(self)


class Writer:
    """A DataFrameWriter."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._where: dict[str, Any] = {}

    def format(self, source: str) -> Writer:
        self._where["format"] = source
        return self

    def mode(self, mode: str) -> Writer:
        self._where["mode"] = mode
        return self

    def options(self, **options: str) -> Writer:
        self._where["options"] = options
        return self

    def parquet(self, path: str) -> None:
        self._where |= {"format": "parquet", "path": path}
        self.save()

    def save(self) -> None:
        self._frame.writes.append((self._where, self._frame.rows))


def _column(value: Any) -> Column:
    return value if isinstance(value, Column) else Functions.lit(value)


def _of_null(value: Any, of: Callable[[Any], Any]) -> Any:
    return None if value is None else of(value)


def _cast(value: Any, to: str) -> Any:
    if to == "string":
        return _of_null(value, str)
    if to == "binary":
        return _of_null(value, lambda text: text.encode())
    assert to.startswith("array<"), to
    return value


def _milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)
