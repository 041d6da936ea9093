"""How bytes become records."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.cli._produce_input import PAUSE, Constants, InvalidRecord, TextReader, split


def records(*chunks: bytes, delimiter: bytes = b"\n") -> list[bytes]:
    return [record for found in split(chunks, delimiter) for record in found]


@given(
    st.lists(st.binary().filter(lambda b: b"\n" not in b and not b.endswith(b"\r"))),
    st.sampled_from([b"\n", b"\r\n"]),
    st.lists(st.integers(0, 200)),
)
def test_lines_lose_their_ends_and_nothing_else_wherever_they_are_cut(
    texts: list[bytes], end: bytes, cuts: list[int]
) -> None:
    data = b"".join(text + end for text in texts)

    def pieces() -> Iterator[bytes]:
        begin = 0
        for cut in sorted(cuts):
            yield data[begin:cut]
            begin = max(begin, min(cut, len(data)))
        yield data[begin:]

    assert records(*(piece for piece in pieces() if piece)) == texts


def test_a_last_line_needs_no_end() -> None:
    assert records(b"a\nb\r") == [b"a", b"b\r"]


def test_a_delimiter_may_lie_on_the_edge_of_two_chunks() -> None:
    assert records(b"a;", b";b;;", b"c", delimiter=b";;") == [b"a", b"b", b"c"]


def test_a_pause_is_passed_on_and_cuts_nothing() -> None:
    assert list(split([b"a\nb", PAUSE, b"c\n"], b"\n")) == [[b"a"], [], [b"bc"]]


@pytest.mark.parametrize(
    ("line", "delimiter", "key", "value"),
    [
        (b"a:b", None, None, b"a:b"),
        (b"a:b:c", b":", b"a", b"b:c"),
        (b":b", b":", b"", b"b"),
        (b"a::b", b"::", b"a", b"b"),
    ],
)
def test_a_line_becomes_a_record(line: bytes, delimiter: bytes | None, key: bytes | None, value: bytes) -> None:
    (row,) = TextReader(Constants(), delimiter).read([line], 1).to_pylist()
    assert (row.get("key"), row["value"]) == (key, value)


def test_a_line_without_the_delimiter_is_named_with_its_place() -> None:
    with pytest.raises(InvalidRecord, match=r"cannot write line 8: no ':' after the key") as raised:
        TextReader(Constants(), b":").read([b"a:b", b"abc"], 7)
    assert raised.value.index == 1
