from __future__ import annotations

import pickle
import re
import sys
from base64 import b64encode
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.json_format import ParseDict
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgroup.errors import ConfigError
from streamgroup.spark.parsing.protobuf import MessageTree, ProtobufReader, is_proto, messages_in
from tests.fakes.protobuf_files import ORDERS, ORDERS_TEXT, REPEATED, REQUIRED, add_field, file_set, message_bytes

ORDER = "shop.Order"
READER = ProtobufReader(ORDERS, ORDER)
PREFIX = b"\0\0\0\0\7"


def signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def unsigned(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, 2**bits - 1)


def one(reader: ProtobufReader, value: bytes) -> tuple[Any, str | None]:
    fields, errors = reader.columns([value])
    return fields.to_pylist()[0], errors[0]


INTS = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), signed(32)),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), signed(64)),
    **dict.fromkeys(("uint32", "fixed32"), unsigned(32)),
    **dict.fromkeys(("uint64", "fixed64"), unsigned(64)),
}
STATES = {0: "NEW", 4: "PAID"}
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
LINES = st.fixed_dictionaries({"cents": signed(64)})
VALUES = st.fixed_dictionaries(
    {},
    optional={
        **INTS,
        "bool": st.booleans(),
        "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
        "double": st.floats(allow_nan=False, allow_infinity=False),
        "string": NAMES,
        "bytes": st.binary(),
        "state": st.sampled_from([0, 4]) | signed(32),
        "line": LINES,
        "lines": st.lists(LINES, max_size=3),
        "numbers": st.lists(signed(64), max_size=3),
        "states": st.lists(st.sampled_from([0, 4, 9]), max_size=3),
        "counts": st.dictionaries(NAMES, unsigned(64), max_size=3),
        "more": st.dictionaries(NAMES, LINES, max_size=3),
        "maybe": signed(32),
    },
)


@given(VALUES)
def test_what_the_package_writes_comes_back(values: dict[str, Any]) -> None:
    in_json = values | {name: b64encode(values[name]).decode() for name in {"bytes"} & values.keys()}
    found, error = one(READER, ParseDict(in_json, READER._make()).SerializeToString())
    assert error is None
    for name in INTS:
        assert found[name] == values.get(name, 0)
    assert (found["bool"], found["float"]) == (values.get("bool", False), values.get("float", 0.0))
    assert (found["double"], found["string"]) == (values.get("double", 0.0), values.get("string", ""))
    assert (found["bytes"], found["line"]) == (values.get("bytes", b""), values.get("line"))
    state = values.get("state", 0)
    assert found["state"] == STATES.get(state, str(state))
    assert found["states"] == [STATES.get(each, str(each)) for each in values.get("states", [])]
    assert (found["lines"], found["numbers"]) == (values.get("lines", []), values.get("numbers", []))
    assert dict(found["counts"]) == values.get("counts", {})
    assert dict(found["more"]) == values.get("more", {})
    assert (found["maybe"], found["at"]) == (values.get("maybe"), None)


def timestamp(seconds: int, nanos: int) -> bytes:
    message = READER._make()
    message.at.seconds, message.at.nanos = seconds, nanos
    found: bytes = message.SerializeToString()
    return found


