"""The options of `pause` and `resume`, which both commands get as one value."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamgroup.cli._help import json_option
from streamgroup.cli._partition_names import partitions_option
from streamgroup.cli._running import query_options
from streamgroup.model import TopicPartition


@dataclass(frozen=True, slots=True)
class PauseRequest:
    """The query that the command line chooses, and its partitions; no partitions are the whole query."""

    groups: tuple[str, ...]
    member: str | None
    pid: int | None
    lists: bool
    partitions: tuple[TopicPartition, ...]
    as_json: bool


def pause_options(partitions_help: str) -> Callable[[Any], Any]:
    """Add the options to a command, which gets them as `request`. `--topic-partition` has the given help."""

    def add(command: Any) -> Any:
        @functools.wraps(command)
        def with_request(**options: Any) -> Any:
            return command(PauseRequest(**options))

        with_json = json_option("Print the query and its paused partitions as JSON.")(with_request)
        return query_options(partitions_option(partitions_help)(with_json))

    return add
