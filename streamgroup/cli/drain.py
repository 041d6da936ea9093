"""`streamgroup drain`: stop a query on this machine from a shell, so that no record is repeated (R30)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from streamgroup.cli._click import OR_UNITS, OTHERS, Duration, SectionedCommand, json_option, json_rows, option
from streamgroup.cli._running import COLUMNS, Running, choose, find, print_list, query_options, select
from streamgroup.coordinator.control import channel
from streamgroup.coordinator.control.drains import drain_together
from streamgroup.errors import StreamGroupError

ENDED_S = 5.0
"""How long the command waits until a drained query has ended, which happens at Spark's next trigger."""
_UNKNOWN_REASON = "its last batch is not complete, or another member holds its partitions now"
"""The reason if the coordinator is of an older release, whose answer has no reason."""
POLL_S = 0.1


class NotDrained(StreamGroupError):
    """The last batch was not completed and committed in time."""


@dataclass(slots=True)
class Report:
    """The result of `streamgroup drain` as JSON.

    `running` has all coordinator processes that were found, `chosen` those that were asked to end after their batch.
    """

    running: Sequence[Running]
    chosen: Sequence[Running] = ()
    is_drained: bool = False
    has_ended: bool = False

    def document(self) -> dict[str, Any]:
        return {
            "drained": self.is_drained,
            "ended": self.has_ended,
            "chosen": json_rows(COLUMNS, self.chosen),
            "running": json_rows(COLUMNS, self.running),
        }


@click.command(
    cls=SectionedCommand,
    examples={
        "streamgroup drain --list": "the queries on this machine; none is drained",
        "streamgroup drain": "the only query on this machine",
        "streamgroup drain --group orders-ingest --timeout 5m": "the query of a group with batches of minutes",
    },
)
@query_options
@option(
    OTHERS,
    "--timeout",
    type=Duration("s", 0, channel.LONGEST_DRAIN_S),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help=f"How long to wait until the last batch is completed. In seconds, {OR_UNITS}.",
)
@json_option("Print the result and the queries on this machine as JSON.")
def drain(
    *, groups: tuple[str, ...], member: str | None, pid: int | None, lists: bool, timeout: float, as_json: bool
) -> None:
    """Stop a query on this machine so that no record is repeated.

    Run it on the machine of Spark's driver, as the driver's user. The query plans no more batches. Its last batch
    sinks and is committed, then the query leaves its group and ends. Without options the command drains the only query
    on this machine. If several run, it lists them and drains none.
    """
    running = find()
    if lists:
        print_list(select(running, groups, member, pid), as_json=as_json)
        return
    report = Report(running)
    try:
        report.chosen = choose(running, groups, member, pid)
        _drain(report, timeout, (lambda _: None) if as_json else click.echo)
    finally:
        if as_json:
            click.echo(json.dumps(report.document(), indent=2))


def _drain(report: Report, timeout: float, say: Callable[[str], None]) -> None:
    """Drain the chosen query, and wait until it has ended. Raises NotDrained if its last batch may be repeated."""
    pid, names = report.chosen[0].pid, ", ".join(dict.fromkeys(one.group or "(no group)" for one in report.chosen))
    say(f"draining {names} of driver {pid}: waiting up to {timeout:g} s for the last batch")
    answers = drain_together(pid, [one.run for one in report.chosen], timeout, ends=True)
    report.is_drained = all(answer["drained"] for answer in answers)
    if not report.is_drained:
        unclean = [answer.get("why") or _UNKNOWN_REASON for answer in answers if not answer["drained"]]
        reason = "; ".join(dict.fromkeys(unclean))
        raise NotDrained(
            f"cannot drain {names}: {reason}. The query ends with its next trigger all the same, and its last batch "
            "may be repeated"
        )
    report.has_ended = _wait_for_end(report.chosen)
    say(
        "drained: nothing will be repeated; the query "
        + ("has ended" if report.has_ended else "ends with its next trigger")
    )


def _wait_for_end(chosen: Sequence[Running]) -> bool:
    deadline = time.monotonic() + ENDED_S
    while any(one.run in channel.runs(one.pid) for one in chosen):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True
