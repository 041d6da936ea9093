"""Try many cases at each decoder of bytes and text from outside, or one case again.

    python -m tests.fuzz [--cases N] [--seed N] [--only PREFIX ...] [--jobs N] [--sanitized]
    python -m tests.fuzz --replay DECODER KIND HEX

A finding names its seed, its number and its bytes, and the command that tries it again.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback

from streamgroup.kafka.records import kernel
from tests.fuzz import processes, records
from tests.fuzz.campaign import Campaign, Case
from tests.fuzz.table import DECODERS, named

CASES = 1_000_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=CASES, help=f"cases of each decoder ({CASES})")
    parser.add_argument("--seed", type=int, default=0, help="another seed makes other cases (0)")
    parser.add_argument(
        "--only", action="append", default=[], metavar="PREFIX", help="decoders by their names' beginning"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time (one for each core)")
    parser.add_argument(
        "--sanitized", action="store_true", help="the compiled kernel alone, without limits of time and memory"
    )
    parser.add_argument("--replay", nargs=3, metavar=("DECODER", "KIND", "HEX"), help="try one case again")
    arguments = parser.parse_args()
    if arguments.replay:
        return replay(*arguments.replay)
    try:
        decoders = named(arguments.only)
    except ValueError as error:
        parser.error(str(error))
    if arguments.sanitized:
        records.KERNELS = ("compiled",)
    print(f"kernel: {kernel.name()}, of {kernel.__file__}", flush=True)
    began, cases, findings = time.monotonic(), 0, 0
    for decoder, report in processes.run(
        decoders, arguments.cases, arguments.seed, arguments.jobs, limits=not arguments.sanitized
    ):
        outcome = report.outcome
        cases += outcome.cases
        findings += len(report.findings)
        rate = outcome.cases / max(report.cpu_s, 1e-9)
        accepted = 100 * outcome.accepted / max(outcome.cases, 1)
        print(
            f"{decoder.name:32} {outcome.cases:>9} cases {rate:>7.0f}/s of CPU time, {accepted:3.0f} % accepted, "
            f"slowest {outcome.slowest_s * 1000:5.1f} ms, most memory {outcome.most_memory >> 10:>5} KiB, "
            f"grown by {report.grown >> 20:>3} MiB, {len(report.findings)} findings",
            flush=True,
        )
        for finding in report.findings:
            print(f"  {finding}", flush=True)
    print(f"{cases} cases of {len(decoders)} decoders in {time.monotonic() - began:.0f} s, {findings} findings")
    return 1 if findings else 0


def replay(name: str, kind: str, data: str) -> int:
    """Try one case, and show what comes of it."""
    decoder = DECODERS[name]
    case = Case(decoder, 0, 0, kind, bytes.fromhex(data))
    campaign = Campaign(decoder)
    problems = [campaign.judge(case, measured=measured) for measured in (False, True)]
    try:
        print(f"accepted: {decoder.decode(kind, case.data)!r}"[:2_000])
    except Exception:
        traceback.print_exc()
    outcome = campaign.outcome
    print(f"{outcome.slowest_s * 1000:.1f} ms of CPU time, {outcome.most_memory >> 10} KiB")
    for problem in filter(None, problems):
        print(f"a finding: {problem}")
    return 1 if any(problems) else 0


if __name__ == "__main__":
    sys.exit(main())
