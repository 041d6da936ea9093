"""Parse the options of reads, writes and connections, as Spark or a properties file passes them, into frozen values."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

from streamgroup.errors import ConfigError
from streamgroup.model import EARLIEST, LATEST, ConfiguredOffsets, TopicPartition
from streamgroup.options import kinds, zookeeper
from streamgroup.options.client import CLIENT, CLIENT_IGNORED, CLIENT_REFUSED, TOKEN_ROW
from streamgroup.options.foreign_names import LIBRDKAFKA_HINTS
from streamgroup.options.kafka import KAFKA
from streamgroup.options.notes import Caution
from streamgroup.options.producer import PRODUCER
from streamgroup.options.rows import PREFIX, SCOPE_OF_MODE, Effect, Option, Scope
from streamgroup.options.sasl import TOKEN_PROVIDER, SaslOptions, sasl_options, without_effect
from streamgroup.options.secrets import Secret, has_secret, is_secret
from streamgroup.options.settings_reader import SettingsReader, near_miss, together
from streamgroup.options.sink import SINK, SINK_HINTS, SINK_ZOOKEEPER
from streamgroup.options.source import HINTS, SOURCE
from streamgroup.options.tls import SASL_PLAINTEXT, SASL_SSL, SSL, TlsOptions, contradictions, warnings
from streamgroup.options.types import (
    WEIGHT_OF_CORES,
    ClientOptions,
    FetchOptions,
    GroupMode,
    GroupOptions,
    GroupProtocol,
    Isolation,
    LimitOptions,
    OffsetsStorage,
    ProducerOptions,
    SinkOptions,
    SourceOptions,
    SplitOptions,
    Subscription,
    ZooKeeperOptions,
)
from streamgroup.text import MOST_NAMED, first_of

_EXCERPT = 300
STRICT = "strict"
_OWN = ("group.", "zookeeper.")
"""The beginnings of names that only streamgroup has, besides Kafka's own properties."""


