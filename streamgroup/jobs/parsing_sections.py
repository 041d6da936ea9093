"""The sections [parser] and [dead_letters] of an ingest job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamgroup.errors import ConfigError
from streamgroup.jobs.effective import DEFAULT
from streamgroup.jobs.job_file import JobFileReader
from streamgroup.jobs.keys import DEAD_LETTERS, PARSER, SOURCE
from streamgroup.model import TopicPartition
from streamgroup.options.client import CLIENT
from streamgroup.options.parse_sink import SINK_OPTIONS, parse_sink
from streamgroup.options.rows import Scope
from streamgroup.options.types import SourceOptions
from streamgroup.options.zookeeper import CONNECT, ZOOKEEPER
from streamgroup.parsing.framing import SCHEMA_ID, SchemaRegistry
from streamgroup.parsing.limit import DEFAULT_SHARE
from streamgroup.parsing.parser import KEEP, Parser
from streamgroup.planning.subscription import is_subscribed

DAMAGED_BATCHES = "includeDamagedBatches"
"""The option of the source that `damaged_batches` sets."""
OPTIONS_SECTION = f"{DEAD_LETTERS}.options"
_ADDRESSES = ("kafka.bootstrap.servers", CONNECT)
_CONNECTION = frozenset(
    option.name.lower()
    for option in (*CLIENT, *ZOOKEEPER)
    if (row := SINK_OPTIONS.get(option.name.lower())) is not None and row.scope & Scope.WRITE
)
"""Options of a connection that reads and writes share."""


@dataclass(frozen=True, slots=True)
class DeadLetterSettings:
    """Where dead letters go: `topic` with `options` of a write, or `path`. Neither is set without the section.

    With `damaged_batches` the source makes rows of damaged batches, which become dead letters.
    """

    topic: str | None = None
    path: str | None = None
    max_records: int | None = None
    max_share: float | None = None
    damaged_batches: bool = False
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets


def read_parser(reader: JobFileReader, content: Mapping[str, Any] | None) -> Parser | None:
    """Return the parser of [parser], or None without the section or with problems in it."""
    if content is None:
        return None
    values = reader.values(PARSER, content)
    if "null_values" not in values:
        reader.note(PARSER, {"null_values": KEEP}, origin=DEFAULT)
    if "format" not in values:
        reader.problems.append("[parser] format is required. Set json, csv, avro or protobuf")
        return None
    of_registry = {name: values.pop(f"registry_{name}", None) for name in ("url", "user", "password", "ca")}
    try:
        registry = None
        if of_registry["url"] is not None:
            registry = SchemaRegistry(**of_registry)
            values.setdefault("framing", SCHEMA_ID)
        elif given := [f"registry_{name}" for name, value in of_registry.items() if value is not None]:
            raise ConfigError(f"{', '.join(given)} requires registry_url. Set it")
        if "descriptor" in values:
            values["descriptor"] = _content(values["descriptor"])
        return Parser(**values, registry=registry)
    except ConfigError as error:
        reader.problems.append(f"[parser]: {error}")
        return None


def _content(descriptor: str) -> bytes:
    try:
        return Path(descriptor).read_bytes()
    except (OSError, ValueError) as error:  # a ValueError for a path with a null character
        cause = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read descriptor {descriptor}: {cause}. Set the path of a file") from None


def read_dead_letters(
    reader: JobFileReader,
    content: Mapping[str, Any] | None,
    source: Mapping[str, str],
    parsed: SourceOptions | None,
    *,
    has_parser: bool,
) -> DeadLetterSettings:
    """Return the settings of [dead_letters]. Problems go to the reader. `parsed` are the options `source` as values."""
    if content is None:
        return DeadLetterSettings()
    keys = dict(content)
    given = keys.pop("options", {})
    values = reader.values(DEAD_LETTERS, keys)
    options = reader.options(OPTIONS_SECTION, given, "options of a write") if given else {}
    if not has_parser:
        reader.problems.append("[dead_letters] requires [parser], which says how values are read. Add it")
    if ("topic" in values) == ("path" in values):
        reader.problems.append("[dead_letters] requires topic or path, and not both. Set one of them")
        return DeadLetterSettings()
    reader.check_placeholders(DEAD_LETTERS, values, ("path", "topic"))
    if not {"max_records", "max_share"} & values.keys():
        reader.note(DEAD_LETTERS, {"max_share": DEFAULT_SHARE}, origin=DEFAULT)
    if "topic" in values:
        options = _write_options(reader, values["topic"], options, source, parsed)
    elif options:
        reader.problems.append("[dead_letters.options] are options of a write to Kafka, and no topic is set")
    return DeadLetterSettings(**values, options=options)


def _write_options(
    reader: JobFileReader,
    topic: str,
    given: Mapping[str, str],
    source: Mapping[str, str],
    parsed: SourceOptions | None,
) -> dict[str, str]:
    """Return the options of the write: those given and, unless they name a cluster, the connection of the source."""
    options = dict(given)
    names = {name.lower() for name in given}
    if names.isdisjoint(_ADDRESSES):
        inherited = {name: v for name, v in source.items() if name.lower() in _CONNECTION and name.lower() not in names}
        reader.note(OPTIONS_SECTION, inherited, origin=f"[{SOURCE}]")
        options |= inherited
        if parsed is not None and is_subscribed(parsed.subscription, TopicPartition(topic, 0)):
            reader.problems.append(
                f"[dead_letters] topic {topic!r} is among the topics that [source] reads: the job would read its own "
                "dead letters. Choose another topic"
            )
    if "topic" in names:
        reader.problems.append("cannot set topic in [dead_letters.options]. Write it as 'topic' below [dead_letters]")
    elif source:
        try:
            parse_sink({**options, "topic": topic}, strict=True)
        except ConfigError as error:
            reader.problems.append(f"[dead_letters.options]: {error}")
    return options
