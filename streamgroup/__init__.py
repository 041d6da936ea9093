"""Kafka consumer groups as a first-class source of Spark Structured Streaming."""
