"""Partitions on the command line by their names, such as `orders-0`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from streamgroup.cli._help import option
from streamgroup.driver.application import control
from streamgroup.model import TopicPartition

if TYPE_CHECKING:
    _Partitions = click.ParamType[TopicPartition]
else:
    _Partitions = click.ParamType  # not generic before click 8.4


class PartitionName(_Partitions):
    """A partition such as `orders-0`."""

    name = "topic-partition"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> TopicPartition:
        """Return the partition. Fails for a text that is not a name of one."""
        if isinstance(value, TopicPartition):
            return value
        try:
            return control.partition_of(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def partitions_option(text: str) -> Callable[[Any], Any]:
    """Return `--topic-partition`, whose help is `text`."""
    return option(
        "Which partitions",
        "--topic-partition",
        "partitions",
        type=PartitionName(),
        multiple=True,
        metavar="TOPIC-N",
        help=text,
    )
