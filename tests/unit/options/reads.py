"""Streams and batch reads with the least options that work, and what a test changes of them."""

from __future__ import annotations

from typing import Any

from streamgroup.model import TopicPartition
from streamgroup.options.parse import parse_source

STREAM = {"kafka.bootstrap.servers": "b1:9092", "subscribe": "orders", "kafka.group.id": "etl"}
BATCH = {"kafka.bootstrap.servers": "b1:9092", "subscribe": "orders"}
A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def stream(**changes: Any) -> Any:
    return parse_source(_merged(STREAM, changes), streaming=True)


def batch(**changes: Any) -> Any:
    return parse_source(_merged(BATCH, changes), streaming=False)


def _merged(base: dict[str, str], changes: dict[str, Any]) -> dict[str, str]:
    """`base` with changes, in which `__` stands for a dot; None leaves an option out."""
    merged = {**base, **{name.replace("__", "."): value for name, value in changes.items()}}
    return {name: value for name, value in merged.items() if value is not None}
