"""The formats of `streamgroup consume`, against a formatter that goes from record to record."""

from __future__ import annotations

import json
import struct
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.cli._record_format import (
    FormatToken,
    JsonFormat,
    PrintFormat,
    TextFormat,
    parse_format,
    record_format,
    unescape,
)
from streamgroup.kafka.records import columns
from streamgroup.logformat import KAFKA07_LOG, KAFKA_LOG

Record = dict[str, Any]

HEADERS = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=5), "value": st.none() | st.binary(max_size=5)}), min_size=1
)
RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.none() | st.binary(max_size=20),
            "value": st.none() | st.binary(max_size=20),
            "offset": st.integers(0, 2**62),
            "timestamp": st.integers(-1, 2**40) | st.just(1_700_000_000_123_456_789),
            "kind": st.sampled_from([-1, 0, 1]),
            "headers": HEADERS,
        }
    ),
    min_size=1,
    max_size=8,
)


def batch_of(records: list[Record], partition: int = 3) -> pa.RecordBatch:
    count = len(records)
    arrays = [
        pa.array([r["key"] for r in records], pa.binary()),
        pa.array([r["value"] for r in records], pa.binary()),
        pa.array(["orders"] * count, pa.string()),
        pa.array([partition] * count, pa.int32()),
        pa.array([r["offset"] for r in records], pa.int64()),
        pa.array([r["timestamp"] for r in records], pa.int64()),
        pa.array([r["kind"] for r in records], pa.int32()),
        pa.array([r["headers"] for r in records], columns.HEADERS),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns.schema(include_headers=True, timestamps_in_ms=True))


def printed(token: FormatToken, record: Record, null: bytes) -> bytes:
    def text(value: bytes | None) -> bytes:
        return null if value is None else value

    def length(value: bytes | None) -> int:
        return -1 if value is None else len(value)

    headers = (header["key"].encode() + b"=" + text(header["value"]) for header in record["headers"] or ())
    return {
        FormatToken.VALUE: text(record["value"]),
        FormatToken.VALUE_LENGTH: b"%d" % length(record["value"]),
        FormatToken.VALUE_LENGTH_BINARY: struct.pack(">i", length(record["value"])),
        FormatToken.KEY: text(record["key"]),
        FormatToken.KEY_LENGTH: b"%d" % length(record["key"]),
        FormatToken.TOPIC: b"orders",
        FormatToken.PARTITION: b"3",
        FormatToken.OFFSET: b"%d" % record["offset"],
        FormatToken.TIMESTAMP: b"%d" % record["timestamp"],
        FormatToken.HEADERS: b",".join(headers),
    }[token]


@pytest.mark.slow
@given(
    RECORDS, st.lists(st.sampled_from(FormatToken) | st.binary(min_size=1, max_size=5)), st.sampled_from([b"", b"NULL"])
)
def test_every_format_prints_each_record_after_the_other(
    records: list[Record], pieces: list[bytes | FormatToken], null: bytes
) -> None:
    expected = b"".join(
        piece if isinstance(piece, bytes) else printed(piece, record, null) for record in records for piece in pieces
    )
    assert bytes(TextFormat(pieces, null).render(batch_of(records), KAFKA_LOG)) == expected


@pytest.mark.slow
@given(RECORDS, st.data())
def test_a_part_of_a_batch_is_printed_as_that_part(records: list[Record], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(records) - 1))
    pieces = parse_format(rb"%o %k %s %h\n")
    part = TextFormat(pieces).render(batch_of(records).slice(first), KAFKA_LOG)
    assert bytes(part) == bytes(TextFormat(pieces).render(batch_of(records[first:]), KAFKA_LOG))


@pytest.mark.slow
@given(RECORDS)
def test_json_is_one_object_per_record_and_holds_all_of_it(records: list[Record]) -> None:
    lines = bytes(JsonFormat(b"\n").render(batch_of(records), KAFKA_LOG)).split(b"\n")
    assert lines.pop() == b""
    assert [json.loads(line) for line in lines] == [envelope(record) for record in records]


def envelope(record: Record) -> Record:
    def text(value: bytes | None) -> str | None:
        return None if value is None else value.decode("utf-8", "replace")

    expected: Record = {"topic": "orders", "partition": 3, "offset": record["offset"]}
    if record["kind"] >= 0:
        expected |= {"tstype": ("create", "logappend")[record["kind"]], "ts": record["timestamp"]}
    if record["headers"] is not None:
        expected["headers"] = [part for h in record["headers"] for part in (h["key"], text(h["value"]))]
    return expected | {"key": text(record["key"]), "payload": text(record["value"])}


