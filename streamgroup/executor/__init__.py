"""What runs in Spark's tasks."""
