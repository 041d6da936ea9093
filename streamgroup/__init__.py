"""Kafka consumer groups as a first-class source of Spark Structured Streaming."""

__version__ = "0.1.0"