class OptionsReader(SettingsReader[Option]):
    """Parses the options of one read or write by a table, and collects all problems.

    `options` is the table by names in lower case. `hints` has the cause and the next step for unknown names whose most
    similar name would mislead; a key that ends with `*` applies to all names with that beginning. `strict` is the
    default of the option `strict`: whether every unknown option is a problem. A misspelled option is always a problem.
    """

    def __init__(self, options: Mapping[str, Option], scope: Scope, hints: Mapping[str, str], *, strict: bool) -> None:
        super().__init__(options, [])
        self.scope = scope
        self.strict = strict
        self.hints = hints
        self.notes: list[str] = []
        self.ignored: dict[str, list[str]] = {}
        """The ignored options that the user has set, by the reason."""

    # -- the table's reader --------------------------------------------------------------------------------------------

    def take_all(self, options: Mapping[str, str]) -> None:
        """Read the options by name, but `strict` first: it decides about the others."""
        for key in sorted(options, key=lambda key: (key.lower() != STRICT, key.lower())):
            self.take(key, str(options[key]))

    def take(self, key: str, value: Any) -> None:
        """Read one option. An unknown one becomes a problem or a note for the log, which never shows its value."""
        if self.find(key) is not None or self._refuses(key.lower()):
            super().take(key, value)
        else:
            text = self.unknown(key)
            full_stop = "" if text.endswith("?") else "."
            self.notes.append(Caution(f"ignored {text}{full_stop} Set strict=true to refuse unknown options"))

    def _refuses(self, lower: str) -> bool:
        """Return whether an unknown option is a problem.

        As in Spark's own source and sink, a property of Kafka without its prefix is not: it has no effect.
        """
        if self.values.get(STRICT, self.strict):
            return True
        if PREFIX + lower in self.rows:
            return False
        if lower.startswith(PREFIX) and lower in self.hints:
            return True  # librdkafka's name of a setting, without which the connection would be another one
        return lower.startswith(_OWN) or near_miss(lower, self.rows) is not None

    def _hint(self, lower: str) -> str | None:
        if lower in self.hints:
            return self.hints[lower]
        return next(
            (hint for name, hint in self.hints.items() if name[-1] == "*" and lower.startswith(name[:-1])), None
        )

    def find(self, key: str) -> Option | None:
        return self.rows.get(key.lower())

    def parse(self, row: Option, value: Any) -> None:
        """Parse the value of an option, unless the option is ignored or refused in this read or write."""
        match row.effect(self.scope):
            case Effect.USED:
                super().parse(row, value)
            case Effect.IGNORED:
                self.ignored.setdefault(row.reason(self.scope), []).append(row.name)
            case Effect.REFUSED:
                self.problems.append(f"cannot use option {row.name}: {row.reason(self.scope)}")

    def kind(self, row: Option) -> kinds.ValueKind:
        return row.kind_in(self.scope)

    def label(self, row: Option) -> str:
        return f"option {row.name}"

    def shown(self, row: Option, value: Any) -> str:
        """Return the start of the value, unless the value may be secret."""
        if is_secret(row.name) or has_secret(str(value)):
            return ""
        excerpt = value if len(value) <= _EXCERPT else value[:_EXCERPT] + "…"
        return f" {excerpt!r}"

    def unknown(self, key: str) -> str:
        """Return the problem of an unknown option, with the option that the user may have meant."""
        lower = key.lower()
        if hint := self._hint(lower):
            return f"unknown option {key!r}: {hint}"
        prefixed = self.rows.get(PREFIX + lower)
        near = prefixed or self.rows.get(near_miss(lower, self.rows) or "")
        if near is None:
            return f"unknown option {key!r}"
        if near.effect(self.scope) is Effect.REFUSED:
            # The suggestion of a refused option would lead the user from one error to the next.
            return f"unknown option {key!r}: '{near.name}' is refused too, because {near.reason(self.scope)}"
        cause = ": Kafka's properties begin with 'kafka.'" if prefixed else ""
        return f"unknown option {key!r}{cause}. Did you mean '{near.name}'?"

    # -- sections ------------------------------------------------------------------------------------------------------

    def fields(self, section: str) -> dict[str, Any]:
        """Return the values of all options whose target is a field of this section."""
        targets = ((self.rows[name.lower()].target, value) for name, value in self.values.items())
        return {target.partition(".")[2]: value for target, value in targets if target.startswith(section + ".")}

    def section(self, name: str, cls: type) -> Any:
        """Return a section with the values that are set, or None if a required option has no valid value.

        A required option that is not set becomes a problem. An invalid value is a problem already.
        """
        given = self.fields(name)
        absent = [f.name for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING and f.name not in given]
        targets = {f"{name}.{field}" for field in absent}
        for option in self.rows.values() if absent else ():
            if option.name not in self.given and option.target in targets:
                self.problems.append(_MISSING[option.name])
        return None if absent else cls(**given)

    def client(self, registry: ZooKeeperOptions | None) -> ClientOptions | None:
        """Return how to connect to the brokers. With a ZooKeeper the bootstrap servers are optional."""
        if registry is not None:
            self.values.setdefault("kafka.bootstrap.servers", ())
        client: ClientOptions | None = self.section("client", ClientOptions)
        if client is None:
            return None
        if client.retry_backoff_ms > client.retry_backoff_max_ms:
            self.notes.append(
                f"kafka.retry.backoff.max.ms ({client.retry_backoff_max_ms}) is below kafka.retry.backoff.ms "
                f"({client.retry_backoff_ms}): every backoff is {client.retry_backoff_ms} ms"
            )
            client = dataclasses.replace(client, retry_backoff_max_ms=client.retry_backoff_ms)
        protocol = client.security_protocol
        return dataclasses.replace(client, zookeeper=registry, tls=self._tls(protocol), sasl=self._sasl(protocol))

    def _tls(self, protocol: str) -> TlsOptions | None:
        """Return how to secure the connections. Without TLS its options are ignored, as in Java."""
        if protocol not in (SSL, SASL_SSL):
            self._ignore_for(protocol, "TLS", f"{PREFIX}ssl.")
            return None
        options: TlsOptions = self.section("tls", TlsOptions)
        self.problems += contradictions(options)
        self.notes += warnings(options)
        return options

    def _sasl(self, protocol: str) -> SaslOptions | None:
        """Return how to authenticate. Without SASL its options are ignored, as in Java."""
        if protocol not in (SASL_PLAINTEXT, SASL_SSL):
            self._ignore_for(protocol, "SASL", f"{PREFIX}sasl.", TOKEN_PROVIDER)
            return None
        try:
            settings = {name: v.value if isinstance(v, Secret) else str(v) for name, v in self.values.items()}
            options = sasl_options(settings, PREFIX, settings.get(TOKEN_PROVIDER, ""))
        except ConfigError as error:
            self.problems.append(str(error))
            return None
        for why, names in without_effect(options, self._given_with((f"{PREFIX}sasl.", TOKEN_PROVIDER)), PREFIX).items():
            self.ignored.setdefault(why, []).extend(names)
        if options.sends_secret and protocol == SASL_PLAINTEXT:
            self.notes.append(
                Caution(
                    f"kafka.security.protocol is SASL_PLAINTEXT: with {options.mechanism} anyone on the network can "
                    "read the credentials. Use SASL_SSL"
                )
            )
        if options.shows_client_secret:
            self.notes.append(
                Caution(
                    "kafka.sasl.oauthbearer.token.endpoint.url begins with http: anyone on the network can read the "
                    "client secret and the tokens. Use https"
                )
            )
        return options

    def _ignore_for(self, protocol: str, what: str, *starts: str) -> None:
        """Note the used options with names that begin with one of `starts`, which have no effect in `protocol`."""
        names = self._given_with(starts)
        if names:
            self.ignored.setdefault(f"kafka.security.protocol is {protocol}, which has no {what}", []).extend(names)

    def _given_with(self, starts: tuple[str, ...]) -> list[str]:
        """Return the used options that the user has set and whose names begin with one of `starts`, sorted."""
        given = (self.rows[name.lower()] for name in self.given if name.startswith(starts))
        return sorted(row.name for row in given if row.effect(self.scope) is Effect.USED)

    def all_notes(self) -> tuple[str, ...]:
        """Return the notes for the log: one for each reason why options are ignored, and the other notes."""
        ignored = (
            f"ignored option{'s' if len(names) > 1 else ''} {', '.join(names)}: {why}"
            for why, names in self.ignored.items()
        )
        return (*self.notes, *ignored)


