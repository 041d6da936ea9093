"""The nodes of brokers and topics in ZooKeeper: as real brokers of both dialects wrote them, and as none should."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.errors import DecodeError
from streamgroup.kafka.wire import registrations
from streamgroup.logformat import KAFKA07_LOG, KAFKA_LOG, LogFormat
from streamgroup.model import Broker, Dialect


@given(st.integers(0, 214_000), st.integers(0, 9_999))
def test_a_partition_of_0_7_is_found_by_its_name(broker: int, partition: int) -> None:
    number = registrations.partition_in(KAFKA07_LOG, f"{broker}-{partition}")
    assert KAFKA07_LOG.partition_name(number) == f"{broker}-{partition}"


NO_PARTITIONS = [
    (KAFKA07_LOG, ["", "1", "1-", "-1", "a-b", "1-2-3", "1-10000", "99999999-0", "1 -2", "1-²", "1-02", "01-2"]),
    (KAFKA_LOG, ["", "-1", "0-1", "x", "2147483648", "99999999999999999999", "+1", "1\n", "01"]),
]


@pytest.mark.parametrize(("log_format", "name"), [(row, name) for row, names in NO_PARTITIONS for name in names])
def test_what_is_no_partition_is_refused(log_format: LogFormat, name: str) -> None:
    with pytest.raises(DecodeError):
        registrations.partition_in(log_format, name)


BROKER_8 = b'{"jmx_port":-1,"timestamp":"1795200966157","host":"127.0.0.1","version":1,"port":23844}'


def test_a_broker_is_read_as_each_dialect_registers_it() -> None:
    old = b"127.0.0.1-1795199826379:127.0.0.1:17093"
    assert registrations.dialect_of(old) is Dialect.KAFKA07
    assert registrations.dialect_of(BROKER_8) is Dialect.KAFKA
    assert registrations.read_broker("1", old) == Broker(1, "127.0.0.1", 17093)
    assert registrations.read_broker("1", BROKER_8) == Broker(1, "127.0.0.1", 23844)


def test_a_broker_of_0_7_on_ipv6_is_read_with_the_colons_of_its_address() -> None:
    assert registrations.read_broker("0", b"fe80::1-1795199826379:fe80::1:9092") == Broker(0, "fe80::1", 9092)


def test_a_broker_with_listeners_is_reached_by_the_one_that_speaks_the_protocol() -> None:
    value = {
        "endpoints": ["INSIDE://in:9094", "SSL://safe:9093", "SASL_PLAINTEXT://[::1]:9095"],
        "listener_security_protocol_map": {"INSIDE": "PLAINTEXT", "SSL": "SSL", "SASL_PLAINTEXT": "SASL_PLAINTEXT"},
        "host": None,
        "port": -1,
        "version": 4,
    }
    data = json.dumps(value).encode()
    assert registrations.read_broker("3", data) == Broker(3, "in", 9094)
    assert registrations.read_broker("3", data, "SSL") == Broker(3, "safe", 9093)
    assert registrations.read_broker("3", data, "SASL_PLAINTEXT") == Broker(3, "::1", 9095)
    with pytest.raises(DecodeError, match=r"/brokers/ids/3.*SASL_SSL"):
        registrations.read_broker("3", data, "SASL_SSL")


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xfe", b"{", b"[]", b"null", b"x", b"{" * 20_000, b'{"host":1}', b"h-1:h:0"]
)
def test_garbage_is_no_broker_and_the_error_names_the_node(data: bytes) -> None:
    with pytest.raises(DecodeError, match="/brokers/ids/7"):
        registrations.read_broker("7", data)


@pytest.mark.parametrize("name", ["00", "01", "", "+1", "1\n", "1_0", "²"])
def test_a_number_has_one_spelling_or_one_broker_would_be_there_twice(name: str) -> None:
    for read in (
        lambda: registrations.read_broker(name, b"h-1:h:9092"),
        lambda: registrations.read_broker(name, BROKER_8),
        lambda: registrations.read_count("t", name, b"3"),
        lambda: registrations.read_partitions("t", json.dumps({"partitions": {name: [0]}}).encode()),
    ):
        with pytest.raises(DecodeError, match=re.escape(repr(name))):
            read()
    assert registrations.read_broker("0", b"h-1:h:9092").node_id == 0
    assert registrations.read_broker("10", b"h-1:h:9092").node_id == 10


def test_partitions_of_0_7_are_counted_per_broker() -> None:
    assert registrations.read_count("t", "2", b"3") == (20_000, 20_001, 20_002)
    assert registrations.read_count("t", "2", b"0") == ()


@pytest.mark.parametrize(
    ("broker", "data"), [("2", b"-1"), ("2", b"x"), ("2", b"10001"), ("b", b"3"), ("2", b"9" * 30)]
)
def test_garbage_is_no_count(broker: str, data: bytes) -> None:
    with pytest.raises(DecodeError, match=f"/brokers/topics/t/{broker}"):
        registrations.read_count("t", broker, data)


def test_partitions_of_0_8_are_sorted_as_numbers() -> None:
    assert registrations.read_partitions("t8", b'{"version":1,"partitions":{"2":[1],"10":[1],"3":[1],"0":[1]}}') == (
        0,
        2,
        3,
        10,
    )


@pytest.mark.parametrize("data", [b"", b"3", b'{"version":1}', b'{"partitions":[0]}', b'{"partitions":{"x":[]}}'])
def test_garbage_is_no_topic(data: bytes) -> None:
    with pytest.raises(DecodeError, match="/brokers/topics/t8"):
        registrations.read_partitions("t8", data)


def test_a_node_name_is_one_printable_step_of_a_path() -> None:
    assert all(map(registrations.is_node_name, ["a", "...", "a b", "é", "1-0"]))
    assert not any(map(registrations.is_node_name, ["", ".", "..", "a/b", "/", "a\0", "a\n", "\x7f"]))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"host":"h","port":0}', "expected a port between 1 and 65535"),
        (b'{"host":"h","port":65536}', "expected a port between 1 and 65535"),
        (b'{"host":"h","port":"9092"}', "expected a host and a port for PLAINTEXT"),
        (b'{"host":"h","port":true}', "expected a host and a port for PLAINTEXT"),
        (b'{"host":"","port":9092}', "expected a host and a port for PLAINTEXT"),
        (b'{"endpoints":["PLAINTEXT://:9092"]}', "expected a host and a port for PLAINTEXT"),
        (b"h-1:h:99999", "expected a port between 1 and 65535"),
        (b"h-1:9092", "expected <creator>:<host>:<port>"),
        (b"h-1:" + b"h" * 3000 + b":9092", "expected <creator>:<host>:<port>"),
    ],
)
def test_the_error_of_a_broker_says_what_its_node_lacks(data: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=f"^invalid node /brokers/ids/7: {reason}, found '"):
        registrations.read_broker("7", data)


def test_endpoints_that_are_not_text_are_skipped() -> None:
    data = json.dumps({"endpoints": [7, None, "x", "PLAINTEXT://a:1", "PLAINTEXT://b:2"]}).encode()
    assert registrations.read_broker("3", data) == Broker(3, "a", 1)


def test_partitions_of_0_7_that_do_not_fit_into_an_int_column_are_refused_with_their_node() -> None:
    assert len(registrations.read_count("t", "2", b"10000")) == 10_000
    assert registrations.read_count("t", "214748", b"3648")[-1] == 2**31 - 1
    for broker, count in (("214748", b"3649"), ("214749", b"0")):
        with pytest.raises(DecodeError, match=rf"^/brokers/topics/t/{broker}: partition {broker}-\d+ has no number"):
            registrations.read_count("t", broker, count)


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("007", 7), ("9223372036854775807", 2**63 - 1)])
def test_a_number_is_an_int64(text: str, number: int) -> None:
    assert registrations.read_number(text, "/o") == number


@pytest.mark.parametrize("text", ["", "-1", "+1", " 1", "1 ", "1.0", "1e3", "1_0", "²", "9223372036854775808"])
def test_a_text_that_is_not_an_int64_is_refused_with_its_node(text: str) -> None:
    with pytest.raises(DecodeError, match=r"^invalid node /o: expected a number, found "):
        registrations.read_number(text, "/o")


def test_a_node_that_is_larger_than_zookeeper_allows_is_not_parsed() -> None:
    assert registrations.read_object(b'{"a":1}', "/n") == {"a": 1}
    with pytest.raises(DecodeError, match="invalid node /n: expected a JSON object"):
        registrations.read_object(b'{"a":1}' + b" " * (1 << 20), "/n")


def test_the_error_of_a_node_shows_its_first_80_bytes() -> None:
    assert str(registrations.garbage("/n", b"x" * 80, "y")) == f"invalid node /n: expected y, found '{'x' * 80}'"
    assert str(registrations.garbage("/n", b"x" * 81, "y")) == f"invalid node /n: expected y, found '{'x' * 80}'..."
    with pytest.raises(DecodeError, match=r"invalid node /n: expected UTF-8, found '\\xff'"):
        registrations.read_text(b"\xff", "/n")
