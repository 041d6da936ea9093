"""The outline of a .proto text from a schema registry: by it a message index finds the message of a value."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgroup.parsing.message_tree import MessageTree
from streamgroup.parsing.proto_text import messages_in


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
    ],
)
def test_the_outline_has_the_messages_in_their_order(text: str, tree: MessageTree) -> None:
    assert messages_in(text) == tree


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("message A { oneof o { group G = 1 {} } message B {} }", file(message("A", group("G"), message("B")))),
        ("extend A { optional group G = 1 {} } message B {}", file(group("G"), message("B"))),
    ],
)
def test_a_group_within_a_oneof_or_an_extension_is_a_message_of_the_block_around_it(
    text: str, tree: MessageTree
) -> None:
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


@pytest.mark.parametrize("text", ["", " \n", '{"type": "record", "name": "message"}', "message {}", "message A;"])
def test_a_text_that_is_not_a_proto_file_has_no_messages(text: str) -> None:
    assert messages_in(text) == file()


@settings(max_examples=25)
@given(st.text(alphabet="mesag{};\"\\'/*.=<> \nx") | st.text())
def test_any_text_has_an_outline(text: str) -> None:
    messages_in(text)