_MISSING = {
    "kafka.bootstrap.servers": (
        "kafka.bootstrap.servers is required. Add option('kafka.bootstrap.servers', 'host:port'), or, for a Kafka "
        "before 0.10, option('zookeeper.connect', 'host:port')"
    ),
}
"""The problem of a required option that is not set."""


def all_together(problems: list[str]) -> str:
    return together(problems, "problems with the options")


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
    and unsupported settings. It never shows the value of a secret option.
    """
    reading, subscription, parsed = _read(options, streaming=streaming, strict=strict)
    if reading.problems:
        raise ConfigError(all_together(reading.problems))
    return SourceOptions(subscription=subscription, notes=reading.all_notes(), **parsed)


def check_source(options: Mapping[str, str]) -> None:
    """Raise ConfigError for options that are valid neither in a stream nor in a batch read.

    When Spark calls `load()`, it is unknown which of both it is. The error names the common problems, or else those of
    each. An invalid value is a common problem, although a stream refuses some options without parsing their values.
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
        "fetch": reading.isolated(reading.section("fetch", FetchOptions), group),
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
        group = dataclasses.replace(group, mode=mode)
        if mode is GroupMode.OFF:
            group = dataclasses.replace(group, group_id="", store_url="", store_user=None, store_password=None)
        if mode is not GroupMode.OFF:
            group = self._noted(zookeeper.stored(group, registry, self.given, self.problems))
        if mode is GroupMode.MEMBER and registry is not None:
            group = self._noted(zookeeper.registered(group, registry, self.given, self.problems))
        if group.store_url == kinds.TRANSACTION:
            group = dataclasses.replace(group, store_url="", in_transaction=True)
            if mode is not GroupMode.MEMBER:
                self.problems.append(_TRANSACTION_OF_NO_MEMBER)
        elif unused := [name for name in _OF_TRANSACTIONS if name in self.given]:
            self.ignored.setdefault(_NO_TRANSACTION, []).extend(unused)
        if (group.store_url or group.in_transaction) and (
            registry is not None or group.offsets_storage is OffsetsStorage.ZOOKEEPER or group.dual_commit
        ):
            self.problems.append(_STORE_AND_ZOOKEEPER)
        return group

    def named(self, client: ClientOptions | None, group: GroupOptions | None) -> ClientOptions | None:
        """Return `client` with the member's name in its id, unless the user has set `kafka.client.id`.

        Descriptions of the group show the client id, which would be the same for all members. Brokers of 0.9 and 0.10.0
        use it in names of JMX beans, in which other characters are not legal.
        """
        if client is None or group is None or not group.is_member or not group.member:
            return client
        if "kafka.client.id" in self.given:
            return client
        name = re.sub(r"[^A-Za-z0-9._-]", "_", group.member)
        return dataclasses.replace(client, client_id=f"{client.client_id}-{name}")

    def isolated(self, fetch: FetchOptions | None, group: GroupOptions | None) -> FetchOptions | None:
        """Return `fetch` with `read_committed` for a copy in transactions, unless the user has set the isolation level.

        Else a copy of another copy would have the records of its aborted transactions.
        """
        if fetch is None or group is None or not group.in_transaction or "kafka.isolation.level" in self.given:
            return fetch
        return dataclasses.replace(fetch, isolation=Isolation.READ_COMMITTED)

    def _noted(self, group: tuple[GroupOptions, Mapping[str, str]]) -> GroupOptions:
        for name, why in group[1].items():
            self.ignored.setdefault(why, []).append(name)
        return group[0]

    def subscription(self) -> Subscription:
        """Return what to read. Unless exactly one of three options is set, it is empty and there is a problem."""
        given = [name for name in _SUBSCRIPTIONS if name in self.given]
        if len(given) != 1:
            how = f"{' and '.join(given)} are set" if given else "none is set"
            self.problems.append(f"unclear what to read: {how}. Set exactly one of {', '.join(_SUBSCRIPTIONS)}")
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
        sets_interval = group and group.is_member and group.protocol is not GroupProtocol.CONSUMER
        if sets_interval and group.heartbeat_interval_ms >= group.session_timeout_ms:
            self.problems.append(
                f"kafka.heartbeat.interval.ms ({group.heartbeat_interval_ms}) must be below kafka.session.timeout.ms "
                f"({group.session_timeout_ms}): the session would time out between two heartbeats. Set a third of it"
            )
        if group and group.is_member and group.weight != 1 and "streamgroup-range" not in group.strategies:
            weight = "auto" if group.weight == WEIGHT_OF_CORES else group.weight
            self.problems.append(
                f"group.member.weight ({weight}) has no effect under kafka.partition.assignment.strategy "
                f"{', '.join(group.strategies)}: only streamgroup-range considers weights. Add it, or remove the weight"
            )
        if group and group.is_member:
            self._compare_with_protocol(group)
        if self.scope is Scope.STREAM:
            self._compare_limits(parsed["limits"])

    def _compare_with_protocol(self, group: GroupOptions) -> None:
        """Refuse options that have no effect under the chosen protocol of the group."""
        if group.protocol is GroupProtocol.CLASSIC:
            if group.remote_assignor is not None:
                self.problems.append(
                    "kafka.group.remote.assignor has no effect with kafka.group.protocol=classic. Set "
                    "kafka.group.protocol=consumer, or use kafka.partition.assignment.strategy"
                )
        elif group.protocol is GroupProtocol.CONSUMER:
            self.problems += [
                f"{name} has no effect with kafka.group.protocol=consumer: {why}. Remove it"
                for name, why in _NOT_OF_CONSUMERS.items()
                if name in self.given
            ]

    def _compare_limits(self, limits: LimitOptions) -> None:
        least, most = limits.min_offsets_per_trigger, limits.max_offsets_per_trigger
        if least is not None and most is not None and least > most:
            self.problems.append(
                f"minOffsetsPerTrigger ({least}) must not be above maxOffsetsPerTrigger ({most}): no batch has both "
                "sizes"
            )
        if least is None and "maxTriggerDelay" in self.given:
            self.notes.append("ignored option maxTriggerDelay: minOffsetsPerTrigger is not set, so no batch is delayed")


