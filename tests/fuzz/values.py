"""The parsers of records as values: Avro, Protobuf, their schemas, and the prefix of a schema registry."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from io import BytesIO
from random import Random

import fastavro
from google.protobuf import descriptor_pb2

from streamgroup.errors import ConfigError
from streamgroup.spark.parsing.avro import AvroReader, is_schema
from streamgroup.spark.parsing.framing import UnreadableError, split_message_index, split_schema_id
from streamgroup.spark.parsing.parser import ValueReader
from streamgroup.spark.parsing.protobuf import ProtobufReader, messages_in
from tests.fakes.protobuf_files import ORDERS, ORDERS_TEXT, message_bytes
from tests.fuzz.decoder import Decoder, Sample
from tests.fuzz.mutations import mutated_text

_PREFIX = b"\0\0\0\0\7"
_LIST = 2 << 20
"""Bytes that the values of a case may take: an element of one byte becomes an object of Python."""
_DESCRIPTOR = 4 << 20
"""Bytes that a descriptor may take: its pool keeps names and types of each field."""
_ORDER = "shop.Order"
_SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "state", "type": {"type": "enum", "name": "state", "symbols": ["NEW", "PAID"]}},
            {"name": "times", "type": {"type": "array", "items": {"type": "long", "logicalType": "timestamp-millis"}}},
            {"name": "counts", "type": {"type": "map", "values": "double"}},
            {"name": "hash", "type": {"type": "fixed", "name": "hash", "size": 4}},
            {"name": "flag", "type": ["null", "boolean"]},
        ],
    }
)
_OLD_SCHEMA = '{"type":"record","name":"order","fields":[{"name":"id","type":"int"},{"name":"note","type":"string"}]}'
_LIST_SCHEMA = """
{"type": "record", "name": "order", "fields": [
    {"name": "id", "type": "int"}, {"name": "next", "type": ["null", "order"]},
    {"name": "others", "type": {"type": "array", "items": "order"}}]}
"""
_NEW_SCHEMA = """
{"type": "record", "name": "order", "fields": [
    {"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": null}]}
"""


def _avro(schema: str, value: dict[str, object]) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(schema)), value)
    return out.getvalue()


def _order(price: bytes) -> bytes:
    more = {"state": "PAID", "times": [0, 1, 2**40], "counts": {"a": 1.5, "b": 2}, "hash": b"abcd", "flag": True}
    plain = json.loads(_SCHEMA)
    plain["fields"][2]["type"] = "bytes"
    plain["fields"][4]["type"]["items"] = "long"
    return _avro(json.dumps(plain), {"id": 2**60, "note": "text", "price": price, **more})


def _list(levels: int) -> bytes:
    return b"\0\0\0\0\x08\x0a" + b"\2\2" * levels + b"\0" * (levels + 2)


def _avro_samples() -> list[Sample]:
    old = _PREFIX + _avro(_OLD_SCHEMA, {"id": 5, "note": "x"})
    return [Sample("plain", _order(b"\1\2")), Sample("id", old), Sample("list", _list(0)), Sample("list", _list(3))]


def _mend_avro(kind: str, data: bytes, chance: Random) -> bytes:
    """Give some cases thousands of digits or levels, as no mutation does."""
    if kind == "id" or chance.random() < 0.98:
        return data
    size = chance.randrange(2_500)
    return _list(size) if kind == "list" else _order(b"\x7f" * size)


def _protobuf_samples() -> list[Sample]:
    value = message_bytes(
        ORDERS,
        _ORDER,
        uint64=str(2**64 - 1),
        string="text",
        at="2024-03-02T01:02:03.456789Z",
        lines=[{"cents": "5"}, {}],
        counts={"a": "7"},
        states=[0, 4],
        maybe=3,
    )
    return [Sample("plain", value), Sample("id", _PREFIX + b"\2\2" + value)]


def _comments() -> bytes:
    """Return files with comments, as protoc --include_source_info writes them. Changes there leave a set sound."""
    file = descriptor_pb2.FileDescriptorProto(name="comments.proto", package="shop")
    for line in range(60):
        location = file.source_code_info.location.add(path=[4, line], span=[line, 0, 9])
        location.leading_comments = "A line of a comment, such as this one.\n"
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


@functools.cache
def _reader(name: str, kind: str) -> ValueReader:
    with_ids = kind != "plain"
    if name == "avro":
        writers = {7: _OLD_SCHEMA, 8: _LIST_SCHEMA}
        return AvroReader(_NEW_SCHEMA, schema_ids=True, writers=writers) if with_ids else AvroReader(_SCHEMA)
    return ProtobufReader(ORDERS, _ORDER, schema_ids=with_ids, writers={7: ORDERS_TEXT} if with_ids else None)


def _value(name: str, kind: str, data: bytes) -> None:
    """Read a value in a batch. Raises UnreadableError with its reason."""
    fields, errors = _reader(name, kind).columns([None, data])
    assert errors[0] is None
    assert fields[1].is_valid == (errors[1] is None)
    if errors[1] is not None:
        raise UnreadableError(errors[1])


def _prefix(_: str, data: bytes) -> None:
    schema_id, rest = split_schema_id(data)
    assert _PREFIX[:1] + schema_id.to_bytes(4, "big", signed=True) + rest == data


def _index(_: str, data: bytes) -> None:
    index, rest = split_message_index(data)
    assert index
    assert min(index) >= 0
    assert data.endswith(rest)


def _avro_schema(_: str, data: bytes) -> None:
    """Read a value by a schema of the registry, whatever that is."""
    text = data.decode("utf-8", "replace")
    if is_schema(text):
        AvroReader(_NEW_SCHEMA, schema_ids=True, writers={7: text}).columns([_PREFIX + b"\x0a\2x"])


def _proto_text(_: str, data: bytes) -> None:
    found = messages_in(data.decode("utf-8", "replace"))
    found.names_at((0,))
    found.names_at((1, 0))


def decoders() -> Iterable[Decoder]:
    """Return the decoders of values."""
    unreadable = (UnreadableError,)
    prefixes = [Sample("", _PREFIX + b"payload"), Sample("", b"\0\xff\xff\xff\xff")]
    yield Decoder("parsing/prefix", lambda: prefixes, _prefix, unreadable)
    indexes = [
        Sample("", b"\0payload"),
        Sample("", b"\4\2\0payload", (0,)),
        Sample("", b"\2\xfe\xff\xff\xff\x0f", (0,)),
    ]
    yield Decoder("parsing/message-index", lambda: indexes, _index, unreadable)
    avro, protobuf = functools.partial(_value, "avro"), functools.partial(_value, "protobuf")
    yield Decoder("parsing/avro", _avro_samples, avro, unreadable, mend=_mend_avro, cap=_LIST)
    yield Decoder("parsing/protobuf", _protobuf_samples, protobuf, unreadable, cap=_LIST)
    schemas = [Sample("", text.encode()) for text in (_OLD_SCHEMA, _SCHEMA)]
    yield Decoder("parsing/avro-schema", lambda: schemas, _avro_schema, (), mutated_text, cap=_LIST)
    descriptors = [Sample("", ORDERS + _comments())]
    yield Decoder(
        "parsing/descriptor",
        lambda: descriptors,
        lambda _, data: ProtobufReader(data, _ORDER),
        (ConfigError,),
        cap=_DESCRIPTOR,
    )
    texts = [Sample("", ORDERS_TEXT.encode())]
    yield Decoder("parsing/proto-text", lambda: texts, _proto_text, (), mutated_text, cap=_LIST)
