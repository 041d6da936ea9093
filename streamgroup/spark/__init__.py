"""The data source, its readers and writers, the listener and drains. Only this package and `jobs` import pyspark."""