_NOT_OF_CONSUMERS = {
    "kafka.partition.assignment.strategy": "the group coordinator assigns the partitions (kafka.group.remote.assignor)",
    "kafka.heartbeat.interval.ms": "the broker sets it (group.consumer.heartbeat.interval.ms)",
    "group.member.weight": "the assignors of the group coordinator have no weights",
    "group.rebalanceWait": "no member waits for this one: it gives a revoked partition up when its batch is committed",
}
_NO_GROUP = (
    "kafka.group.id is required with group.mode={mode}. Add option('kafka.group.id', '<name>'), or read without a "
    "group: group.mode=off"
)
_STORE_AND_ZOOKEEPER = (
    "cannot use offsets.store with a group that stores its offsets in ZooKeeper: remove offsets.store, or the options "
    "of ZooKeeper"
)
_OF_TRANSACTIONS = ("kafka.transactional.id", "kafka.transaction.timeout.ms")
_NO_TRANSACTION = "the sink writes in no transaction: set offsets.store=transaction"
_TRANSACTION_OF_NO_MEMBER = (
    "cannot use offsets.store=transaction without a membership: the brokers check in a transaction only which member "
    "of the group commits, so a query that is not a member could commit a batch that another has written. Use "
    "group.mode=member, with kafka.group.id and subscribe or subscribePattern"
)
_ASSIGNED_MEMBER = (
    "cannot use assign with group.mode=member: the group assigns the partitions of a member. Use subscribe or "
    "subscribePattern, or read these partitions with group.mode=commit or off"
)


