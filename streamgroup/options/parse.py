"""From the options of a read, as Spark hands them over, to `SourceOptions`."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from streamgroup.errors import ConfigError
from streamgroup.model import EARLIEST, LATEST, OffsetSpec, TopicPartition
from streamgroup.options import kinds, zookeeper
from streamgroup.options.kafka import KAFKA, PREFIX
from streamgroup.options.rows import Effect, Option
from streamgroup.options.secrets import is_secret
from streamgroup.options.source import HINTS, NO_GROUP_IN_BATCH, SOURCE
from streamgroup.options.types import (
    ClientOptions,
    FetchOptions,
    GroupOptions,
    LimitOptions,
    Mode,
    SourceOptions,
    SplitOptions,
    Subscription,
    ZooKeeperOptions,
)

OPTIONS: Mapping[str, Option] = {option.name.lower(): option for option in (*SOURCE, *zookeeper.ZOOKEEPER, *KAFKA)}
"""All options by their name in lower case: Spark hands names over in any case."""

_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
_STARTS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_EXCERPT = 300


def follows_references(name: str) -> bool:
    """Whether the value of this option may be a reference such as `env:NAME`, followed where it is used."""
    option = OPTIONS.get(name.lower())
    return option is not None and option.kind is kinds.SECRET


def parse_source(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """What the options of a read mean.

    Raises ConfigError that tells of all problems together: unknown, contradictory and missing options, values that mean
    nothing, and what is not available. The values of secret options stand in no message.
    """
    reading, subscription, parsed = _read(options, streaming=streaming)
    if reading.problems:
        raise ConfigError(_together(reading.problems))
    return SourceOptions(subscription=subscription, notes=reading.all_notes(), **parsed)


def check_source(options: Mapping[str, str]) -> None:
    """Raise ConfigError for options that neither a stream nor a batch read can have.

    `load()` is the same call for both. The error tells of the problems that both have, or else of those of either.
    """
    stream, batch = (_read(options, streaming=streaming)[0].problems for streaming in (True, False))
    if not stream or not batch:
        return
    common = [problem for problem in stream if problem in batch]
    either = [*(f"in a stream: {problem}" for problem in stream), *(f"in a batch read: {problem}" for problem in batch)]
    raise ConfigError(_together(common or either))


def _read(options: Mapping[str, str], *, streaming: bool) -> tuple[_Reading, Subscription, dict[str, Any]]:
    """What the options mean beside the subscription, by the fields of `SourceOptions`, if there are no problems."""
    reading = _Reading(streaming)
    reading.take(options)
    subscription = reading.subscription()
    registry = zookeeper.section(reading.values, reading.given, reading.problems)
    parsed = {
        "client": reading.client(registry),
        "fetch": reading.section("fetch", FetchOptions),
        "limits": reading.section("limits", LimitOptions),
        "split": reading.section("split", SplitOptions),
        "group": reading.group(subscription, registry) if streaming else None,
        "starting": reading.bounds(_STARTS, LATEST if streaming else EARLIEST, subscription),
        "ending": None if streaming else reading.bounds(_ENDS, LATEST, subscription),
        **reading.fields("source"),
    }
    reading.compare(parsed)
    return reading, subscription, parsed


class _Reading:
    """One read of options: the values that mean something, and what there is to say about the others."""

    def __init__(self, streaming: bool) -> None:
        self.streaming = streaming
        self.values: dict[str, Any] = {}
        self.given: set[str] = set()
        self.problems: list[str] = []
        self.notes: list[str] = []
        self.idle: dict[str, list[str]] = {}  # why -> the options without effect for that reason

    def take(self, options: Mapping[str, str]) -> None:
        """Sort the given options into values, problems and notes."""
        for key, text in sorted(options.items(), key=lambda item: item[0].lower()):
            option = OPTIONS.get(key.lower())
            if option is None:
                self.problems.append(_unknown(key, streaming=self.streaming))
            elif option.name in self.given:
                self.problems.append(f"{option.name} is given twice, in different spellings")
            else:
                self.given.add(option.name)
                self._take(option, str(text))

    def _take(self, option: Option, text: str) -> None:
        effect = option.effect(streaming=self.streaming)
        if effect is Effect.WITHOUT_EFFECT:
            self.idle.setdefault(option.reason(streaming=self.streaming), []).append(option.name)
        elif effect is Effect.REFUSED:
            self.problems.append(f"{option.name} is refused: {option.reason(streaming=self.streaming)}")
        else:
            try:
                self.values[option.name] = self._kind(option).parse(text)
            except ValueError as error:
                shown = "" if is_secret(option.name) else f" is {_excerpt(text)!r}"
                self.problems.append(f"{option.name}{shown}: {error}")

    def _kind(self, option: Option) -> kinds.Kind:
        return kinds.BATCH_STARTS if option.name == "startingOffsets" and not self.streaming else option.kind

    def fields(self, section: str) -> dict[str, Any]:
        """The values of all options whose target is a field of this section."""
        return {
            option.target.partition(".")[2]: self.values[option.name]
            for option in OPTIONS.values()
            if option.target.startswith(section + ".") and option.name in self.values
        }

    def section(self, name: str, cls: type) -> Any:
        """A section with the values given; None, and a problem, where one that it requires is not given."""
        given = self.fields(name)
        absent = [f.name for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING and f.name not in given]
        for option in OPTIONS.values():
            if option.name not in self.given and option.target in {f"{name}.{field}" for field in absent}:
                self.problems.append(_MISSING[option.name])
        return None if absent else cls(**given)

    def client(self, registry: ZooKeeperOptions | None) -> ClientOptions | None:
        """How brokers are reached. Those that are registered need not be named."""
        if registry is not None:
            self.values.setdefault("kafka.bootstrap.servers", ())
        client: ClientOptions | None = self.section("client", ClientOptions)
        return None if client is None else dataclasses.replace(client, zookeeper=registry)

    def group(self, subscription: Subscription, registry: ZooKeeperOptions | None) -> GroupOptions:
        """How the stream stands to its group. Who assigns partitions to itself leaves the group none to assign."""
        group: GroupOptions = self.section("group", GroupOptions)
        named, by_itself = bool(group.group_id), bool(subscription.assign)
        chosen = (Mode.COMMIT if by_itself else Mode.MEMBER) if named else Mode.OFF
        mode = group.mode if "group.mode" in self.values else chosen
        if mode is not Mode.OFF and not named and "kafka.group.id" not in self.given:
            self.problems.append(_NO_GROUP.format(mode=mode.value))
        if mode is Mode.MEMBER and by_itself:
            self.problems.append(_ASSIGNED_MEMBER)
        for option in OPTIONS.values():
            if option.name in self.given and _is_idle(option, mode):
                self.idle.setdefault(_IDLE_IN[mode], []).append(option.name)
        group = dataclasses.replace(group, mode=mode, group_id="" if mode is Mode.OFF else group.group_id)
        if mode is not Mode.OFF:
            group = self._noted(zookeeper.stored(group, registry, self.given, self.problems))
        if mode is Mode.MEMBER and registry is not None:
            group = self._noted(zookeeper.registered(group, registry, self.given, self.problems))
        return group

    def _noted(self, group: tuple[GroupOptions, Mapping[str, str]]) -> GroupOptions:
        for name, why in group[1].items():
            self.idle.setdefault(why, []).append(name)
        return group[0]

    def subscription(self) -> Subscription:
        """What is read, by exactly one of three options; an empty one, and a problem, where that does not hold."""
        given = [name for name in _SUBSCRIPTIONS if name in self.given]
        if len(given) != 1:
            how = f"{' and '.join(given)} are given" if given else "none is given"
            self.problems.append(f"exactly one of {', '.join(_SUBSCRIPTIONS)} says what to read: {how}")
            return Subscription()
        return Subscription(
            topics=self.values.get("subscribe", ()),
            pattern=self.values.get("subscribePattern"),
            assign=self.values.get("assign", ()),
        )

    def bounds(self, names: tuple[str, str, str], default: int, subscription: Subscription) -> OffsetSpec:
        """Starts or ends: as in Spark, the first of the three options that is given counts alone."""
        given = [name for name in names if name in self.given]
        for loser in given[1:]:
            self.notes.append(f"{loser} is without effect: {given[0]} goes before it")
        no_match_is_latest = names is _ENDS or self.values.get("startingOffsetsByTimestampStrategy", False)
        value = self.values.get(given[0]) if given else None
        if isinstance(value, dict):
            self._compare_with_subscription(given[0], value, subscription)
        timestamp, timestamps, offsets = names
        match value:
            case None:
                return OffsetSpec(default, no_match_is_latest=no_match_is_latest)
            case int() if given[0] == timestamp:
                return OffsetSpec(default, timestamp=value, no_match_is_latest=no_match_is_latest)
            case dict() if given[0] == timestamps:
                return OffsetSpec(default, timestamps=value, no_match_is_latest=no_match_is_latest)
            case dict() if given[0] == offsets:
                return OffsetSpec(default, offsets=value, no_match_is_latest=no_match_is_latest)
            case _:
                return OffsetSpec(value, no_match_is_latest=no_match_is_latest)

    def _compare_with_subscription(
        self, name: str, listed: Iterable[TopicPartition], subscription: Subscription
    ) -> None:
        """As in Spark, starts and ends by partition list all partitions that are read, and no other."""
        if subscription.assign:
            read: set[Any] = set(subscription.assign)
            named: set[Any] = set(listed)
        elif subscription.topics:
            read, named = set(subscription.topics), {tp.topic for tp in listed}
        else:
            return  # a pattern: only the cluster knows
        if missing := sorted(map(str, read - named)):
            self.problems.append(f"{name} lists all partitions that are read or none: {', '.join(missing)} is missing")
        if strange := sorted(map(str, named - read)):
            self.problems.append(f"{name} lists {', '.join(strange)}, which is not read")

    def compare(self, parsed: dict[str, Any]) -> None:
        """What no option can know alone."""
        client, fetch, group = parsed["client"], parsed["fetch"], parsed["group"]
        if client and fetch.max_wait_ms >= client.request_timeout_ms:
            self.problems.append(
                f"kafka.fetch.max.wait.ms ({fetch.max_wait_ms}) must be below kafka.request.timeout.ms "
                f"({client.request_timeout_ms}): else every fetch at the end of a log would time out"
            )
        if client and client.retry_backoff_ms > client.retry_backoff_max_ms:
            self.notes.append(
                f"kafka.retry.backoff.max.ms ({client.retry_backoff_max_ms}) is below kafka.retry.backoff.ms "
                f"({client.retry_backoff_ms}): every wait is {client.retry_backoff_ms} ms"
            )
            parsed["client"] = dataclasses.replace(client, retry_backoff_max_ms=client.retry_backoff_ms)
        if group and group.is_member and group.heartbeat_interval_ms >= group.session_timeout_ms:
            self.problems.append(
                f"kafka.heartbeat.interval.ms ({group.heartbeat_interval_ms}) must be below kafka.session.timeout.ms "
                f"({group.session_timeout_ms}), best a third of it"
            )

        self._compare_limits(parsed["limits"])

    def _compare_limits(self, limits: LimitOptions) -> None:
        if not self.streaming:
            return
        least, most = limits.min_offsets_per_trigger, limits.max_offsets_per_trigger
        if least is not None and most is not None and least > most:
            self.problems.append(
                f"minOffsetsPerTrigger ({least}) must not be above maxOffsetsPerTrigger ({most}): no batch is both"
            )
        if least is None and "maxTriggerDelay" in self.given:
            self.notes.append("maxTriggerDelay is without effect: minOffsetsPerTrigger, which it bounds, is not given")

    def all_notes(self) -> tuple[str, ...]:
        """The sentences for the log, one a reason."""
        where = "" if self.streaming else " in a batch read"
        return (
            *self.notes,
            *(f"without effect{where}: {', '.join(names)} ({why})" for why, names in self.idle.items()),
        )


_MISSING = {
    "kafka.bootstrap.servers": (
        "kafka.bootstrap.servers is required: add option('kafka.bootstrap.servers', 'host:port'), or, for a Kafka "
        "before 0.10, option('zookeeper.connect', 'host:port')"
    ),
}
"""What to say where a required option is not given."""

_NO_GROUP = (
    "kafka.group.id is required with group.mode={mode}: add option('kafka.group.id', '<name>'), or read without a "
    "group: group.mode=off"
)
_ASSIGNED_MEMBER = (
    "assign and group.mode=member exclude each other: a group assigns its partitions itself. Be a member of topics "
    "(subscribe, subscribePattern), or read these partitions with group.mode=commit or off"
)
_IDLE_IN = {
    Mode.COMMIT: "with group.mode=commit the query is no member of its group",
    Mode.OFF: "with group.mode=off no group knows of the query",
}
_USED_IN_COMMIT = {"kafka.group.id", "group.joinTimeout", "kafka.offsets.storage", "kafka.dual.commit.enabled"}


def _is_idle(option: Option, mode: Mode) -> bool:
    """Whether an option about groups does nothing in this mode."""
    if mode is Mode.MEMBER or option.name == "group.mode" or option.reason(streaming=False) != NO_GROUP_IN_BATCH:
        return False
    return mode is Mode.OFF or option.name not in _USED_IN_COMMIT


def _unknown(key: str, *, streaming: bool) -> str:
    lower = key.lower()
    text = f"{key} is not an option of this source"
    if lower in HINTS:
        return f"{text}: {HINTS[lower]}"
    prefixed = OPTIONS.get(PREFIX + lower)
    near = prefixed or _nearest(lower)
    if near is None:
        return text
    if near.effect(streaming=streaming) is Effect.REFUSED:
        # A suggestion that is refused as well would send the user from one error to the next.
        return f"{text}, and '{near.name}' is refused: {near.reason(streaming=streaming)}"
    if prefixed:
        return f"{text}: Kafka's properties begin with 'kafka.': '{near.name}'"
    return f"{text}: did you mean '{near.name}'?"


def _nearest(lower: str) -> Option | None:
    """The option whose name is most like `lower`; names with Kafka's prefix are compared by what follows it."""
    if not lower.startswith(PREFIX):
        near = difflib.get_close_matches(lower, OPTIONS, n=1, cutoff=0.6)
        return OPTIONS[near[0]] if near else None
    # With the prefix even names that have nothing in common would be alike.
    properties = [name.removeprefix(PREFIX) for name in OPTIONS if name.startswith(PREFIX)]
    near = difflib.get_close_matches(lower.removeprefix(PREFIX), properties, n=1, cutoff=0.6)
    return OPTIONS[PREFIX + near[0]] if near else None


def _excerpt(text: str) -> str:
    return text if len(text) <= _EXCERPT else text[:_EXCERPT] + "…"


def _together(problems: list[str]) -> str:
    if len(problems) == 1:
        return problems[0]
    return f"{len(problems)} problems with the options:" + "".join(f"\n  - {problem}" for problem in problems)
