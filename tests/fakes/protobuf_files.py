"""Files of Protobuf as protoc would describe them, and messages of them."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory, timestamp_pb2

FieldType = descriptor_pb2.FieldDescriptorProto.Type
OPTIONAL, REQUIRED, REPEATED = 1, 2, 3


def add_field(message: Any, name: str, of: str, *, label: int = OPTIONAL, to: str = "", number: int = 0) -> Any:
    """Add a field of the type `of`, such as INT32, to a DescriptorProto. `to` is the name of a message or an enum."""
    kind = FieldType.Value(f"TYPE_{of}")
    return message.field.add(
        name=name, number=number or len(message.field) + 1, type=kind, label=label, type_name=to or None
    )


def add_map(message: Any, package: str, name: str, of: str, to: str = "") -> None:
    """Add a map from strings."""
    entry = message.nested_type.add(name=f"{name.title()}Entry")
    entry.options.map_entry = True
    add_field(entry, "key", "STRING")
    add_field(entry, "value", of, to=to)
    add_field(message, name, "MESSAGE", label=REPEATED, to=f".{package}.{message.name}.{entry.name}")


def file_set(*files: Any) -> bytes:
    """Return a FileDescriptorSet of the files, behind that of Timestamp."""
    timestamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(timestamp)
    return descriptor_pb2.FileDescriptorSet(file=[timestamp, *files]).SerializeToString()


def message_bytes(files: bytes, name: str, **fields: Any) -> bytes:
    """Return a message with fields as in Protobuf's JSON."""
    pool = descriptor_pool.DescriptorPool()
    for one in descriptor_pb2.FileDescriptorSet.FromString(files).file:
        pool.Add(one)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))()
    json_format.ParseDict(fields, message)
    found: bytes = message.SerializeToString()
    return found


def _orders() -> Any:
    """Return a file with a message of every type, and a second one."""
    file = descriptor_pb2.FileDescriptorProto(
        name="orders.proto", package="shop", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    state = file.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="PAID", number=4)
    order = file.message_type.add(name="Order")
    for name in SCALARS:
        add_field(order, name, name.upper())
    add_field(order, "state", "ENUM", to=".shop.State")
    add_field(order, "at", "MESSAGE", to=".google.protobuf.Timestamp")
    add_field(order, "line", "MESSAGE", to=".shop.Order.Line")
    add_field(order, "lines", "MESSAGE", label=REPEATED, to=".shop.Order.Line")
    add_field(order, "numbers", "SINT64", label=REPEATED)
    add_field(order, "states", "ENUM", label=REPEATED, to=".shop.State")
    add_map(order, "shop", "counts", "UINT64")
    add_map(order, "shop", "more", "MESSAGE", ".shop.Order.Line")
    add_field(order, "marker", "MESSAGE", to=".shop.Nothing")
    order.oneof_decl.add(name="_maybe")
    maybe = add_field(order, "maybe", "INT32")
    maybe.proto3_optional, maybe.oneof_index = True, 0
    add_field(order.nested_type.add(name="Line"), "cents", "INT64")
    add_field(file.message_type.add(name="Refund"), "id", "INT64")
    file.message_type.add(name="Nothing")
    return file


SCALARS = (
    *("bool", "int32", "sint32", "sfixed32", "uint32", "fixed32", "int64", "sint64", "sfixed64", "uint64", "fixed64"),
    *("float", "double", "string", "bytes"),
)
ORDERS = file_set(_orders())
"""`shop.Order` has every type, `shop.Refund` an id."""
ORDERS_TEXT = """
syntax = "proto3";
package shop;
message Refund { int64 id = 1; }
message Order { string string = 14; message Line {} }
"""
"""The two messages in the other order, as a registry has them."""