CLIENT_OPTIONS: Mapping[str, Option] = {
    option.name.lower(): option
    for option in (*CLIENT, TOKEN_ROW, *zookeeper.ZOOKEEPER, *CLIENT_REFUSED, *CLIENT_IGNORED)
}
"""The options of a connection by their name in lower case."""
_OF_OTHERS = frozenset(
    {option.name.lower() for option in PRODUCER} - CLIENT_OPTIONS.keys() | {f"{PREFIX}bootstrap.controllers"}
)
"""The other properties of Java's consumers, producers and admin clients, in lower case."""
_OF_SERIALIZERS = tuple(f"{PREFIX}{start}" for start in ("basic.auth.", "bearer.auth.", "schema.registry."))
"""Prefixes of the properties of a schema registry's client. Confluent's sample files contain them too."""

_LINE = re.compile(r"(?P<key>(?:\\.|[^\\=:\s])+)[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)", re.DOTALL)
_LINE_END = re.compile(r"\r\n|\r|\n")
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def parse_client(options: Mapping[str, str]) -> tuple[ClientOptions, tuple[str, ...]]:
    """Return how to connect, and notes for the log. `kafka.bootstrap.servers` may be missing.

    Properties that Java's clients know for other purposes have no effect, and one of the notes names them.

    Raises ConfigError that names all problems together, and shows no secret.
    """
    reading = OptionsReader(CLIENT_OPTIONS, Scope.ALL, LIBRDKAFKA_HINTS, strict=True)
    for key, text in sorted(options.items()):
        if key.lower() in _OF_OTHERS or key.lower().startswith(_OF_SERIALIZERS):
            reading.ignored.setdefault("only the properties of the connection count here", []).append(key)
        else:
            reading.take(key, text)
    reading.values.setdefault("kafka.bootstrap.servers", ())
    client = reading.client(zookeeper.section(reading.values, reading.given, reading.problems, reading.notes))
    if reading.problems or client is None:
        raise ConfigError(all_together(reading.problems))
    return client, reading.all_notes()


