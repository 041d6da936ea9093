"""Lets Spark find the source by name: PySpark takes the `DefaultSource` of every top-level module named `pyspark_*`.

All such modules are imported by every session, so this one stays small.
"""

from streamgroup.spark.source import StreamGroupDataSource as DefaultSource

__all__ = ["DefaultSource"]
