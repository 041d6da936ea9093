"""The messages of a .proto file as text. A schema registry keeps Protobuf schemas in this form.

Only the outline is read, since the numbers of fields make a value readable by the reader's own descriptor. So the files
that the text imports are not needed.
"""

from __future__ import annotations

import re

from streamgroup.parsing.message_tree import MessageTree

_TOKEN = re.compile(
    r"""//[^\n]* | /\*(?:.*?\*/|.*)                  # comments; one without an end takes all
    | "(?:\\.|[^"\\])*"? | '(?:\\.|[^'\\])*'?        # texts
    | [\w.]+ | \S""",
    re.DOTALL | re.VERBOSE,
)
_COMMENTS = ("//", "/*")
_LABELS = ("optional", "required", "repeated")
_VISIBILITIES = ("export", "local")
_TRANSPARENT = ("oneof", "extend")
"""Blocks whose groups are messages of what is around the block."""


def messages_in(text: str) -> MessageTree:
    """Return the messages of a .proto text, below a tree with the name of its package.

    Any text has a result: one that is not of a .proto file has no messages.
    """
    file = MessageTree("")
    blocks: list[MessageTree | None] = [file]  # None for a block that holds no messages, such as an enum
    statement: list[str] = []
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token.startswith(_COMMENTS):
            continue
        if token not in ("{", "}", ";"):
            statement.append(token)
            continue
        around = blocks[-1]
        if around is not None and statement[:2] == ["map", "<"]:
            around.inner.append(MessageTree("", is_implicit=True))
        if token == "{":
            blocks.append(None if around is None else _block(around, statement))
        elif token == "}" and len(blocks) > 1:
            blocks.pop()
        elif statement[:1] == ["package"]:
            file.name = "".join(statement[1:])
        statement = []
    return file


def _block(around: MessageTree, statement: list[str]) -> MessageTree | None:
    """Return the message that a block adds its messages to, which is a new one behind `message` and `group`."""
    match statement:
        case ["message", name] | [_, "message", name] if len(statement) == 2 or statement[0] in _VISIBILITIES:
            found = MessageTree(name)
        case ["group", name, "=", *_]:
            found = MessageTree(name, is_implicit=True)
        case [label, "group", name, "=", *_] if label in _LABELS:
            found = MessageTree(name, is_implicit=True)
        case [word, *_] if word in _TRANSPARENT:
            return around
        case _:
            return None
    around.inner.append(found)
    return found
