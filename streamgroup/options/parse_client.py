"""Parse the properties of a connection alone, as commands take them from a file (`--command-config`)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from streamgroup.errors import ConfigError
from streamgroup.options import zookeeper
from streamgroup.options.client import CLIENT, CLIENT_IGNORED, CLIENT_REFUSED, TOKEN_ROW
from streamgroup.options.foreign_names import LIBRDKAFKA_HINTS
from streamgroup.options.producer import PRODUCER
from streamgroup.options.properties import PREFIX
from streamgroup.options.reading import OptionsReader, all_together
from streamgroup.options.rows import Option, Scope
from streamgroup.options.types import ClientOptions

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
"""How properties of a client of a schema registry begin. Files that Confluent offers for copying have them, too."""

_LINE = re.compile(r"(?P<key>(?:\\.|[^\\=:\s])+)[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)", re.DOTALL)
_LINE_END = re.compile(r"\r\n|\r|\n")
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def parse_client(options: Mapping[str, str]) -> tuple[ClientOptions, tuple[str, ...]]:
    """Return how to connect, and sentences for the log. `kafka.bootstrap.servers` may be missing.

    Properties that Java's clients know for other purposes have no effect, and one of the sentences names them.

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
    """Return those of `options` that concern the connection."""
    return {name: text for name, text in options.items() if name.lower() in CLIENT_OPTIONS}


def kafka_properties(text: str) -> dict[str, str]:
    """Return the entries of a Java properties file as options: Kafka's get their prefix, ZooKeeper's have theirs.

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
