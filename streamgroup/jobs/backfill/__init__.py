"""The backfill job: it copies a fixed range of topics into a sink of Spark, step by step (docs/backfill.md)."""
