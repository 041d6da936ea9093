"""Kafka consumer groups as a first-class source of Spark Structured Streaming.

    df = spark.readStream.format("streamgroup").option("kafka.group.id", "orders-ingest")...

Spark finds the source by its name. This module exports the rest of the public interface.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any
from zipimport import zipimporter

from streamgroup.errors import DrainedError, StreamGroupError

if TYPE_CHECKING:
    from streamgroup.model import OffsetRange, TopicPartition
    from streamgroup.spark.channel import ranges, transaction
    from streamgroup.spark.dead_letters import dead_letters
    from streamgroup.spark.drain import DrainResult, drain
    from streamgroup.spark.exactly_once import exactly_once
    from streamgroup.spark.listener import listen
    from streamgroup.spark.metrics import MetricsServer, metrics
    from streamgroup.spark.open_telemetry import OpenTelemetryMetrics, open_telemetry
    from streamgroup.spark.parsing.framing import SchemaRegistry
    from streamgroup.spark.parsing.parser import Parser
    from streamgroup.spark.progress import progress
    from streamgroup.spark.source import default_mode
    from streamgroup.spark.sql_sink import sql_sink

__all__ = [
    "DrainResult",
    "DrainedError",
    "MetricsServer",
    "OffsetRange",
    "OpenTelemetryMetrics",
    "Parser",
    "SchemaRegistry",
    "StreamGroupError",
    "TopicPartition",
    "__version__",
    "dead_letters",
    "default_mode",
    "drain",
    "exactly_once",
    "listen",
    "metrics",
    "open_telemetry",
    "progress",
    "ranges",
    "sql_sink",
    "transaction",
]

__version__ = "0.2.0"

_loader = __spec__.loader
if isinstance(_loader, zipimporter):
    raise ImportError(
        f"cannot import streamgroup from {_loader.archive}: it requires compiled packages, which Python cannot import "
        "from an archive, and Spark does not look for data sources in --py-files. Leave the archive out of --py-files "
        "and addPyFile. Install streamgroup for the Python of driver and executors, or ship a packed environment with "
        "spark.archives (docs/clusters.md)"
    )

_LAZY = {
    "DrainResult": "streamgroup.spark.drain",
    "MetricsServer": "streamgroup.spark.metrics",
    "OffsetRange": "streamgroup.model",
    "OpenTelemetryMetrics": "streamgroup.spark.open_telemetry",
    "Parser": "streamgroup.spark.parsing.parser",
    "SchemaRegistry": "streamgroup.spark.parsing.framing",
    "TopicPartition": "streamgroup.model",
    "dead_letters": "streamgroup.spark.dead_letters",
    "default_mode": "streamgroup.spark.source",
    "drain": "streamgroup.spark.drain",
    "exactly_once": "streamgroup.spark.exactly_once",
    "listen": "streamgroup.spark.listener",
    "metrics": "streamgroup.spark.metrics",
    "open_telemetry": "streamgroup.spark.open_telemetry",
    "progress": "streamgroup.spark.progress",
    "ranges": "streamgroup.spark.channel",
    "sql_sink": "streamgroup.spark.sql_sink",
    "transaction": "streamgroup.spark.channel",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used.

    Most names need pyspark. Without them, tasks and the command line start fast.
    """
    module = _LAZY.get(name)
    if module is not None:
        try:
            return getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            if error.name != "pyspark":
                raise
            raise ImportError(
                f"cannot import streamgroup.{name}: this Python has no PySpark. Run the program by spark-submit, which "
                "brings Spark's own, or install it: pip install 'streamgroup[spark]'"
            ) from None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