@given(st.integers(-62_135_596_800, 253_402_300_799), st.integers(0, 999_999_999))
def test_a_timestamp_is_cut_to_microseconds(seconds: int, nanos: int) -> None:
    fields, (error,) = READER.columns([timestamp(seconds, nanos)])
    assert error is None
    assert fields.field("at").cast(pa.int64()).to_pylist() == [seconds * 10**6 + nanos // 1000]


def test_each_type_has_its_column() -> None:
    types = {field.name: field.type for field in READER.type}
    uint64 = pa.decimal128(20, 0)
    assert (types["uint32"], types["uint64"], types["at"]) == (pa.int64(), uint64, pa.timestamp("us", "UTC"))
    assert types["counts"] == pa.map_(pa.string(), uint64)
    assert "marker" not in types, "a message without fields"
    value = message_bytes(ORDERS, ORDER, uint64=str(2**64 - 1), at="2024-03-02T01:02:03.456789Z")
    found, _ = one(READER, value)
    assert found["uint64"] == Decimal(2**64 - 1)
    assert found["at"] == datetime(2024, 3, 2, 1, 2, 3, 456789, UTC)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"\xff", "the value is not a message shop.Order: DecodeError"),
        (message_bytes(ORDERS, ORDER, string="abc")[:-1], "the value is not a message shop.Order: DecodeError"),
        (b"\x72\x01\xff", "the value is not a message shop.Order: "),
        (b"\x0a\x01a", "field shop.Order.bool has a value that its type does not have"),
        (b"\x92\x01\x02\x0a\x00", "field shop.Order.Line.cents has a value that its type does not have"),
        (timestamp(1, -1), "a Timestamp has -1 nanoseconds"),
        (timestamp(2**62, 0), "a field does not fit its column"),
    ],
)
def test_garbage_has_a_reason_and_leaves_the_others_alone(value: bytes, said: str) -> None:
    fields, errors = READER.columns([b"", value, message_bytes(ORDERS, ORDER, maybe=3)])
    assert [row and row["maybe"] for row in fields.to_pylist()] == [None, None, 3]
    assert errors[0] is errors[2] is None
    assert str(errors[1]).startswith(said)


def test_a_field_that_the_descriptor_lacks_is_left_out() -> None:
    assert one(ProtobufReader(ORDERS, "shop.Refund"), b"\x08\x05\x12\x03abc") == ({"id": 5}, None)


@given(st.lists(st.binary(max_size=40)))
def test_no_bytes_break_a_batch_of_protobuf(values: list[bytes]) -> None:
    fields, errors = ProtobufReader(ORDERS, ORDER, schema_ids=True).columns([*values, *(PREFIX + v for v in values)])
    assert len(fields) == len(errors) == 2 * len(values)
    assert all((found is None) == (error is not None) for found, error in zip(fields.to_pylist(), errors, strict=True))


def old_file(**fields: Any) -> bytes:
    """Return a file of proto2 with a message that has an enum and a field `n` of any label."""
    file = descriptor_pb2.FileDescriptorProto(name="old.proto", syntax="proto2")
    file.enum_type.add(name="E").value.add(name="ONE", number=1)
    message = file.message_type.add(name="Old")
    add_field(message, "e", "ENUM", to=".E")
    add_field(message, "n", "INT32", **fields)
    return file_set(file)


@pytest.mark.parametrize(
    ("value", "found", "said"),
    [
        (b"\x08\x01\x10\x02", {"e": "ONE", "n": 2}, None),
        (b"\x10\x02", {"e": None, "n": 2}, None),
        (b"\x08\x01", None, "the value lacks required fields: n"),
        (b"\x08\x07\x10\x02", None, "field Old.e has a value that its type does not have"),
    ],
)
def test_proto2_has_fields_that_are_unset_required_or_of_a_closed_enum(
    value: bytes, found: dict[str, Any] | None, said: str | None
) -> None:
    assert one(ProtobufReader(old_file(label=REQUIRED), "Old"), value) == (found, said)


VALUE = message_bytes(ORDERS, ORDER, maybe=3)


@pytest.mark.parametrize(
    ("index", "writers", "said"),
    [
        (b"\0", None, None),
        (b"\2\0", None, None),
        (b"\2\2", None, "the message index [1] in the descriptor is shop.Refund, not shop.Order"),
        (b"\2\6", None, "the message index [3] in the descriptor is not a message, not shop.Order"),
        (b"\4\0\0", None, "the message index [0, 0] in the descriptor is shop.Order.Line, not shop.Order"),
        (b"\2\2", {7: ORDERS_TEXT}, None),
        (b"\0", {7: ORDERS_TEXT}, "the message index [0] in schema 7 is shop.Refund, not shop.Order"),
        (b"\0", {8: ORDERS_TEXT}, "the registry has no Protobuf schema with id 7"),
    ],
)
def test_the_message_index_must_lead_to_the_message(
    index: bytes, writers: dict[int, str] | None, said: str | None
) -> None:
    reader = ProtobufReader(ORDERS, ORDER, schema_ids=True, writers=writers)
    for _ in range(2):
        found, error = one(reader, PREFIX + index + VALUE)
        assert error == said
        assert (found is None) if said else (found["maybe"] == 3)


