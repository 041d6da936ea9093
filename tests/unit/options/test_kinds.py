from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.model import TopicPartition
from streamgroup.options import kinds


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("b-1.x:1,b_2:65535", [("b-1.x", 1), ("b_2", 65_535)]),
        (" b1:1 ,\tb2:2, ", [("b1", 1), ("b2", 2)]),
        ("[::1]:9092", [("::1", 9092)]),
        ("[fe80::1%eth0]:9092,10.0.0.1:9092", [("fe80::1%eth0", 9092), ("10.0.0.1", 9092)]),
        ("PLAINTEXT://b1:9092", [("b1", 9092)]),
    ],
)
def test_servers_are_hosts_and_ports(text: str, servers: list[tuple[str, int]]) -> None:
    assert kinds.SERVERS.parse(text) == tuple(servers)


ADDRESSES = ["b1", "b1:", ":9092", "b1:0", "b1:65536", "b1:x", "::1:9092", "[::1]", "b 1:9092", "b1:1;b2:2", "[b1:9092"]
ASSIGNED = ['{"t": 0}', '{"t": []}', '{"t": [-1]}', '{"t": ["0"]}', '{"t": [true]}', '{"t": [[0]]}']
DURATIONS = ["", "s", "-1s", "1.5s", "1y", "0", "60 000", "999999999999d", "9" * 5_000]
NUMBERS = ["", "x", "1.0", "1e3", "--1", "0", "11", "²", "1_0", "9" * 5_000]
TIMES = ["", "s", "1.5s", "1y", "5 m", "+5s", "1ns", "٣s", "9223372036854775808", "9" * 5_000]
REFUSED = [
    (
        kinds.SERVERS,
        [f"ok:1,{text}" for text in ADDRESSES],
        r"invalid broker address .*: expected host:port, for example",
    ),
    (kinds.SERVERS, ["", " , "], "at least one"),
    (kinds.DURATION, DURATIONS, "a duration"),
    (kinds.TIME_STRING, TIMES, "expected a time without blanks"),
    (kinds.integer(1, 10), NUMBERS, "expected an integer from 1 to 10"),
    (kinds.POSITIVE_OR_OFF, ["0", "-2", "x", "9223372036854775808"], "expected (-1 or )?an integer from -?1 to"),
    (kinds.BOOLEAN, ["1", "0", "yes", ""], "true or false"),
    (kinds.TOPICS, ["a/b", "a b", "ä", ".", "..", "a" * 250], "invalid topic name"),
    (kinds.TIMESTAMPS, ['{"t": {"0": -1}}', '{"t": {"0": "1"}}', '{"t": 5}', "5", ""], "timestamp|object|JSON"),
    (kinds.ASSIGNED, ASSIGNED, "expected a list|invalid partition number"),
]


@pytest.mark.parametrize(
    ("kind", "text", "said"), [(kind, text, said) for kind, texts, said in REFUSED for text in texts]
)
def test_an_invalid_text_is_refused_with_what_is_expected(kind: kinds.ValueKind, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        kind.parse(text)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("60s", 60_000),
        ("1500", 1_500),
        ("500 ms", 500),
        ("2m", 120_000),
        ("2MIN", 120_000),
        ("1h", 3_600_000),
        ("1d", 86_400_000),
    ],
)
def test_durations_are_written_as_in_spark(text: str, milliseconds: int) -> None:
    assert kinds.DURATION.parse(text) == milliseconds


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("15m", 900_000),
        (" 15MIN ", 900_000),
        ("500", 500),
        ("500ms", 500),
        ("0", 0),
        ("2500us", 2),
        ("-2500us", -2),
        ("999us", 0),
        ("-5s", -5_000),
        ("60d", 5_184_000_000),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("9223372036854775807d", 2**63 - 1),
        ("-9223372036854775807h", -(2**63)),
    ],
)
def test_a_time_string_is_read_as_by_sparks_java_utils(text: str, milliseconds: int) -> None:
    assert kinds.TIME_STRING.parse(text) == milliseconds


def test_a_pattern_has_the_syntax_of_java() -> None:
    for pattern in (r"(?:eu|us)\.orders-\d++", r"\p{Alpha}+", "[a-z&&[^b]]+"):
        assert kinds.PATTERN.parse(pattern) == pattern
    with pytest.raises(
        ValueError, match=r"invalid regular expression: a \( without a \) at position 2\. Write it in Java's"
    ):
        kinds.PATTERN.parse("a(")


def test_invalid_json_is_shown_at_its_error() -> None:
    with pytest.raises(ValueError, match=r'(?s)Expecting value at line 2, column 11: .*"orders": <here>x}$'):
        kinds.STREAM_STARTS.parse('{"a": {"0": 1},\n"orders": x}')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"t": {"0": -3}}', "-3 for t-0"),
        ('{"t": {"0": 1.5}}', "1.5 for t-0"),
        ('{"t": {"0": true}}', "True for t-0"),
        ('{"t": {"0": "1"}}', "'1' for t-0"),
        ('{"t": {"0": 9223372036854775808}}', "for t-0"),
        ('{"t": {"x": 1}}', "'x' of topic 't'"),
        ('{"t": {"-1": 1}}', "'-1' of topic 't'"),
        ('{"t": {"4294967296": 1}}', "invalid partition number 4294967296"),
        ('{"t": {"0": 1, "0": 2}}', "repeated key '0'"),
        ('{"t": {"0": 1, "00": 2}}', "repeated partition t-0"),
        ('{"t": {"0": 1}, "t": {"1": 1}}', "repeated key 't'"),
        ('{"t": [0]}', "invalid partitions of topic 't': expected an object"),
        ('{"t": {}}', "invalid partitions of topic 't': expected an object"),
        ('{"t/u": {"0": 1}}', "invalid topic name 't/u'"),
        ("{}", "a JSON object with topics as keys"),
        ("[1]", "earliest or latest or JSON"),
        ("committed", "earliest or latest or JSON"),
        ('{"a":' * 100_000, "invalid JSON"),
    ],
)
def test_an_invalid_start_is_refused_with_its_place(text: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        kinds.STREAM_STARTS.parse(text)


def test_partitions_assigned_are_sorted_and_single() -> None:
    assert kinds.ASSIGNED.parse('{"u": [10, 9, 10], "t": [0]}') == (
        TopicPartition("t", 0),
        TopicPartition("u", 9),
        TopicPartition("u", 10),
    )


KINDS = [value for value in vars(kinds).values() if isinstance(value, kinds.ValueKind)]


@pytest.mark.slow
@given(
    text=st.text(max_size=30)
    | st.from_regex(r'\{"[a-z]": [\[{]"?[0-9]{1,3}"?[:,]? ?-?[0-9]{0,25}[\]}]\}', fullmatch=True)
)
def test_every_text_is_a_value_or_a_value_error(text: str) -> None:
    """Each text is given to every kind: texts take longer to make than to parse."""
    for kind in KINDS:
        with contextlib.suppress(ValueError):
            assert kind.parse(text) is not None, kind.name
