"""`make soak`: run, print JSON lines meanwhile and a table at the end. Exit code 1: a check has failed."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from streamgroup.testing import KafkaServer
from tests.conftest import wait_for_leaders
from tests.releases import package_of, read_releases
from tests.soak.judgement import Finding, Limits, Measured, judge, table, warm_up_s
from tests.soak.soak import PARTITIONS, Soak

TOPIC = "soaked"
FEWEST_MINUTES = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a soak as the command line wants it and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0, help="length of the run (120)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the kills, pauses and restarts (1)")
    parser.add_argument("--rate", type=float, default=100.0, help="records per second (100)")
    parser.add_argument("--output", type=Path, help="file of the JSON lines, in addition to standard output")
    given = parser.parse_args(arguments)
    if given.minutes < FEWEST_MINUTES:
        parser.error(f"--minutes must be at least {FEWEST_MINUTES:.0f}: a shorter run measures nothing")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the servers are ended, too
    findings = run(given.minutes * 60, given.seed, given.rate, given.output)
    print(table(findings), flush=True)
    failed = [finding.check for finding in findings if not finding.passes]
    if failed:
        print(f"soak: failed: {'; '.join(failed)} (seed {given.seed})", file=sys.stderr)
    return 1 if failed else 0


def run(seconds: float, seed: int, rate: float, output: Path | None) -> list[Finding]:
    """Run and judge. The beginning of each process's life does not count (`warm_up_s`)."""
    old = read_releases()[-1]
    package_of(old)  # fails at once in a clone without its commit
    warm_s = warm_up_s(seconds)
    bin_s = min(60.0, max(15.0, seconds / 40))
    with tempfile.TemporaryDirectory(prefix="soak-") as directory, KafkaServer() as server:
        make_topic(server)
        lines = None if output is None else output.open("w")

        def say(line: dict[str, Any]) -> None:
            text = json.dumps(line)
            print(text, flush=True)
            if lines is not None:
                print(text, file=lines, flush=True)

        soak = Soak(server, TOPIC, Path(directory), old=old, rate=rate, say=say)
        try:
            measured = soak.run(seed, seconds, warm_s, bin_s)
        finally:
            soak.close()
        findings = judge(measured, Limits())
        say({"event": "result", "seed": seed, "seconds": round(measured.seconds), **summary(measured, findings)})
        if lines is not None:
            lines.close()
    return findings


def make_topic(server: KafkaServer) -> None:
    """Make the topic and wait for its leaders."""
    admin = AdminClient({"bootstrap.servers": server.direct_servers, "log_level": 3})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(20)
    wait_for_leaders(admin, TOPIC, PARTITIONS)


def summary(measured: Measured, findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the result for programs."""
    return {
        "sent": measured.sent,
        "lost": measured.lost,
        "repeats": measured.repeats,
        "events": dict(measured.happened),
        "checks": [{"check": f.check, "measured": f.measured, "passes": f.passes} for f in findings],
    }


if __name__ == "__main__":
    sys.exit(main())
