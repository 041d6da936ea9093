"""The offsets that a batch has left in the logs, from the offsets that Spark shows in a query's progress."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def offsets_behind(end: Any, latest: Any) -> list[int]:
    """Return for each partition held the number of offsets from a batch's end to the end of its log, none below 0.

    `end` is the end document of the batch and `latest` the end offsets of the logs, `{"orders": {"0": 110}}`. Both are
    JSON texts or values. A partition that one of them lacks is left out. For Kafka 0.7 the numbers are bytes.
    """
    positions, behind = _mapping(_mapping(end).get("positions")), []
    for topic, partitions in _mapping(latest).items():
        held = _mapping(positions.get(topic))
        for number, log_end in _mapping(partitions).items():
            if number in held and isinstance(log_end, int):
                behind.append(max(0, log_end - int(held[number][0])))
    return behind


def offset_metrics(behind: list[int]) -> dict[str, str]:
    """Return the metrics of Spark's Kafka source (KafkaMicroBatchStream.metrics); empty if no partition is known."""
    if not behind:
        return {}
    return {
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "minOffsetsBehindLatest": str(min(behind)),
    }


def _mapping(offset: Any) -> Mapping[str, Any]:
    """Return an offset of a progress, text or value, as a mapping; empty for anything else."""
    try:
        value = json.loads(offset) if isinstance(offset, str) else offset
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, Mapping) else {}
