"""The options that change or export offsets, of a group or of an offset table, named as in kafka-consumer-groups.sh."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from streamgroup.cli._click import flag, option
from streamgroup.cli._reset import Reset, TopicScope, Way, parse_datetime, parse_duration, parse_topic
from streamgroup.errors import ConfigError
from streamgroup.frozen import frozen

CSV, SPARK = "csv", "spark"
Command = TypeVar("Command", bound=Callable[..., Any])
_Option = Callable[[Any], Any]


@frozen
class ChangeOptions:
    """The options that change or export offsets. `reset` is None if no way to reset offsets is given."""

    resets: bool = False
    deletes: bool = False
    deletes_offsets: bool = False
    exports: bool = False
    reset: Reset | None = None
    file: str | None = None
    """The text of `--from-file`."""
    topics: tuple[TopicScope, ...] = ()
    all_topics: bool = False
    executes: bool = False
    format: str = CSV

    @property
    def has_action(self) -> bool:
        return self.resets or self.deletes or self.deletes_offsets or self.exports

    def check(self) -> None:
        """Raise UsageError for options that contradict each other."""
        if self.resets + self.deletes + self.deletes_offsets > 1 or (
            self.exports and (self.deletes or self.deletes_offsets)
        ):
            raise click.UsageError("choose one of --reset-offsets, --delete and --delete-offsets")
        if self.executes and not self.resets:
            raise click.UsageError("--execute requires --reset-offsets")
        self.check_way()
        if self.format != CSV and not self.exports:
            raise click.UsageError("--format requires --export")
        self._check_scope()

    def check_way(self) -> None:
        """Raise UsageError for a reset without a way, or a way without a reset."""
        if (self.reset is not None) != self.resets:
            ways = ", ".join(way.value for way in Way)
            raise click.UsageError(f"--reset-offsets requires one of the ways {ways}, and each of them requires it")

    def _check_scope(self) -> None:
        if self.topics and self.all_topics:
            raise click.UsageError("choose one of --topic and --all-topics")
        scoped = bool(self.topics or self.all_topics)
        if self.deletes and scoped:
            raise click.UsageError("--delete deletes whole groups: --delete-offsets takes --topic and --all-topics")
        if self.file is not None and scoped:
            raise click.UsageError("--from-file lists the partitions: it takes neither --topic nor --all-topics")
        if (self.resets or self.deletes_offsets) and self.file is None and not scoped:
            raise click.UsageError("choose the partitions by --topic or --all-topics")
        if scoped and not self.has_action:
            raise click.UsageError("--topic and --all-topics require --reset-offsets, --delete-offsets or --export")


ACTIONS = "Actions (give one)"
GROUPS = "Which groups"
_PARTITIONS = "Which partitions, for --reset-offsets, --delete-offsets and --export"
_NEW_OFFSETS = "New offsets, for --reset-offsets (give one)"
_RESET = "Further options of --reset-offsets and --export"
_CHANGES = "Changes"
_ACTION_OPTIONS = (
    flag(ACTIONS, "--reset-offsets", help="Show new offsets of groups, and set them with --execute."),
    flag(ACTIONS, "--export", help="Print committed offsets, for --from-file or for Spark's own source."),
    flag(ACTIONS, "--delete", help="Delete groups with their offsets."),
    flag(ACTIONS, "--delete-offsets", help="Delete the committed offsets of --topic or --all-topics."),
)


def _scope_options(section: str) -> tuple[_Option, ...]:
    return (
        option(
            section,
            "--topic",
            "topics",
            multiple=True,
            metavar="TOPIC[:0,1]",
            help="A topic, or some of its partitions; repeatable.",
        ),
        flag(section, "--all-topics", help="All partitions that have an offset."),
    )


_WAY_OPTIONS = (
    flag(_NEW_OFFSETS, "--to-earliest", help="The beginning of the logs."),
    flag(_NEW_OFFSETS, "--to-latest", help="The end of the logs."),
    flag(_NEW_OFFSETS, "--to-current", help="The current offset; without one the end of the log."),
    option(_NEW_OFFSETS, "--to-offset", type=click.IntRange(0), metavar="N", help="This offset."),
    option(_NEW_OFFSETS, "--shift-by", type=int, metavar="N", help="The current offset plus N; negative N moves back."),
    option(
        _NEW_OFFSETS,
        "--to-datetime",
        metavar="TIME",
        help="First record of this time or later: YYYY-MM-DDThh:mm:ss.sss, in UTC, or with an offset (+hh:mm).",
    ),
    option(
        _NEW_OFFSETS,
        "--by-duration",
        metavar="PnDTnHnMnS",
        help="The first record of this long ago or later; PT1H30M is one hour and a half.",
    ),
    option(
        _NEW_OFFSETS,
        "--from-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="The offsets of a file that `streamgroup groups --export` has printed.",
    ),
)
_OPTIONS = (
    *_scope_options(_PARTITIONS),
    *_WAY_OPTIONS,
    flag(_RESET, "--execute", help="Set the new offsets."),
    flag(_RESET, "--dry-run", help="Only show the new offsets (the default)."),
    option(
        _RESET,
        "--format",
        "export_format",
        type=click.Choice([CSV, SPARK]),
        default=CSV,
        show_default=True,
        help="Format of --export: csv has lines GROUP,TOPIC,PARTITION,OFFSET, without GROUP for one --group; spark has "
        "the JSON of startingOffsets.",
    ),
)
_TABLE_OPTIONS = (
    *_scope_options("Which partitions, for --reset-offsets"),
    *_WAY_OPTIONS,
    flag(_CHANGES, "--execute", help="Set the offsets, or delete the rows or tables."),
    flag(_CHANGES, "--dry-run", help="Only show what would change (the default)."),
)


def action_options(command: Command) -> Command:
    """Add the actions to `command`; `change_options` takes them."""
    for add in reversed(_ACTION_OPTIONS):
        command = add(command)
    return command


def change_options(command: Command) -> Command:
    """Add the other options to `command`, which gets them and the actions as `changes`."""
    return _with_changes(command, _OPTIONS, ChangeOptions.check)


def table_change_options(command: Command) -> Command:
    """Add the options that change an offset table to `command`, which gets them as `changes`.

    The command has the actions `--reset-offsets`, `--delete` and `--staging`, and checks all but the way of a reset.
    """
    return _with_changes(command, _TABLE_OPTIONS, ChangeOptions.check_way)


def _with_changes(command: Command, options: tuple[_Option, ...], check: Callable[[ChangeOptions], None]) -> Command:
    @functools.wraps(command)
    def with_changes(*args: Any, **given: Any) -> Any:
        changes = _taken(given)
        check(changes)
        return command(*args, changes=changes, **given)

    decorated = cast("Command", with_changes)
    for add in reversed(options):
        decorated = add(decorated)
    return decorated


def _taken(given: dict[str, Any]) -> ChangeOptions:
    """Remove the options of this module from `given`, and return them."""
    take = given.pop
    execute = take("execute")
    if take("dry_run") and execute:
        raise click.UsageError("choose one of --execute and --dry-run")
    from_file: Path | None = take("from_file")
    ways = {
        Way.EARLIEST: take("to_earliest") or None,
        Way.LATEST: take("to_latest") or None,
        Way.CURRENT: take("to_current") or None,
        Way.OFFSET: take("to_offset"),
        Way.SHIFT: take("shift_by"),
        Way.DATETIME: take("to_datetime"),
        Way.DURATION: take("by_duration"),
        Way.FILE: from_file,
    }
    return ChangeOptions(
        resets=take("reset_offsets"),
        deletes=take("delete"),
        deletes_offsets=take("delete_offsets", False),
        exports=take("export", False),
        reset=_reset({way: value for way, value in ways.items() if value is not None}),
        file=None if from_file is None else _text(from_file),
        topics=tuple(_parsed(parse_topic, topic) for topic in take("topics")),
        all_topics=take("all_topics"),
        executes=execute,
        format=take("export_format", CSV),
    )


def _reset(given: dict[Way, Any]) -> Reset | None:
    if len(given) > 1:
        raise click.UsageError(f"choose one of {' and '.join(way.value for way in given)}")
    for way, value in given.items():
        match way:
            case Way.DATETIME:
                return Reset(way, _since_1970(way, _parsed(parse_datetime, value)))
            case Way.DURATION:
                return Reset(way, _since_1970(way, int(time.time() * 1000) - _parsed(parse_duration, value)))
            case Way.OFFSET | Way.SHIFT:
                return Reset(way, value)
            case _:
                return Reset(way)
    return None


def _since_1970(way: Way, timestamp_ms: int) -> int:
    """Return the timestamp. Raises UsageError before 1970: brokers take negative numbers for "earliest" or "latest"."""
    if timestamp_ms < 0:
        raise click.UsageError(
            f"invalid value of {way.value}: its time is before 1970, and no record has such a time. Use --to-earliest"
        )
    return timestamp_ms


def _parsed(parse: Callable[[str], Any], text: str) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the file of --from-file, {path}: {error}") from None
