"""Run the mirror job: `spark-submit jobs/mirror.py --config conf/mirror.toml`, and with `--verify` to compare."""

from streamgroup.jobs.mirror.command import main

main()
