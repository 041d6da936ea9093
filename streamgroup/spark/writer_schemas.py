"""The schemas of writers, which the driver gets from a schema registry and sends to tasks with each batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from streamgroup.errors import ConfigError
from streamgroup.net.schema_registry import RegisteredSchema
from streamgroup.parsing import avro, protobuf
from streamgroup.parsing.parser import AVRO, PROTOBUF

_KINDS = {AVRO: ("AVRO", avro.is_schema), PROTOBUF: ("PROTOBUF", protobuf.is_proto)}
"""The name of a parser's format in the registry, and whether a text is a schema of it."""


class SchemaLookup(Protocol):
    """Looks schemas up by their ids: a client of a schema registry."""

    def schemas(self, ids: Iterable[int]) -> Mapping[int, RegisteredSchema]:
        """Return the schemas that the registry has, by id."""


class WriterSchemas:
    """The schemas of a parser's format that the driver knows, by id.

    It keeps them for the life of the query: an id has one schema.
    """

    def __init__(self, registry: SchemaLookup, parser_format: str) -> None:
        self._registry = registry
        self._kind, self._is_schema = _KINDS[parser_format]
        self.known: dict[int, str] = {}

    def learn(self, ids: Iterable[int]) -> bool:
        """Ask the registry for unknown ids. Return whether it knew any of them.

        An id without a schema is asked for again in the next batch. Raises as the client of the registry, and
        ConfigError for an Avro schema that refers to others.
        """
        found = {}
        unknown = sorted(set(ids) - self.known.keys())
        if not unknown:
            return False
        for one, schema in self._registry.schemas(unknown).items():
            if schema.kind != self._kind:
                continue
            if schema.has_references and self._kind != _KINDS[PROTOBUF][0]:
                raise ConfigError(
                    f"cannot read records by schema {one} of the registry: it refers to other schemas. Register it "
                    "with these types in it, or parse the values in a query of your own"
                )
            if self._is_schema(schema.text):
                found[one] = schema.text
        self.known |= found
        return bool(found)
