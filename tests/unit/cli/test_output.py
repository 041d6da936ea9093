"""A command writes records in their format and notices to standard error, and a signal ends it between two steps.

Its formats are compared with a formatter that goes from record to record.
"""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import struct
import threading
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.cli._output import Notices, RecordPrinter, StopSignals, quiet_when_closed
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


T = FormatToken


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        (b"", ()),
        (rb"%t:%p:%o %k %s\n", (T.TOPIC, b":", T.PARTITION, b":", T.OFFSET, b" ", T.KEY, b" ", T.VALUE, b"\n")),
        (rb"100%%\t%S", (b"100%\t", T.VALUE_LENGTH)),
        (rb"%%s", (b"%s",)),
        (rb"\x25s\x0a", (b"%s\n",)),
        (rb"%R%K%T%h\r", (T.VALUE_LENGTH_BINARY, T.KEY_LENGTH, T.TIMESTAMP, T.HEADERS, b"\r")),
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


log = logging.getLogger("streamgroup")


def batch(*values: bytes) -> pa.RecordBatch:
    record = {"key": None, "offset": 0, "timestamp": 0, "kind": 0, "headers": None}
    return batch_of([{**record, "value": value} for value in values])


def printer(stream: io.BytesIO, count: int | None) -> RecordPrinter:
    return RecordPrinter(stream, TextFormat((FormatToken.VALUE, b" ")), count)


# -- records -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "whole", "printed", "left"),
    [
        (None, [True, True], b"a b c d ", None),
        (5, [True, True], b"a b c d ", 1),
        (4, [True, True], b"a b c d ", 0),
        (3, [True, False], b"a b c ", 0),
        (2, [True, False], b"a b ", 0),
        (1, [False, False], b"a ", 0),
    ],
)
def test_no_more_than_the_count_is_printed_and_a_batch_that_is_cut_is_reported(
    count: int | None, whole: list[bool], printed: bytes, left: int | None
) -> None:
    stream = io.BytesIO()
    made = printer(stream, count)
    assert [made.print(each, KAFKA_LOG) for each in (batch(b"a", b"b"), batch(b"c", b"d"))] == whole
    assert (stream.getvalue(), made.left, made.is_done) == (printed, left, left == 0)


def test_each_batch_is_flushed_so_that_a_reader_sees_it_at_once() -> None:
    raw = io.BytesIO()
    made = RecordPrinter(io.BufferedWriter(raw), TextFormat((FormatToken.VALUE, b" ")), None)  # type: ignore[arg-type]
    made.print(batch(b"a"), KAFKA_LOG)
    assert raw.getvalue() == b"a "


def test_a_reader_that_has_closed_the_stream_ends_the_command_without_an_error() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "wb") as stream:
        made = RecordPrinter(stream, TextFormat((FormatToken.VALUE, b" ")), None)
        with quiet_when_closed(stream):
            made.print(batch(b"a"), KAFKA_LOG)
            pytest.fail("the pipe is closed")
        stream.flush()  # as the interpreter does when it ends


def test_another_error_of_the_stream_is_raised() -> None:
    with pytest.raises(OSError, match="no space left"), quiet_when_closed(io.BytesIO()):
        raise OSError("no space left")


# -- notices -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verbosity", "said", "shown"),
    [
        (0, "", ["ERROR"]),
        (1, "% one\n", ["ERROR", "WARNING"]),
        (2, "% one\n% two\n", ["ERROR", "WARNING", "INFO"]),
        (3, "% one\n% two\n", ["ERROR", "WARNING", "INFO", "DEBUG"]),
        (9, "% one\n% two\n", ["ERROR", "WARNING", "INFO", "DEBUG"]),
    ],
)
def test_notices_and_log_lines_are_shown_from_their_verbosity_on(
    verbosity: int, said: str, shown: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    notices = Notices(verbosity)
    notices.say("one")
    notices.say("two", 2)
    assert capsys.readouterr() == ("", said)
    with notices.logging():
        for level in (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG):
            log.log(level, "at %s", "once")
    assert capsys.readouterr().err == "".join(f"% {level}: at once\n" for level in shown)


def test_the_logger_is_afterwards_as_it_was_also_after_an_error() -> None:
    before = (log.level, log.propagate, list(log.handlers))

    def fail() -> None:
        with Notices(2).logging():
            assert not log.propagate, "a handler of the root logger would print the line a second time"
            raise ValueError("a defect")

    with pytest.raises(ValueError, match="a defect"):
        fail()
    assert (log.level, log.propagate, log.handlers) == before
    assert log.isEnabledFor(logging.WARNING)
    with Notices(0).logging():
        assert not log.isEnabledFor(logging.WARNING)
    assert log.isEnabledFor(logging.WARNING), "a level that was hidden meanwhile"


# -- signals -----------------------------------------------------------------------------------------------------------


def test_a_signal_lets_a_step_be_completed_and_a_second_one_does_not() -> None:
    steps: list[str] = []

    def step(signals: StopSignals) -> None:
        with signals.waiting():
            with signals.completing():
                os.kill(os.getpid(), signal.SIGINT)
                steps.append("completed")
            steps.append("not reached")

    def second(signals: StopSignals) -> None:
        with signals.completing():
            os.kill(os.getpid(), signal.SIGINT)

    with StopSignals() as signals:
        with pytest.raises(SystemExit) as ended:
            step(signals)
        assert (ended.value.code, steps) == (0, ["completed"])
        with pytest.raises(SystemExit) as ended:
            second(signals)
        assert ended.value.code == 1
        with signals.ending():
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_before_a_wait_ends_the_wait_at_its_beginning() -> None:
    steps: list[str] = []

    def wait(signals: StopSignals) -> None:
        with signals.waiting():
            steps.append("waited")

    with StopSignals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.asked
        with pytest.raises(SystemExit) as ended:
            wait(signals)
    assert (ended.value.code, steps) == (0, [])


def test_without_a_signal_a_completed_step_lets_the_wait_go_on() -> None:
    steps: list[str] = []
    with StopSignals() as signals, signals.waiting():
        for number in ("first", "second"):
            with signals.completing():
                steps.append(number)
        assert not signals.asked
    assert steps == ["first", "second"]


def test_a_wait_with_an_interrupt_of_its_own_is_ended_by_it_and_the_one_around_has_its_own_again() -> None:
    calls: list[str] = []
    with StopSignals() as signals, signals.waiting(lambda: calls.append("outer")):
        with signals.waiting(lambda: calls.append("inner")):
            os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
    assert calls == ["inner", "outer"]


def test_outside_of_the_main_thread_signals_keep_their_handlers() -> None:
    found: list[object] = []

    def enter() -> None:
        with StopSignals() as signals:
            found.extend((signal.getsignal(signal.SIGTERM), signals.asked))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join(5)
    assert found == [signal.getsignal(signal.SIGTERM), False]
