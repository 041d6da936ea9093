"""Lets Spark find the source by name: PySpark takes the `DefaultSource` of every top-level module named `pyspark_*`.

All such modules are imported by every session, so this one stays small.
"""

try:
    from streamgroup.spark.source import StreamGroupDataSource as DefaultSource
except ModuleNotFoundError as error:
    if error.name != "streamgroup.spark":
        raise
    import streamgroup

    # Spark shows this error as a warning, before it reports that it does not find the source.
    raise ImportError(
        f"cannot import the package streamgroup: Python finds {streamgroup.__file__} instead. Rename that file or "
        "directory"
    ) from None

__all__ = ["DefaultSource"]
