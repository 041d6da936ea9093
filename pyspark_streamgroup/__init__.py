"""Lets Spark find the source by name: PySpark imports every top-level module named `pyspark_*` and takes its `DefaultSource`.

All such modules are imported by every session, so this one stays small.
"""

from streamgroup.spark.source import StreamGroupDataSource as DefaultSource

__all__ = ["DefaultSource"]
