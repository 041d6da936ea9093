"""Run the ingest job: `spark-submit jobs/ingest.py --config conf/ingest.toml --member a`."""

from streamgroup.jobs.ingest import main

main()
