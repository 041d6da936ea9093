from __future__ import annotations

from collections.abc import Iterable

import pytest

from streamgroup.errors import ConfigError, TransportError
from streamgroup.net.schema_registry import RegisteredSchema
from streamgroup.spark.writer_schemas import WriterSchemas


class Registry:
    def __init__(self, registered: dict[int, RegisteredSchema], *, is_down: bool = False) -> None:
        self.registered, self.is_down, self.asked = registered, is_down, list[int]()

    def schemas(self, ids: Iterable[int]) -> dict[int, RegisteredSchema]:
        if self.is_down:
            raise TransportError("down")
        asked = list(ids)
        self.asked += asked
        return {one: self.registered[one] for one in asked if one in self.registered}


AVRO = RegisteredSchema('"int"', "AVRO", False)


def test_each_schema_is_asked_for_once_and_an_unknown_id_again() -> None:
    registry = Registry({1: AVRO, 2: AVRO})
    schemas = WriterSchemas(registry, "avro")
    assert schemas.learn([1, 2, 1])
    assert not schemas.learn([1, 9])
    assert not schemas.learn([9])
    assert not schemas.learn([2])
    assert registry.asked == [1, 2, 9, 9]
    assert schemas.known == {1: '"int"', 2: '"int"'}


def test_what_is_not_avro_is_unknown() -> None:
    registry = Registry({1: RegisteredSchema("x", "JSON", False), 2: RegisteredSchema("{", "AVRO", False)})
    schemas = WriterSchemas(registry, "avro")
    assert not schemas.learn([1, 2])
    assert schemas.known == {}


def test_a_schema_that_refers_to_others_stops_the_query() -> None:
    with pytest.raises(ConfigError, match="schema 1 of the registry: it refers to other schemas"):
        WriterSchemas(Registry({1: RegisteredSchema('"int"', "AVRO", True)}), "avro").learn([1])


def test_a_registry_that_is_down_makes_no_id_unknown() -> None:
    with pytest.raises(TransportError):
        WriterSchemas(Registry({}, is_down=True), "avro").learn([1])


def test_protobuf_is_known_by_its_text_alone_whatever_it_imports() -> None:
    text = 'import "other.proto"; message A { Other o = 1; }'
    schemas = WriterSchemas(
        Registry(
            {
                1: RegisteredSchema(text, "PROTOBUF", True),
                2: AVRO,
                3: RegisteredSchema("enum E { A = 0; }", "PROTOBUF", False),
            }
        ),
        "protobuf",
    )
    assert schemas.learn([1, 2, 3])
    assert schemas.known == {1: text}
