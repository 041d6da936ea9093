"""The only pyspark: data source and readers."""
