"""The ingest job: its configuration file, its session, its stop, and the guard of its output directory."""