def test_a_partition_of_kafka_07_has_the_name_that_its_cluster_gives_it() -> None:
    record = {"key": None, "value": b"v", "offset": 7, "timestamp": -1, "kind": -1, "headers": None}
    batch = batch_of([record], partition=20017)
    assert bytes(TextFormat(parse_format(b"%p")).render(batch, KAFKA07_LOG)) == b"2-17"
    found = json.loads(bytes(JsonFormat(b"\n").render(batch, KAFKA07_LOG)))
    assert found == {"topic": "orders", "partition": "2-17", "offset": 7, "key": None, "payload": "v"}


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        (b"", ()),
        (
            rb"%t:%p:%o %k %s\n",
            (
                FormatToken.TOPIC,
                b":",
                FormatToken.PARTITION,
                b":",
                FormatToken.OFFSET,
                b" ",
                FormatToken.KEY,
                b" ",
                FormatToken.VALUE,
                b"\n",
            ),
        ),
        (rb"100%%\t%S", (b"100%\t", FormatToken.VALUE_LENGTH)),
        (rb"%%s", (b"%s",)),
        (rb"\x25s\x0a", (b"%s\n",)),
        (
            rb"%R%K%T%h\r",
            (
                FormatToken.VALUE_LENGTH_BINARY,
                FormatToken.KEY_LENGTH,
                FormatToken.TIMESTAMP,
                FormatToken.HEADERS,
                b"\r",
            ),
        ),
    ],
)
def test_a_format_string_is_its_tokens_and_texts(text: bytes, pieces: tuple[bytes | FormatToken, ...]) -> None:
    assert parse_format(text) == pieces


@pytest.mark.parametrize("text", [b"%", b"%z", b"%s %", b"%\n", b"%\xff"])
def test_an_unknown_token_is_named_with_the_known_ones(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"(?s)unknown token .*: expected one of %s %S"):
        parse_format(text)


@given(st.binary())
def test_any_format_string_is_parsed_or_refused(text: bytes) -> None:
    try:
        pieces = parse_format(text)
    except ValueError:
        return
    literals = [isinstance(piece, bytes) for piece in pieces]
    assert b"" not in pieces
    assert (True, True) not in pairwise(literals)


@given(st.lists(st.sampled_from(FormatToken) | st.binary(min_size=1)))
def test_pieces_that_are_written_as_a_format_are_read_back(pieces: list[bytes | FormatToken]) -> None:
    def written(piece: bytes | FormatToken) -> bytes:
        return (
            b"%" + piece.value.encode() if isinstance(piece, FormatToken) else b"".join(rb"\x%02x" % b for b in piece)
        )

    merged: list[bytes | FormatToken] = []
    for piece in pieces:
        if isinstance(piece, bytes) and merged and isinstance(merged[-1], bytes):
            merged[-1] += piece
        else:
            merged.append(piece)
    assert parse_format(b"".join(map(written, pieces))) == tuple(merged)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        (rb"a\nb", b"a\nb"),
        (rb"\r\t\0", b"\r\t\0"),
        (rb"\x4A\x4\xff", b"J\x04\xff"),
        (rb"\\n", b"\\n"),
        (rb"\q", b"q"),
        (b"end\\", b"end\\"),
    ],
)
def test_escapes(text: bytes, plain: bytes) -> None:
    assert unescape(text) == plain


def test_an_escape_without_digits_is_refused() -> None:
    with pytest.raises(ValueError, match="hexadecimal"):
        unescape(rb"\xg")


def rendered(made: PrintFormat) -> bytes:
    records = [
        {"key": b"k", "value": b"v", "offset": 1, "timestamp": 2, "kind": 0, "headers": None},
        {"key": None, "value": None, "offset": 2, "timestamp": 2, "kind": 0, "headers": None},
    ]
    return bytes(made.render(batch_of(records), KAFKA_LOG))


@pytest.mark.parametrize(
    ("template", "key_delimiter", "delimiter", "show_null", "output"),
    [
        (None, None, "\\n", False, b"v\n\n"),
        (None, None, ";", True, b"v;NULL;"),
        (None, "\\t", "\\n", False, b"k\tv\n\t\n"),
        (None, ":", "", True, b"k:vNULL:NULL"),
        ("%o,", ":", ";", False, b"1,2,"),
    ],
)
def test_delimiters_and_a_format_that_takes_precedence(
    template: str | None, key_delimiter: str | None, delimiter: str, *, show_null: bool, output: bytes
) -> None:
    made = record_format(template, key_delimiter, delimiter, as_json=False, show_null=show_null)
    assert rendered(made) == output


def test_headers_are_fetched_only_for_formats_that_print_them() -> None:
    def needs(template: str | None, *, as_json: bool = False) -> bool:
        return record_format(template, None, "\\n", as_json=as_json, show_null=False).needs_headers

    assert (needs(None), needs("%s"), needs("%h"), needs(None, as_json=True)) == (False, False, True, True)
