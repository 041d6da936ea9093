"""Lets Spark find `format("streamgroup-sql")`: it takes one `DefaultSource` of every module named `pyspark_*`."""

from streamgroup.spark.sql_sink import SqlDataSource as DefaultSource

__all__ = ["DefaultSource"]
