"""Kafka consumer groups as a first-class source of Spark Structured Streaming.

    df = spark.readStream.format("streamgroup").option("kafka.group.id", "orders-ingest")...

The source is found by name; what is imported from here is the rest of the public interface.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from streamgroup.errors import StreamGroupError

if TYPE_CHECKING:
    from streamgroup.spark.drain import DrainResult, drain

__all__ = ["DrainResult", "StreamGroupError", "__version__", "drain"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import what needs pyspark only where it is used: tasks and the command line start fast."""
    if name in ("DrainResult", "drain"):
        return getattr(import_module("streamgroup.spark.drain"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
