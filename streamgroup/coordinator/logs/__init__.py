"""Metadata and log ranges, kept up to date for planning; leader epochs, and message boundaries of Kafka 0.7."""