def test_the_reader_goes_to_tasks() -> None:
    reader = pickle.loads(pickle.dumps(ProtobufReader(ORDERS, ORDER, schema_ids=True, writers={7: ORDERS_TEXT})))
    assert one(reader, PREFIX + b"\2\2" + VALUE)[1] is None


# --- descriptors ------------------------------------------------------------------------------------------------------


def recursive() -> bytes:
    file = descriptor_pb2.FileDescriptorProto(name="r.proto", package="r")
    add_field(file.message_type.add(name="A"), "b", "MESSAGE", label=REPEATED, to=".r.B")
    add_field(file.message_type.add(name="B"), "a", "MESSAGE", to=".r.A")
    return file_set(file)


def incomplete() -> bytes:
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", dependency=["b.proto"])
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


UNREADABLE = "cannot read the Protobuf descriptor of the parser: "


@pytest.mark.parametrize(
    ("files", "message", "said"),
    [
        (b'syntax = "proto3";', ORDER, "Make it with protoc --include_imports --descriptor_set_out"),
        (incomplete(), ORDER, "Depends on file 'b.proto', but it has not been loaded. Make it with protoc"),
        (ORDERS, "Order", "has no message 'Order'. Set the full name of one that it has, such as google.protobuf.Time"),
        (b"", ORDER, "has no message 'shop.Order'"),
        (ORDERS, "shop.Nothing", "cannot read the Protobuf message shop.Nothing: it has no field"),
        (ORDERS.replace(b"orders.proto", b"\xff" * 12), ORDER, f"{UNREADABLE}UnicodeDecodeError"),
        (ORDERS.replace(b"\x05value", b"\x05walue"), ORDER, f"{UNREADABLE}KeyError"),
        (recursive(), "r.A", "cannot read field b.a of the Protobuf message: its type r.A contains itself"),
    ],
)
def test_a_descriptor_without_columns_is_refused(files: bytes, message: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        ProtobufReader(files, message)


def test_a_task_without_protobuf_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = pickle.dumps(READER)
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor_pb2", None)
    with pytest.raises(ConfigError, match=r"Install streamgroup\[protobuf\] for the Python of the driver and of the e"):
        pickle.loads(sent)


def file(*inner: MessageTree, package: str = "") -> MessageTree:
    return MessageTree(package, inner=list(inner))


def message(name: str, *inner: MessageTree) -> MessageTree:
    return MessageTree(name, inner=list(inner))


def group(name: str, *inner: MessageTree) -> MessageTree:
    return MessageTree(name, is_implicit=True, inner=list(inner))


MAP = MessageTree("", is_implicit=True)
"""The message that a map field stands for."""


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("message A {} message B {}", file(message("A"), message("B"))),
        (
            "message A { message B { message C {} } message D {} }",
            file(message("A", message("B", message("C")), message("D"))),
        ),
        ("export message A {} local message B {}", file(message("A"), message("B"))),
        ("message A { map<string, int64> m = 1; message B {} }", file(message("A", MAP, message("B")))),
        ("message A { group G = 1 { message B {} } }", file(message("A", group("G", message("B"))))),
        ("message A { repeated group G = 1 {} optional group H = 2 {} }", file(message("A", group("G"), group("H")))),
        ("message A { required group G = 1 [deprecated = true] {} }", file(message("A", group("G")))),
        # A group within a oneof or an extension is a message of the block around it.
        ("message A { oneof o { group G = 1 {} } message B {} }", file(message("A", group("G"), message("B")))),
        ("extend A { optional group G = 1 {} } message B {}", file(group("G"), message("B"))),
    ],
)
def test_the_outline_has_the_messages_in_their_order(text: str, tree: MessageTree) -> None:
    assert messages_in(text) == tree


