"""The jobs (ingest, backfill, mirror), and their job files, session, signals and guard of an output directory."""
