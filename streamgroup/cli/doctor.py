"""`streamgroup doctor`: what is here, what the cluster speaks, how a group is."""

from __future__ import annotations

import itertools
import json

import click

from streamgroup.cli import _diagnosis as diagnosis
from streamgroup.cli._cluster import EITHER, Where, client_options, cluster_options
from streamgroup.cli._diagnosis import Finding, Spoken, Verdict
from streamgroup.cli._tables import Column, json_rows, table

FINDINGS: tuple[Column[Finding], ...] = (
    Column("CHECK", "check", lambda row: row.subject),
    Column("", "verdict", lambda row: row.verdict.value),
    Column("FOUND", "found", lambda row: row.text),
)
SPOKEN: tuple[Column[Spoken], ...] = (
    Column("BROKER", "broker", lambda row: row.broker),
    Column("API", "api", lambda row: row.api),
    Column("THERE", "there", lambda row: row.there),
    Column("HERE", "here", lambda row: row.here),
    Column("SPOKEN", "spoken", lambda row: row.spoken),
)


@click.command()
@cluster_options
@click.option("--group", "names", multiple=True, metavar="GROUP", help="A group to look at; repeatable.")
@click.option("--verbose", is_flag=True, help="Also which version of each API each broker speaks.")
@click.option("--timeout", type=click.IntRange(1), default=10_000, show_default=True, help="ms for each question.")
@click.option("--json", "as_json", is_flag=True, help="For programs: all that was found.")
@click.pass_context
def doctor(
    ctx: click.Context,
    *,
    where: Where,
    names: tuple[str, ...],
    verbose: bool,
    timeout: int,
    as_json: bool,
) -> None:
    """Look at this machine, at a cluster of any Kafka from 0.7 on, and at groups.

    Exits with 1 where a check has failed.
    """
    looked: itertools.chain[Finding | Spoken] = itertools.chain(diagnosis.of_this_machine())
    if where != Where():
        options = client_options(where, "streamgroup-doctor", timeout)
        looked = itertools.chain(looked, diagnosis.of_cluster(options), diagnosis.of_groups(options, names))
    elif names:
        raise click.UsageError(f"--group needs {EITHER}")
    seen = list(looked)
    findings = [row for row in seen if isinstance(row, Finding)]
    spoken = [row for row in seen if isinstance(row, Spoken)]
    if as_json:
        told = {"findings": json_rows(FINDINGS, findings), "apis": json_rows(SPOKEN, spoken)}
        click.echo(json.dumps(told, indent=2))
    else:
        click.echo(table(FINDINGS, findings))
        if verbose and spoken:
            click.echo(f"\n{table(SPOKEN, spoken)}")
    if any(row.verdict is Verdict.FAIL for row in findings):
        ctx.exit(1)