@pytest.mark.parametrize(
    ("text", "package"),
    [("package shop;", "shop"), ("package shop . v1 ;", "shop.v1"), ("message A {} package late;", "late")],
)
def test_the_file_has_the_name_of_its_package(text: str, package: str) -> None:
    assert messages_in(text).name == package


@pytest.mark.parametrize(
    "block",
    [
        "// message B {}\n",
        "/* message B {} */",
        'option (o) = "message B {}";',
        "option (o) = 'message \\' B {}';",
        "enum E { message = 0; }",
        "service S { rpc R (A) returns (A) { option o = { message B {} }; } }",
        "string message = 1;",
        "other message B {}",
        "reserved 2, 4 to 6;",
        ";",
    ],
)
def test_only_a_declaration_of_a_message_is_one(block: str) -> None:
    assert messages_in(f"message A {{ {block} message C {{}} }}") == file(message("A", message("C")))


def test_a_comment_without_an_end_takes_the_rest_of_the_text() -> None:
    assert messages_in("message A {} /* ; message B {}") == file(message("A"))


def test_a_brace_too_many_or_too_few_loses_no_message() -> None:
    assert messages_in("} message A {} } message B {}") == file(message("A"), message("B"))
    assert messages_in("message A { message B {") == file(message("A", message("B")))


@settings(max_examples=25)
@given(st.text(alphabet="mesag{};\"\\'/*.=<> \nx") | st.text())
def test_any_text_has_an_outline(text: str) -> None:
    messages_in(text)


TEXT = """
syntax = "proto3"; // message NotThis {
package shop.v1;
import "google/protobuf/timestamp.proto";
/* message NorThis { } */
option (owner) = { team: "message Nor {" message { } };
enum State { message = 0; OPEN = 1; }
message Order {
  option (x).y = "}";
  map<string, int64> counts = 1 [(meta) = { note: 'a "}' }];
  message Line { string message = 1; message Price { int64 cents = 1; } }
  oneof pay { string card = 2; }
  string group = 3;
  message Note {}
}
service Shop { rpc Buy (Order) returns (Refund) { option deadline = 1; } }
message Refund { reserved 2, 4 to 6; extend Order { int32 e = 100; } }
"""
OLD = """
message A {
  optional group Inner = 1 { optional int32 n = 1; message Deep {} }
  oneof o { group Other = 2 {} }
  message B {}
}
export message C {}
"""


@pytest.mark.parametrize(
    ("text", "index", "names"),
    [
        (TEXT, [0], {"shop.v1.Order"}),
        (TEXT, [1], {"shop.v1.Refund"}),
        (TEXT, [2], set()),
        (TEXT, [0, 2], {"shop.v1.Order.Note"}),
        (TEXT, [0, 0, 0], {"shop.v1.Order.Line.Price"}),
        (TEXT, [0, 0], {"shop.v1.Order.Line"}),
        (TEXT, [0, 1], {"shop.v1.Order.Note", "shop.v1.Order.Line"}),
        (OLD, [0, 0], {"A.B"}),
        (OLD, [0, 2], {"A.B"}),
        (OLD, [0, 1], set()),
        (OLD, [0, 0, 0], {"A.Inner.Deep"}),
        (OLD, [1], {"C"}),
        ("", [0], set()),
    ],
)
def test_an_index_finds_the_message(text: str, index: list[int], names: set[str]) -> None:
    assert messages_in(text).names_at(index) == names


def test_a_proto_text_has_a_message_and_any_other_text_has_none() -> None:
    assert is_proto(TEXT)
    for text in ("", " \n", '{"type": "record", "name": "message", "fields": []}', "message {}", "message A;"):
        assert messages_in(text) == file()
        assert not is_proto(text)