def of_connection(options: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in options.items() if name.lower() in CLIENT_OPTIONS}


def kafka_properties(text: str) -> dict[str, str]:
    """Return the entries of a Java properties file as options, Kafka's with the prefix `kafka.`.

    A name may have Kafka's prefix already, as in the options of a query. The last of equal keys counts.

    Raises ValueError for a line without a key. The format is that of `java.util.Properties.load`.
    """
    entries = {}
    for line in _logical_lines(text):
        found = _LINE.fullmatch(line)
        if found is None:
            raise ValueError("expected lines of the form name=value")
        name = _unescaped(found["key"])
        is_whole = name == TOKEN_ROW.name or name.startswith((PREFIX, zookeeper.PREFIX))
        entries[name if is_whole else PREFIX + name] = _unescaped(found["value"])
    return entries


def _logical_lines(text: str) -> list[str]:
    """Return the lines with their continuations, without comments and empty lines."""
    lines: list[str] = []
    is_continued = False
    for natural in _LINE_END.split(text):
        line = natural.lstrip(" \t\f")
        if is_continued:
            lines[-1] += line
        elif line and line[0] not in "#!":
            lines.append(line)
        else:
            continue
        is_continued = (len(lines[-1]) - len(lines[-1].rstrip("\\"))) % 2 == 1
        if is_continued:
            lines[-1] = lines[-1][:-1]
    return lines


def _unescaped(text: str) -> str:
    def replace(found: re.Match[str]) -> str:
        escaped = found[1]
        return chr(int(escaped[1:], 16)) if len(escaped) > 1 else _CONTROL.get(escaped, escaped)

    return _ESCAPE.sub(replace, text)


SINK_OPTIONS: Mapping[str, Option] = {option.name.lower(): option for option in (*SINK, *SINK_ZOOKEEPER, *PRODUCER)}
"""All options of a write by their name in lower case: users may write names in any case."""

_OF_SPARK = frozenset(
    {
        "queryname",
        "checkpointlocation",
        "asyncprogresstrackingenabled",
        "asyncprogresstrackingcheckpointintervalms",
    }
)
"""Options of Spark's own that it passes to every sink."""

_MOST_IN_FLIGHT = 5
"""The batches of one producer id that a broker remembers per partition, to drop repeated ones."""


def parse_sink(options: Mapping[str, str], *, strict: bool = False) -> SinkOptions:
    """Return the options of a batch write or of a stream's sink as values. `strict` is the default of that option.

    Raises ConfigError that names all problems together: misspelled, contradictory and missing options, invalid values,
    and unsupported settings. It never shows the value of a secret option.
    """
    reading = _SinkReader(strict)
    reading.take_all({key: text for key, text in options.items() if key.lower() not in _OF_SPARK})
    registry = zookeeper.section(reading.values, reading.given, reading.problems, reading.notes)
    client = reading.located(reading.client(registry))
    producer = reading.producer(client)
    if reading.problems or client is None:
        raise ConfigError(all_together(reading.problems))
    return SinkOptions(client=client, producer=producer, notes=reading.all_notes(), **reading.fields("sink"))


