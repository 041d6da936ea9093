"""The data source that carries a Spark Connect client's requests to the coordinators, in a process of the server.

A read of it is one request. Spark calls `partitions` once for a read, in a process whose ancestor is the driver's JVM.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from streamgroup.driver.application import control
from streamgroup.driver.application.drains import drain_together
from streamgroup.driver.application.parent import find_jvm
from streamgroup.errors import ConfigError
from streamgroup.spark.channel import SunkNotifier

NAME = "streamgroup_control"
REQUEST = "request"


class ControlDataSource(DataSource):
    """A source of one row, the answer of the coordinators to the request in its option."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        """Return the schema of the row: JSON."""
        return "answer STRING"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader that carries the request out."""
        return ControlReader(str(self.options.get(REQUEST, "")))


class ControlAnswer(InputPartition):
    """The answer, on its way to the task that returns it."""

    def __init__(self, text: str) -> None:
        super().__init__(None)
        self.text = text


class ControlReader(DataSourceReader):
    """Carries out a request while Spark plans the read."""

    def __init__(self, request: str) -> None:
        self._request = request

    def partitions(self) -> Sequence[InputPartition]:
        """Carry the request out. Raises ConfigError if it is not one of this source, or outside of a driver."""
        jvm = find_jvm()
        if jvm is None:
            raise ConfigError(
                "cannot find the driver's JVM among the ancestors of this process. If PYSPARK_PYTHON is a wrapper "
                "script, start Python in it with `exec`"
            )
        try:
            request = control.read_message(self._request.encode())
        except ValueError as error:
            raise ConfigError(
                f"invalid request to the coordinators: {error}. Read with format('streamgroup')"
            ) from error
        return [ControlAnswer(json.dumps(carry_out(jvm, request)))]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        """Return the answer as the only row."""
        assert isinstance(partition, ControlAnswer)
        yield (partition.text,)


def carry_out(jvm: int, request: Mapping[str, Any]) -> Any:
    """Return the answer of the coordinators of the driver `jvm` to a request. Raises ConfigError for an unknown one."""
    match request:
        case {"request": "statuses"}:
            return control.statuses(jvm)
        case {"request": "drain", "runs": list(runs), "timeout": int() | float() as timeout}:
            return drain_together(jvm, runs, timeout)
        case {"request": "sunk", "documents": list(documents), "batch": int(batch), "query": dict(query)}:
            return SunkNotifier(jvm).notify(documents, batch, query)
        case {"request": "groups", "documents": list(documents)}:
            return SunkNotifier(jvm).groups_joined(documents)
    raise ConfigError(f"not a request to the coordinators: {request.get('request')!r}. Read with format('streamgroup')")
