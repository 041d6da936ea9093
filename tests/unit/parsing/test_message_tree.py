from __future__ import annotations

import pytest

from streamgroup.parsing.proto_text import messages_in
from streamgroup.parsing.protobuf import is_proto

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


def test_texts_with_messages() -> None:
    assert is_proto(TEXT)
    assert not is_proto('{"type": "record", "name": "message", "fields": []}')
    assert not is_proto("message {}")
