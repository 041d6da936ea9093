"""`streamgroup doctor`: check this machine, the versions that a cluster supports, and the state of groups."""

from __future__ import annotations

import itertools
import json

import click

from streamgroup.cli import _diagnosis as diagnosis
from streamgroup.cli._cluster import EITHER, Where, client_options, cluster_options
from streamgroup.cli._diagnosis import ApiVersions, Finding, Verdict
from streamgroup.cli._tables import Column, json_rows, table

FINDINGS: tuple[Column[Finding], ...] = (
    Column("CHECK", "check", lambda row: row.subject),
    Column("STATUS", "verdict", lambda row: row.verdict.value),
    Column("RESULT", "found", lambda row: row.text),
)
API_VERSIONS: tuple[Column[ApiVersions], ...] = (
    Column("BROKER", "broker", lambda row: row.broker),
    Column("API", "api", lambda row: row.api),
    Column("BROKER-VERSIONS", "there", lambda row: row.at_broker),
    Column("CLIENT-VERSIONS", "here", lambda row: row.at_client),
    Column("USED", "spoken", lambda row: row.used),
)


@click.command()
@cluster_options
@click.option("--group", "names", multiple=True, metavar="GROUP", help="Group to check; repeatable.")
@click.option("--verbose", is_flag=True, help="Show the versions of each API at each broker too.")
@click.option(
    "--timeout", type=click.IntRange(1), default=10_000, show_default=True, help="Milliseconds for each check."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON with all results.")
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
    """Check this machine, a Kafka cluster and consumer groups.

    The cluster may run any Kafka from 0.7 on. The exit code is 1 if a check fails.
    """
    checks: itertools.chain[Finding | ApiVersions] = itertools.chain(diagnosis.of_this_machine())
    if where != Where():
        options = client_options(where, "streamgroup-doctor", timeout)
        checks = itertools.chain(checks, diagnosis.of_cluster(options), diagnosis.of_groups(options, names))
    elif names:
        raise click.UsageError(f"--group requires {EITHER}")
    results = list(checks)
    findings = [row for row in results if isinstance(row, Finding)]
    api_versions = [row for row in results if isinstance(row, ApiVersions)]
    if as_json:
        document = {"findings": json_rows(FINDINGS, findings), "apis": json_rows(API_VERSIONS, api_versions)}
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo(table(FINDINGS, findings))
        if verbose and api_versions:
            click.echo(f"\n{table(API_VERSIONS, api_versions)}")
    if any(row.verdict is Verdict.FAIL for row in findings):
        ctx.exit(1)
