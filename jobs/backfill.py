"""Run the backfill job: `spark-submit jobs/backfill.py --config conf/backfill.toml`."""

from streamgroup.jobs.backfill.command import main

main()
