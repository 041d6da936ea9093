"""The jobs: their files, their session, their stop, the guard of an output directory; the ingest job and the mirror."""
