"""The data source and its readers, the listener, drains: the only room besides `jobs` that imports pyspark."""
