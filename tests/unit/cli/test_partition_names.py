"""A command line names partitions as Kafka's logs do: `orders-0`."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner, Result

from streamgroup.cli._partition_names import PartitionName, partitions_option
from streamgroup.model import TopicPartition


@click.command
@partitions_option("Which partition to look at.")
def look(partitions: tuple[TopicPartition, ...]) -> None:
    for tp in partitions:
        click.echo(f"{tp.topic} {tp.partition}")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(look, arguments)


@pytest.mark.parametrize(
    ("name", "topic", "number"),
    [
        ("orders-0", "orders", 0),
        ("big-orders-17", "big-orders", 17),
        ("orders--1", "orders-", 1),
        ("a.b_c-2147483647", "a.b_c", 2147483647),
        ("7-3", "7", 3),
    ],
)
def test_the_number_stands_behind_the_last_hyphen(name: str, topic: str, number: int) -> None:
    assert run("--topic-partition", name).stdout == f"{topic} {number}\n"


def test_the_option_may_be_repeated_or_left_out() -> None:
    assert run("--topic-partition", "b-1", "--topic-partition", "a-0").stdout == "b 1\na 0\n"
    assert (run().exit_code, run().stdout) == (0, "")


@pytest.mark.parametrize("name", ["", "orders", "orders-", "-0", "orders-x", "orders-1.5", "orders- 1"])
def test_another_text_is_a_wrong_usage_that_names_the_option_and_the_form(name: str) -> None:
    result = run(f"--topic-partition={name}")
    text = " ".join(result.stderr.split())
    assert result.exit_code == 2
    assert f"Invalid value for '--topic-partition': invalid topic-partition {name!r}" in text
    assert "such as orders-0" in text


def test_a_partition_is_taken_as_it_is() -> None:
    """Click converts a default that is a value already."""
    assert PartitionName().convert(TopicPartition("orders", 3), None, None) == TopicPartition("orders", 3)


def test_help_has_the_text_of_the_command() -> None:
    text = run("--help").stdout
    assert "--topic-partition TOPIC-N" in text
    assert "Which partition to look at." in text
