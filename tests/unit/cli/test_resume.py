"""`streamgroup resume` lets a query of this machine read its paused partitions again: those that are named, or all."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from streamgroup.cli.main import main
from tests.unit.driver.channels import JVM, FakeCoordinator, home, serve

__all__ = ["home", "serve"]

pytestmark = pytest.mark.usefixtures("home")
Serve = Callable[..., FakeCoordinator]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["resume", *arguments])


def paused(serve: Serve, *names: str, run: str = "r1") -> FakeCoordinator:
    """A coordinator that holds these partitions, all of them paused."""
    coordinator = serve(run, f"lineage of {run}")
    coordinator.positions = dict.fromkeys(names, 0)
    coordinator.paused = set(names)
    return coordinator


def test_only_the_named_partitions_are_read_again_and_the_rest_is_shown_as_paused(serve: Serve) -> None:
    coordinator = paused(serve, "t-0", "t-1", "t-2")
    result = run("--topic-partition", "t-0", "--topic-partition", "t-2", "--json")
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)
    assert (row["pid"], row["paused"]) == (JVM, "t-1")
    assert coordinator.paused == {"t-1"}


def test_without_names_everything_that_the_query_has_paused_is_read_again(serve: Serve) -> None:
    coordinator = paused(serve, "t-0", "t-1")
    coordinator.is_whole = True
    result = run()
    assert result.exit_code == 0, result.output
    assert (coordinator.paused, coordinator.is_whole) == (set(), False)
    assert result.stdout.splitlines()[-1].endswith(" -")


def test_a_partition_that_is_not_paused_stays_read(serve: Serve) -> None:
    coordinator = paused(serve, "t-0")
    coordinator.paused = set()
    assert run("--topic-partition", "t-0").exit_code == 0
    assert coordinator.paused == set()


def test_one_of_several_queries_is_chosen_by_its_group(serve: Serve) -> None:
    one, two = paused(serve, "t-0"), paused(serve, "u-0", run="r2")
    assert run().exit_code == 1
    assert (one.paused, two.paused) == ({"t-0"}, {"u-0"})
    assert run("--group", "group of r2").exit_code == 0
    assert (one.paused, two.paused) == ({"t-0"}, set())


def test_a_list_shows_what_is_paused_and_resumes_nothing(serve: Serve) -> None:
    coordinator = paused(serve, "t-0")
    result = run("--list")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1].endswith(" t-0")
    assert coordinator.paused == {"t-0"}