class _SinkReader(OptionsReader):
    """The options of one write while they are parsed."""

    def __init__(self, strict: bool) -> None:
        super().__init__(SINK_OPTIONS, Scope.WRITE, SINK_HINTS, strict=strict)

    def located(self, client: ClientOptions | None) -> ClientOptions | None:
        """Return `client` with one way to find the brokers: the bootstrap servers take precedence over ZooKeeper."""
        if client is None or client.zookeeper is None or not client.bootstrap_servers:
            return client
        self.ignored.setdefault("'kafka.bootstrap.servers' names the brokers", []).append(zookeeper.CONNECT)
        return dataclasses.replace(client, zookeeper=None)

    def producer(self, client: ClientOptions | None) -> ProducerOptions:
        """Return how tasks write. Options that contradict each other become problems, as in Java's producer."""
        producer: ProducerOptions = self.section("producer", ProducerOptions)
        if "kafka.max.request.size" in self.values:
            producer = dataclasses.replace(producer, max_message_size=producer.max_request_size)
        producer = self._with_level(self._with_partitioner(producer))
        if client is not None:
            producer = self._with_delivery_timeout(producer, client)
        return self._with_idempotence(producer)

    def _with_partitioner(self, producer: ProducerOptions) -> ProducerOptions:
        """Return the partitioner of either option. Both must agree."""
        by_class = self.values.get(_CLASS)
        if by_class is None:
            return producer
        if "partitioner" in self.values and producer.partitioner != by_class:
            self.problems.append(
                f"{_CLASS} and partitioner contradict each other: the class is the partitioner '{by_class}'. Remove "
                "one of them"
            )
        return dataclasses.replace(producer, partitioner=by_class)

    def _with_level(self, producer: ProducerOptions) -> ProducerOptions:
        """Return the level of the codec. The levels of other codecs have no effect."""
        for name in _LEVELS.values():
            if name in self.given and name != _LEVELS.get(producer.compression):
                why = f"kafka.compression.type is {producer.compression}"
                self.ignored.setdefault(why, []).append(name)
        level = self.values.get(_LEVELS.get(producer.compression, ""))
        return dataclasses.replace(producer, compression_level=level)

    def _with_delivery_timeout(self, producer: ProducerOptions, client: ClientOptions) -> ProducerOptions:
        """Return a delivery timeout that leaves time to linger and for one request."""
        least = min(producer.linger_ms + client.request_timeout_ms, 2**31 - 1)
        if producer.delivery_timeout_ms >= least:
            return producer
        sum_ = f"kafka.linger.ms ({producer.linger_ms}) plus kafka.request.timeout.ms ({client.request_timeout_ms})"
        if "kafka.delivery.timeout.ms" in self.given:
            self.problems.append(
                f"kafka.delivery.timeout.ms ({producer.delivery_timeout_ms}) must not be below {sum_}: a batch would "
                f"fail before its first response. Set {least} or more"
            )
        else:
            self.notes.append(f"kafka.delivery.timeout.ms is {least}, which is {sum_}")
        return dataclasses.replace(producer, delivery_timeout_ms=least)

    def _with_idempotence(self, producer: ProducerOptions) -> ProducerOptions:
        """Return whether to write idempotently, and whether that is required.

        As in Java's producer, an explicit `enable.idempotence` refuses what rules it out. The default gives way, except
        to too many requests in flight.
        """
        if not producer.enable_idempotence:
            return producer
        is_required = "kafka.enable.idempotence" in self.given
        excludes = []
        if producer.retries == 0:
            excludes.append(("kafka.retries", "0", "a batch that is sent once needs none. Remove kafka.retries"))
        if producer.acks != -1:
            why = "the leader alone may lose a batch that it has taken. Set kafka.acks=all"
            excludes.append(("kafka.acks", str(producer.acks), why))
        for name, value, why in excludes:
            if is_required:
                self.problems.append(f"cannot use kafka.enable.idempotence=true with {name}={value}: {why}")
            else:
                self.notes.append(f"idempotence is off, because {name} is {value}: a retry may repeat records")
        if producer.max_in_flight > _MOST_IN_FLIGHT:
            self.problems.append(
                f"kafka.max.in.flight.requests.per.connection ({producer.max_in_flight}) must not be above "
                f"{_MOST_IN_FLIGHT} with idempotence: brokers remember the last {_MOST_IN_FLIGHT} batches. Decrease "
                "it, or set kafka.enable.idempotence=false"
            )
        return dataclasses.replace(producer, enable_idempotence=not excludes, require_idempotence=is_required)


_CLASS = "kafka.partitioner.class"
_LEVELS = {codec: f"kafka.compression.{codec}.level" for codec in ("gzip", "lz4", "zstd")}
