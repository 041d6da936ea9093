"""Mutations of bytes and of text from a seeded generator. Bytes that are almost right come further than random ones."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Mutate = Callable[[bytes, Sequence[int], Sequence[bytes], Random], bytes]
"""Makes a case of a sample, of the marks in it (the positions of its lengths and counts), and of all samples."""

LONGEST = 8_192
"""No case has more bytes: the limit of time for a case would else measure its size."""
_NUMBERS = (
    *(value.to_bytes(width, "big", signed=True) for width in (1, 2, 4, 8) for value in (-1, -2, 0, 1, 2, 127, -128)),
    *((1 << 8 * width - 1).to_bytes(width, "big") for width in (2, 4, 8)),
    *(((1 << 8 * width - 1) - 1).to_bytes(width, "big") for width in (2, 4, 8)),
    *(
        bytes.fromhex(text)
        for text in ("ffffffff0f", "8080808008", "8080808010", "80808080", "ff" * 9 + "01", "ff" * 11)
    ),
)
"""Lengths, counts and offsets at the ends of their ranges, and varints: the longest, overlong and endless ones."""


def mutated_bytes(data: bytes, marks: Sequence[int], samples: Sequence[bytes], chance: Random) -> bytes:
    """Return `data` after one to four changes, about half of them at a mark."""
    for _ in range(1 + int(chance.random() ** 2 * 4)):
        if marks and chance.random() < 0.5:
            at = marks[int(chance.random() * len(marks))]
            data = _resized(data, at, chance)
            continue
        at = int(chance.random() * (len(data) + 1))
        data = _CHANGES[int(chance.random() * len(_CHANGES))](data, at, samples, chance)
    return data[:LONGEST]


def _resized(data: bytes, at: int, chance: Random) -> bytes:
    """Change the length or count at `at`: by a little, or to an extreme."""
    if at >= len(data):
        return data
    if chance.random() < 0.5:
        extreme = _NUMBERS[int(chance.random() * len(_NUMBERS))]
        return data[:at] + extreme + data[at + len(extreme) :]
    # The low byte of a number of 1, 2 or 4 bytes.
    low = min(at + (0, 1, 3)[int(chance.random() * 3)], len(data) - 1)
    return data[:low] + bytes((data[low] + int(chance.random() * 9) - 4 & 0xFF,)) + data[low + 1 :]


def _cut(data: bytes, at: int, samples: Sequence[bytes], chance: Random) -> bytes:
    return data[:at]


def _cut_out(data: bytes, at: int, samples: Sequence[bytes], chance: Random) -> bytes:
    return data[:at] + data[at + 1 + int(chance.random() * 8) :]


def _put_in(data: bytes, at: int, samples: Sequence[bytes], chance: Random) -> bytes:
    return data[:at] + chance.randbytes(1 + int(chance.random() * 8)) + data[at:]


def _repeated(data: bytes, at: int, samples: Sequence[bytes], chance: Random) -> bytes:
    return data[:at] + data[at : at + 32] * (2 + int(chance.random() * 4)) + data[at + 32 :]


def _flipped(data: bytes, at: int, samples: Sequence[bytes], chance: Random) -> bytes:
    return data[:at] + bytes(byte ^ 1 << int(chance.random() * 8) for byte in data[at : at + 1]) + data[at + 1 :]


def _number(data: bytes, at: int, samples: Sequence[bytes], chance: Random) -> bytes:
    extreme = _NUMBERS[int(chance.random() * len(_NUMBERS))]
    return data[:at] + extreme + data[at + len(extreme) :]


def _spliced(data: bytes, at: int, samples: Sequence[bytes], chance: Random) -> bytes:
    other = samples[int(chance.random() * len(samples))]
    return data[:at] + other[int(chance.random() * (len(other) + 1)) :]


_CHANGES = (_cut, _cut_out, _put_in, _repeated, _flipped, _number, _number, _spliced)

# -- text: JSON, TOML, options, nodes of ZooKeeper ---------------------------------------------------------------------

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|\w+|\s+|.', re.DOTALL)
_INTERESTING = (
    *(
        b"0",
        b"-1",
        b"1",
        b"007",
        b"+1",
        b"1.0",
        b"1e5",
        b"1e999",
        b"-1e999",
        b"NaN",
        b"Infinity",
        b"-0",
        b"0x1f",
        b"1_0",
    ),
    *(b"2147483647", b"2147483648", b"9223372036854775807", b"9223372036854775808", b"9" * 25, b"9" * 400, b"9" * 4400),
    *(b'""', b'"0"', b'"\\ud800"', b'"\\u0000"', b'"\xc3\xa9"', b'"\xff"', b'"\\q"', b'"a', b"''", b"'''", b'"' * 3),
    *(b"true", b"false", b"null", b"[]", b"{}", b"[[]]", b"[null]", b'{"a":1}', b'{"0":[0,1]}', b"[0, -1]", b"{}{}"),
    *(
        b"[" * 3_000,
        b'{"a":' * 1_500,
        b"(" * 300,
        b"a." * 100,
        b"a = {" * 300,
        b"(a+)+b",
        b"(a|b|ab)*",
        b"x{1,65535}",
        b"[a-",
        b"\\",
    ),
    *(
        b"a" * 300,
        b"{member}",
        b"{0}",
        b"%s",
        b"env:HOME",
        b"::1",
        b"[::1]:0",
        b"h:99999",
        b"h:0",
        b"/../.",
        b"1-2",
        b"00",
    ),
    *(
        "٣".encode(),
        "²".encode(),
        "\u2028".encode(),
        b"\xed\xa0\x80",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\0",
        b"\n",
        b"\r",
        b"#",
    ),
    *(b"1979-05-27", b"07:32:00", b"1979-02-30T25:61:61Z", b"60s", b"5min", b"0ms", b"999999999999d", b"streamgroup"),
)
"""Tokens that parsers have got wrong: numbers beyond their range, halves of surrogate pairs, nesting, other digits."""


def mutated_text(data: bytes, marks: Sequence[int], samples: Sequence[bytes], chance: Random) -> bytes:
    """Return a text after one to three changes of its tokens, now and then of its bytes."""
    if data[:1] == b"{" and chance.random() < 0.5:
        return _mutated_json(data, chance)
    if chance.random() < 0.2:
        return mutated_bytes(data, (), samples, chance)
    tokens = _TOKEN.findall(data)
    for _ in range(1 + int(chance.random() ** 2 * 3)):
        at = int(chance.random() * (len(tokens) + 1))
        match int(chance.random() * 7):
            case 0:
                del tokens[at : at + 1 + int(chance.random() * 3)]
            case 1:
                tokens[at:at] = tokens[at : at + 1 + int(chance.random() * 6)]
            case 2 if tokens:
                other = int(chance.random() * len(tokens))
                tokens[at : at + 1] = tokens[other : other + 1]
            case 3:
                others = _TOKEN.findall(samples[int(chance.random() * len(samples))])
                begin = int(chance.random() * (len(others) + 1))
                tokens[at : at + 1] = others[begin : begin + 1 + int(chance.random() * 4)]
            case 4:
                tokens[at:at] = [_INTERESTING[int(chance.random() * len(_INTERESTING))]]
            case _:
                tokens[at : at + 1] = [_INTERESTING[int(chance.random() * len(_INTERESTING))]]
    return b"".join(tokens)[:LONGEST]


_VALUES: tuple[Any, ...] = (
    *(0, -1, 1, 2**31, 2**63, -(10**400), 1.0, 1.5, -0.0, math.inf, -math.inf, math.nan, True, False, None),
    *("", "0", "1-2", "00", "\ud800", "\0", "a" * 300, "streamgroup", [], {}, [[]], [0], [0, -1, 1], {"0": [0, 1]}),
    *({"0": 5}, {"": None}, {"orders": {"0": 5}}, ["h", None], [None], "99999999999999999999"),
)


def _mutated_json(data: bytes, chance: Random) -> bytes:
    """Return a JSON text of which one or two values, at any depth, are others, gone or under another name."""
    try:
        whole = [json.loads(data)]
    except (ValueError, RecursionError):
        return data
    for _ in range(1 + int(chance.random() * 2)):
        node: Any = whole
        while True:
            keys = list(node) if isinstance(node, dict) else range(len(node))
            key = keys[int(chance.random() * len(keys))]
            if not (isinstance(node[key], dict | list) and node[key]) or chance.random() < 0.3:
                break
            node = node[key]
        if isinstance(node, dict) and chance.random() < 0.3:
            value = node.pop(key)
            if chance.random() < 0.5:
                node[chance.choice([*keys, "0", "orders", ""])] = value
        else:
            node[key] = copy.deepcopy(_VALUES[int(chance.random() * len(_VALUES))])
    return json.dumps(whole[0], ensure_ascii=chance.random() < 0.5).encode("utf-8", "replace")[:LONGEST]


def mutated_values(data: bytes, marks: Sequence[int], samples: Sequence[bytes], chance: Random) -> bytes:
    """Return lines of `name = value` with changes of one to three values, now and then of anything.

    A misspelt name ends what its value could test, and its error, which searches for similar names, takes long.
    """
    if chance.random() < 0.1:
        return mutated_text(data, marks, samples, chance)
    lines = data.split(b"\n")
    for _ in range(1 + int(chance.random() ** 2 * 3)):
        at = int(chance.random() * len(lines))
        name, equals, value = lines[at].partition(b"=")
        others = [line.partition(b"=")[2] for line in lines]
        lines[at] = name + equals + mutated_text(value, marks, others, chance) if equals else lines[at]
    return b"\n".join(lines)[:LONGEST]
