"""The configuration of the mirror job: one TOML file, which is checked before Spark starts."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

import regex

from streamgroup.errors import ConfigError
from streamgroup.frozen import frozen
from streamgroup.java_regex import search_name
from streamgroup.jobs.job_file import MEMBER, JobFileReader, Metrics, SparkSettings, StopSettings, Trigger, read_toml
from streamgroup.jobs.keys import AT_LEAST_ONCE, COMMON, COUNT, EXACTLY_ONCE, FLAG, OPTIONS, TEXT, Key
from streamgroup.jobs.mirror.plan import Placement
from streamgroup.options.kinds import TRANSACTION
from streamgroup.options.parse import parse_sink, parse_source
from streamgroup.options.rows import Option, Scope
from streamgroup.options.settings_reader import suggestion
from streamgroup.options.sink import SINK as SINK_OPTIONS
from streamgroup.options.source import SOURCE as SOURCE_OPTIONS
from streamgroup.options.types import Isolation, SinkOptions, SourceOptions

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@frozen
class Renaming:
    """The rule by which topics are renamed. Without any field set, a topic keeps its name."""

    table: Mapping[str, str] = field(default_factory=dict)
    """The names of single topics. They take precedence over the other fields."""
    match: str = ""
    """A regular expression in Python's syntax. Its first match in the name is replaced by `replace`."""
    replace: str = ""
    """The text of `match`; `\\\\1` is the first group."""
    prefix: str = ""
    """A text before each name that is not in the table, also after a replacement."""

    def name(self, topic: str) -> str:
        """Return the name of `topic` at the destination.

        Raises ConfigError if it is not a valid topic name, or if the search for `match` takes too long.
        """
        renamed = self.table[topic] if topic in self.table else self.prefix + self._replaced(topic)
        if not _TOPIC.fullmatch(renamed) or renamed in {".", ".."}:
            raise ConfigError(
                f"cannot rename topic {topic!r} to {renamed!r}: expected 1 to 249 letters, digits, '.', '_' and '-'. "
                "Correct [rename]"
            )
        return renamed

    def _replaced(self, topic: str) -> str:
        try:
            found = search_name(regex.compile(self.match), topic) if self.match else None
        except ValueError as error:
            raise ConfigError(f"cannot rename topic {topic!r} by [rename] match {self.match!r}: {error}") from None
        return topic if found is None else topic[: found.start()] + found.expand(self.replace) + topic[found.end() :]

    def names(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the name of each topic. Raises ConfigError if two topics would have one name."""
        names = {topic: self.name(topic) for topic in sorted(topics)}
        sources: dict[str, str] = {}
        for topic, renamed in names.items():
            if renamed in sources:
                raise ConfigError(
                    f"cannot mirror topics {sources[renamed]!r} and {topic!r} into one topic {renamed!r}: the order of "
                    "their records would be mixed. Correct [rename]"
                )
            sources[renamed] = topic
        return names


def check_pattern(match: str, replace: str) -> None:
    """Raise ValueError if `match` is not a regular expression, or `replace` names a group that it lacks.

    Both have the syntax of Python's `re`, which the package `regex` shares. `regex` searches: `re` has no timeout.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            compiled = re.compile(match)
    except re.error as error:
        raise ValueError(f"match is not a regular expression: {error}") from None
    except FutureWarning as warning:  # such as [[a], in which the inner bracket may begin a set of its own
        raise ValueError(
            f"match may mean something else in a later Python: {warning}. Escape it by a backslash"
        ) from None
    # Python checks the groups of a template only when something matches, so it is tried on empty groups.
    groups = ["()"] * compiled.groups
    for name, number in compiled.groupindex.items():
        groups[number - 1] = f"(?P<{name}>)"
    try:
        re.sub("".join(groups), replace, "", count=1)
    except (re.error, IndexError) as error:
        raise ValueError(f"replace does not fit match: {error}") from None


_SUBSCRIPTIONS = ("subscribe", "subscribepattern", "assign")
STARTS = ("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp")
"""The options of a start, in lower case."""
ISOLATION, READ_COMMITTED = "kafka.isolation.level", "read_committed"
COMMITTED = {ISOLATION: READ_COMMITTED}
"""The mirror's default. Its producer writes without transactions, so every consumer of the copy would get the records
of aborted ones."""
_STORE = "offsets.store"
_THE_MIRROR = "the mirror"
"""The origin of an option that the mirror sets."""
_IN_FLIGHT = "kafka.max.in.flight.requests.per.connection"

_REFUSED_OF_SOURCE = {
    "includeheaders": "the mirror copies headers where both clusters have them",
    "includeinnerindex": "the mirror adds the column where it needs it",
    "includedamagedbatches": "the mirror would copy the bytes of a damaged batch as a record",
    "minpartitions": "two tasks that read one partition would mix up the order of its records",
    "maxrecordsperpartition": "two tasks that read one partition would mix up the order of its records",
}
_REFUSED_OF_DESTINATION = {
    "topic": "all records would go into one topic. Name topics in [rename]",
    "includetimestamp": "the mirror copies timestamps where both clusters have them",
}
_REFUSED_OF_VERIFY = {
    **dict.fromkeys(_SUBSCRIPTIONS, "a verification reads the topics of the mirror"),
    "includeheaders": _REFUSED_OF_SOURCE["includeheaders"],
    "includeinnerindex": _REFUSED_OF_SOURCE["includeinnerindex"],
    "includedamagedbatches": "a damaged batch has no records to compare",
}


@frozen
class Placements:
    """How the records of each topic are placed at the destination."""

    default: Placement = Placement.AUTO
    of_topics: Mapping[str, Placement] = field(default_factory=dict)

    def of(self, topic: str) -> Placement:
        return self.of_topics.get(topic, self.default)


@frozen
class MirrorConfig:
    """The configuration of a mirror. `source` and `destination` contain the options of the read and of the write."""

    file: Path
    member: str | None
    source: Mapping[str, str] = field(repr=False)  # may hold secrets
    destination: Mapping[str, str] = field(repr=False)
    checkpoint: str
    plan: str
    spark: SparkSettings = field(repr=False)
    guarantee: str = AT_LEAST_ONCE
    placements: Placements = field(default_factory=Placements)
    renaming: Renaming = field(default_factory=Renaming)
    create: bool = False
    replication_factor: int | None = None
    """The replication factor of topics that the mirror creates. None: the brokers' default."""
    trigger: Trigger = field(default_factory=Trigger)
    stop: StopSettings = field(default_factory=StopSettings)
    metrics: Metrics = field(default_factory=Metrics)
    verify_source: Mapping[str, str] = field(default_factory=dict, repr=False)
    verify_destination: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def in_transaction(self) -> bool:
        """Whether each batch is a transaction of Kafka, of its records and the offsets of the group."""
        return self.guarantee == EXACTLY_ONCE


def load(file: Path, member: str | None = None, environment: Mapping[str, str] | None = None) -> MirrorConfig:
    """Return the mirror of `file` for `member`, or else for the member in STREAMGROUP_MEMBER.

    Raises ConfigError that names all problems of the file together.
    """
    return _MirrorReader(file, member, os.environ if environment is None else environment).mirror(read_toml(file))


def effective(file: Path, member: str | None = None, environment: Mapping[str, str] | None = None) -> list[str]:
    """Return the configuration that `load` makes as lines of TOML, each value with its origin and no secret."""
    reader = _MirrorReader(file, member, os.environ if environment is None else environment)
    reader.mirror(read_toml(file))
    return reader.effective()


def _allowed(options: Iterable[Option], refused: Collection[str]) -> tuple[Option, ...]:
    return tuple(option for option in options if option.name.lower() not in refused)


class _MirrorReader(JobFileReader):
    """Reads the job file of a mirror, and collects its problems."""

    def __init__(self, file: Path, member: str | None, environment: Mapping[str, str]) -> None:
        of_options = {
            SOURCE: (_allowed(SOURCE_OPTIONS, _REFUSED_OF_SOURCE), Scope.STREAM),
            DESTINATION: (_allowed(SINK_OPTIONS, _REFUSED_OF_DESTINATION), Scope.WRITE),
        }
        super().__init__(file, member, environment, sections=SECTIONS, of_options=of_options)

    def mirror(self, document: Mapping[str, Any]) -> MirrorConfig:
        self.check_member()
        sections = self.sections(document)
        values = {name: self.values(name, sections.get(name, {})) for name in SECTIONS}
        source = self._source(sections.get(SOURCE), guarantee=values["mirror"].get("guarantee", AT_LEAST_ONCE))
        destination = self._destination(sections.get(DESTINATION))
        placements = self._placements(values["topics"])
        renaming = self._renaming(values["rename"])
        self._check_directories(values["mirror"])
        self.check_trigger(values["trigger"])
        self.check_spark(values["spark"])
        self.check_metrics(values["metrics"])
        self._check_speculation(values["spark"])
        for side in (SOURCE, DESTINATION):
            self._refuse(f"verify.{side}", values["verify"].get(side, {}), _REFUSED_OF_VERIFY)
        self.raise_problems()
        return MirrorConfig(
            file=self.file,
            member=self.member,
            source=source,
            destination=destination,
            checkpoint=values["mirror"]["checkpoint"],
            plan=values["mirror"]["plan"],
            guarantee=values["mirror"].get("guarantee", AT_LEAST_ONCE),
            spark=SparkSettings(**{"app_name": self.file.stem, **values["spark"]}),
            placements=placements,
            renaming=renaming,
            create=values["topics"].get("create", False),
            replication_factor=values["topics"].get("replication_factor"),
            trigger=Trigger(**values["trigger"]),
            stop=StopSettings(**values["stop"]),
            metrics=Metrics(**values["metrics"]),
            verify_source=values["verify"].get(SOURCE, {}),
            verify_destination=values["verify"].get(DESTINATION, {}),
        )

    # -- the two clusters ----------------------------------------------------------------------------------------------

    def _source(self, content: Mapping[str, Any] | None, *, guarantee: str) -> dict[str, str]:
        if guarantee not in {AT_LEAST_ONCE, EXACTLY_ONCE}:
            self.problems.append(
                f"invalid value for [mirror] guarantee: expected {AT_LEAST_ONCE!r} or {EXACTLY_ONCE!r}"
            )
        options = self.options(SOURCE, content, 'the options of a read by format("streamgroup")')
        if not options:
            return {}
        self._refuse(SOURCE, options, _REFUSED_OF_SOURCE)
        given = {name.lower() for name in options}
        defaults = {} if given & set(STARTS) else {"startingOffsets": "earliest"}
        if not given & COMMITTED.keys():
            defaults |= COMMITTED
        self.note(SOURCE, defaults, origin=_THE_MIRROR)
        options |= defaults
        if guarantee == EXACTLY_ONCE and _STORE not in given:
            self.note(SOURCE, {_STORE: TRANSACTION}, origin="[mirror] guarantee")
            options[_STORE] = TRANSACTION
        try:
            parsed = parse_source(options, streaming=True, strict=True)
        except ConfigError as error:
            self.problems.append(f"[source]: {error}")
        else:
            self._check_transaction(parsed, guarantee)
        return options

    def _check_transaction(self, source: SourceOptions, guarantee: str) -> None:
        is_member = source.group is not None and source.group.in_transaction
        if guarantee == EXACTLY_ONCE and not is_member:
            self.problems.append(
                f"cannot use [mirror] guarantee {EXACTLY_ONCE!r} without a member of a group that commits in the "
                "transactions. Set kafka.group.id and subscribe or subscribePattern in [source], and remove "
                "offsets.store and group.mode"
            )
        elif guarantee != EXACTLY_ONCE and is_member:
            self.problems.append(
                f"cannot use offsets.store={TRANSACTION} in [source]: the mirror writes without transactions. Set "
                f"[mirror] guarantee = {EXACTLY_ONCE!r}"
            )
        if guarantee == EXACTLY_ONCE and source.fetch.isolation is not Isolation.READ_COMMITTED:
            self.problems.append(
                f"cannot use [mirror] guarantee {EXACTLY_ONCE!r} with kafka.isolation.level=read_uncommitted in "
                "[source]: the copy would have the records of aborted transactions. Remove kafka.isolation.level"
            )

    def _destination(self, content: Mapping[str, Any] | None) -> dict[str, str]:
        options = self.options(DESTINATION, content, 'the options of a write by format("streamgroup")')
        if not options:
            return {}
        self._refuse(DESTINATION, options, _REFUSED_OF_DESTINATION)
        try:
            parsed = parse_sink(options, strict=True)
        except ConfigError as error:
            self.problems.append(f"[destination]: {error}")
        else:
            in_order = self._in_order(parsed, options)
            self.note(DESTINATION, in_order, origin=_THE_MIRROR)
            options |= in_order
        return options

    def _in_order(self, parsed: SinkOptions, options: Mapping[str, str]) -> dict[str, str]:
        """Return the options that keep the order of records. Add a problem if others lose records or their order."""
        producer = parsed.producer
        if producer.acks == 0 and not parsed.client.zookeeper:
            self.problems.append(
                "cannot use kafka.acks=0 in [destination]: the mirror would not notice lost records. Set it to all or 1"
            )
        if producer.enable_idempotence or producer.max_in_flight == 1:
            return {}
        if any(name.lower() == _IN_FLIGHT for name in options):
            self.problems.append(
                f"{_IN_FLIGHT} in [destination] must be 1 without idempotence: a retry would change the order of "
                "records. Remove it"
            )
        return {_IN_FLIGHT: "1"}

    def _refuse(self, section: str, options: Mapping[str, str], refused: Mapping[str, str]) -> None:
        for name in options:
            if why := refused.get(name.lower()):
                self.problems.append(f"cannot set {name} in [{section}]: {why}")

    # -- topics --------------------------------------------------------------------------------------------------------

    def _placements(self, topics: Mapping[str, Any]) -> Placements:
        of_topics = {
            topic: self._placement(f"[topics.partitions_of] {topic}", word)
            for topic, word in topics.get("partitions_of", {}).items()
        }
        return Placements(self._placement("[topics] partitions", topics.get("partitions", "auto")), of_topics)

    def _placement(self, place: str, word: str) -> Placement:
        try:
            return Placement(word)
        except ValueError:
            words = [placement.value for placement in Placement]
            hint = suggestion(word, words) or f". Set one of {', '.join(words)}"
            self.problems.append(f"invalid value {word!r} for {place}{hint}")
            return Placement.AUTO

    def _renaming(self, rename: Mapping[str, Any]) -> Renaming:
        renaming = Renaming(**rename)
        if renaming.replace and not renaming.match:
            self.problems.append("[rename] replace has no effect without match. Set match, or use prefix or table")
        try:
            check_pattern(renaming.match, renaming.replace)
        except ValueError as error:
            self.problems.append(f"invalid value in [rename]: {error}")
        return renaming

    # -- directories and Spark -----------------------------------------------------------------------------------------

    def _check_directories(self, mirror: Mapping[str, Any]) -> None:
        self.check_placeholders("mirror", mirror, ("checkpoint", "plan"))
        self.check_paths_of_members("mirror", mirror, ("checkpoint",))
        if self.has_member("[mirror] plan"):
            self.problems.append(f"[mirror] plan must not contain {MEMBER}: all members write by one plan. Remove it")

    def _check_speculation(self, spark: Mapping[str, Any]) -> None:
        if spark.get("conf", {}).get("spark.speculation", "false").lower() == "true":
            self.problems.append(
                "cannot use spark.speculation in [spark.conf]: two attempts of a task would write the same records at "
                "the same time, in no order. Remove it"
            )


SOURCE, DESTINATION = "source", "destination"
"""The sections with the options of the read and of the write."""

SECTIONS: Mapping[str, tuple[Key, ...]] = {
    "mirror": (
        Key(
            "checkpoint",
            TEXT,
            "Directory of the query's checkpoint. May contain `{member}`.",
            required=True,
        ),
        Key(
            "plan",
            TEXT,
            "Directory where the mirror notes the partitions that it writes. All members share it.",
            required=True,
        ),
        Key(
            "guarantee",
            TEXT,
            "`exactly-once` writes the records of a batch and the offsets in one transaction. Source and destination "
            "must be one cluster. `at-least-once` may repeat a batch after a failure.",
            default='"at-least-once"',
        ),
    ),
    "topics": (
        Key("partitions", TEXT, "`keep`, `hash` or `auto` (the default).", default='"auto"'),
        Key("partitions_of", OPTIONS, "The same for single topics, by their names at the source."),
        Key(
            "create",
            FLAG,
            "Create missing topics, with the partitions and the configuration of their source topics.",
            default="false",
        ),
        Key(
            "replication_factor",
            COUNT,
            "Replicas of each partition of a created topic. Brokers before 2.4 need it; later ones have a default.",
        ),
    ),
    "rename": (
        Key("prefix", TEXT, "A text before the name."),
        Key("match", TEXT, "Regular expression. Its first match in the name is replaced."),
        Key("replace", TEXT, "The text that replaces the match. The default is nothing."),
        Key("table", OPTIONS, "The new names of single topics."),
    ),
    **COMMON,
    "verify": (
        Key("source", OPTIONS, "Options of the read of the source, such as `endingTimestamp`."),
        Key("destination", OPTIONS, "Options of the read of the destination, such as `startingTimestamp`."),
    ),
}
"""The keys of all sections but those of options."""
