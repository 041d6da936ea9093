"""Parse the options of a read, as Spark passes them, into `SourceOptions`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

from streamgroup.errors import ConfigError
from streamgroup.model import EARLIEST, LATEST, ConfiguredOffsets, TopicPartition
from streamgroup.options import kinds, zookeeper
from streamgroup.options.kafka import KAFKA
from streamgroup.options.reading import OptionsReader, all_together
from streamgroup.options.rows import SCOPE_OF_MODE, Effect, Option, Scope
from streamgroup.options.source import HINTS, SOURCE
from streamgroup.options.types import (
    ClientOptions,
    FetchOptions,
    GroupMode,
    GroupOptions,
    LimitOptions,
    SourceOptions,
    SplitOptions,
    Subscription,
    ZooKeeperOptions,
)
from streamgroup.text import MOST_NAMED, first_of

OPTIONS: Mapping[str, Option] = {option.name.lower(): option for option in (*SOURCE, *zookeeper.ZOOKEEPER, *KAFKA)}
"""All options by their name in lower case: users may write names in any case."""

_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
_STARTS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")


def follows_references(name: str) -> bool:
    """Return whether the value of this option may be a reference such as `env:NAME`, which its user follows."""
    option = OPTIONS.get(name.lower())
    return option is not None and option.kind is kinds.SECRET


def parse_source(options: Mapping[str, str], *, streaming: bool, strict: bool = False) -> SourceOptions:
    """Return the options of a stream or of a batch read as values. `strict` is the default of the option `strict`.

    Raises ConfigError that names all problems together: misspelled, contradictory and missing options, invalid values,
    and what is not supported. It never shows the value of a secret option.
    """
    reading, subscription, parsed = _read(options, streaming=streaming, strict=strict)
    if reading.problems:
        raise ConfigError(all_together(reading.problems))
    return SourceOptions(subscription=subscription, notes=reading.all_notes(), **parsed)


def check_source(options: Mapping[str, str]) -> None:
    """Raise ConfigError for options that are valid neither in a stream nor in a batch read.

    Spark's `load()` does not yet tell which of both it is. The error names the problems of both, or else of each. An
    invalid value is a problem of both, although a stream refuses some options without a look at their values.
    """
    stream, batch = (_read(options, streaming=streaming)[0] for streaming in (True, False))
    if not stream.problems or not batch.problems:
        return
    common = [problem for problem in stream.problems if problem in batch.problems]
    for name, problem in batch.invalid.items():
        if OPTIONS[name.lower()].effect(stream.scope) is Effect.REFUSED:
            common.append(problem)
    in_stream = (f"in a stream: {problem}" for problem in stream.problems)
    in_batch = (f"in a batch read: {problem}" for problem in batch.problems)
    raise ConfigError(all_together(common or [*in_stream, *in_batch]))


def _read(
    options: Mapping[str, str], *, streaming: bool, strict: bool = False
) -> tuple[_Reading, Subscription, dict[str, Any]]:
    """Return the subscription, and the other fields of `SourceOptions`. They are valid if there are no problems."""
    reading = _Reading(streaming, strict)
    reading.take_all(options)
    subscription = reading.subscription()
    registry = zookeeper.section(reading.values, reading.given, reading.problems, reading.notes)
    group = reading.group(subscription, registry) if streaming else None
    parsed = {
        "client": reading.named(reading.client(registry), group),
        "fetch": reading.section("fetch", FetchOptions),
        "limits": reading.section("limits", LimitOptions),
        "split": reading.section("split", SplitOptions),
        "group": group,
        "starting": reading.bounds(_STARTS, LATEST if streaming else EARLIEST, subscription),
        "ending": None if streaming else reading.bounds(_ENDS, LATEST, subscription),
        **reading.fields("source"),
    }
    reading.compare(parsed)
    return reading, subscription, parsed


class _Reading(OptionsReader):
    """The options of one read while they are parsed."""

    def __init__(self, streaming: bool, strict: bool) -> None:
        super().__init__(OPTIONS, Scope.STREAM if streaming else Scope.BATCH, HINTS, strict=strict)

    # -- sections ------------------------------------------------------------------------------------------------------

    def group(self, subscription: Subscription, registry: ZooKeeperOptions | None) -> GroupOptions:
        """Return how the stream uses its group. A stream with `assign` cannot be a member."""
        group: GroupOptions = self.section("group", GroupOptions)
        named, assigns = bool(group.group_id), bool(subscription.assign)
        default = (GroupMode.COMMIT if assigns else GroupMode.MEMBER) if named else GroupMode.OFF
        mode = group.mode if "group.mode" in self.values else default
        if mode is not GroupMode.OFF and not named and "kafka.group.id" not in self.given:
            self.problems.append(_NO_GROUP.format(mode=mode.value))
        if mode is GroupMode.MEMBER and assigns:
            self.problems.append(_ASSIGNED_MEMBER)
        scope = SCOPE_OF_MODE[mode]
        for option in OPTIONS.values():
            if option.name in self.given and option.scope & self.scope and not option.scope & scope:
                self.ignored.setdefault(option.reason(scope), []).append(option.name)
        group = dataclasses.replace(group, mode=mode, group_id="" if mode is GroupMode.OFF else group.group_id)
        if mode is not GroupMode.OFF:
            group = self._noted(zookeeper.stored(group, registry, self.given, self.problems))
        if mode is GroupMode.MEMBER and registry is not None:
            group = self._noted(zookeeper.registered(group, registry, self.given, self.problems))
        return group

    def named(self, client: ClientOptions | None, group: GroupOptions | None) -> ClientOptions | None:
        """Return `client` with the member's name in its id, unless the user has set `kafka.client.id`.

        Descriptions of the group show the client id, and would otherwise show the same one for all members. Brokers of
        0.9 and 0.10.0 put it into names of JMX beans, where other characters than these are not legal.
        """
        if client is None or group is None or not group.is_member or not group.member:
            return client
        if "kafka.client.id" in self.given:
            return client
        name = re.sub(r"[^A-Za-z0-9._-]", "_", group.member)
        return dataclasses.replace(client, client_id=f"{client.client_id}-{name}")

    def _noted(self, group: tuple[GroupOptions, Mapping[str, str]]) -> GroupOptions:
        for name, why in group[1].items():
            self.ignored.setdefault(why, []).append(name)
        return group[0]

    def subscription(self) -> Subscription:
        """Return what to read. Unless exactly one of three options is set, it is empty and there is a problem."""
        given = [name for name in _SUBSCRIPTIONS if name in self.given]
        if len(given) != 1:
            how = f"{' and '.join(given)} are set" if given else "none is set"
            self.problems.append(f"cannot tell what to read: {how}. Set exactly one of {', '.join(_SUBSCRIPTIONS)}")
            return Subscription()
        return Subscription(
            topics=self.values.get("subscribe", ()),
            pattern=self.values.get("subscribePattern"),
            assign=self.values.get("assign", ()),
        )

    def bounds(self, names: tuple[str, str, str], default: int, subscription: Subscription) -> ConfiguredOffsets:
        """Return the starts or the ends. As in Spark, only the first of the three options takes effect."""
        given = [name for name in names if name in self.given]
        for loser in given[1:]:
            self.notes.append(f"ignored option {loser}: {given[0]} takes precedence")
        no_match_is_latest = names is _ENDS or self.values.get("startingOffsetsByTimestampStrategy", False)
        value = self.values.get(given[0]) if given else None
        if isinstance(value, dict):
            self._compare_with_subscription(given[0], value, subscription)
        timestamp, timestamps, offsets = names
        match value:
            case None:
                return ConfiguredOffsets(default, no_match_is_latest=no_match_is_latest)
            case int() if given[0] == timestamp:
                return ConfiguredOffsets(default, timestamp=value, no_match_is_latest=no_match_is_latest)
            case dict() if given[0] == timestamps:
                return ConfiguredOffsets(default, timestamps=value, no_match_is_latest=no_match_is_latest)
            case dict() if given[0] == offsets:
                return ConfiguredOffsets(default, offsets=value, no_match_is_latest=no_match_is_latest)
            case _:
                return ConfiguredOffsets(value, no_match_is_latest=no_match_is_latest)

    # -- options that must fit together --------------------------------------------------------------------------------

    def _compare_with_subscription(
        self, name: str, listed: Iterable[TopicPartition], subscription: Subscription
    ) -> None:
        """Require that starts or ends by partition list exactly the partitions that are read, as Spark does."""
        if subscription.assign:
            read: set[Any] = set(subscription.assign)
            named: set[Any] = set(listed)
        elif subscription.topics:
            read, named = set(subscription.topics), {tp.topic for tp in listed}
        else:
            return  # only the cluster knows which topics match a pattern
        noun = "partition" if subscription.assign else "topic"
        if missing := sorted(map(str, read - named)):
            self.problems.append(
                f"invalid value for option {name}: it must list all partitions that are read. Add "
                f"{first_of(missing, MOST_NAMED, noun)}"
            )
        if strange := sorted(map(str, named - read)):
            self.problems.append(
                f"invalid value for option {name}: it lists partitions that are not read. Remove "
                f"{first_of(strange, MOST_NAMED, noun)}"
            )

    def compare(self, parsed: dict[str, Any]) -> None:
        """Check options that depend on each other."""
        client, fetch, group = parsed["client"], parsed["fetch"], parsed["group"]
        if client and fetch.max_wait_ms >= client.request_timeout_ms:
            self.problems.append(
                f"kafka.fetch.max.wait.ms ({fetch.max_wait_ms}) must be below kafka.request.timeout.ms "
                f"({client.request_timeout_ms}): every fetch at the end of a log would time out"
            )
        if group and group.is_member and group.heartbeat_interval_ms >= group.session_timeout_ms:
            self.problems.append(
                f"kafka.heartbeat.interval.ms ({group.heartbeat_interval_ms}) must be below kafka.session.timeout.ms "
                f"({group.session_timeout_ms}): the session would time out between two heartbeats. Set a third of it"
            )
        if self.scope is Scope.STREAM:
            self._compare_limits(parsed["limits"])

    def _compare_limits(self, limits: LimitOptions) -> None:
        least, most = limits.min_offsets_per_trigger, limits.max_offsets_per_trigger
        if least is not None and most is not None and least > most:
            self.problems.append(
                f"minOffsetsPerTrigger ({least}) must not be above maxOffsetsPerTrigger ({most}): no batch has both "
                "sizes"
            )
        if least is None and "maxTriggerDelay" in self.given:
            self.notes.append("ignored option maxTriggerDelay: minOffsetsPerTrigger is not set, so no batch is delayed")


_NO_GROUP = (
    "kafka.group.id is required with group.mode={mode}. Add option('kafka.group.id', '<name>'), or read without a "
    "group: group.mode=off"
)
_ASSIGNED_MEMBER = (
    "cannot use assign with group.mode=member: the group assigns the partitions of a member. Use subscribe or "
    "subscribePattern, or read these partitions with group.mode=commit or off"
)
