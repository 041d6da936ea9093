"""The reader of options that reads and writes share: it looks up names in a table, and fills the sections."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from streamgroup.errors import ConfigError
from streamgroup.options import kinds
from streamgroup.options.notes import Caution
from streamgroup.options.rows import PREFIX, Effect, Option, Scope
from streamgroup.options.sasl import TOKEN_PROVIDER, SaslOptions, sasl_options, without_effect
from streamgroup.options.secrets import Secret, has_secret, is_secret
from streamgroup.options.settings_reader import SettingsReader, near_miss, together
from streamgroup.options.tls import SASL_PLAINTEXT, SASL_SSL, SSL, TlsOptions, contradictions, warnings
from streamgroup.options.types import ClientOptions, ZooKeeperOptions

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
