"""The jobs (ingest, backfill, mirror) and what they share: job files, session, signals, guard of an output."""
