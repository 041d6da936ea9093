"""The nodes of both dialects, as real brokers and consumers wrote them, and as nobody should have."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.errors import ConfigError, DecodeError
from streamgroup.group.registry import formats as f
from streamgroup.group.registry.formats import GroupPaths, Incarnation, Interest
from streamgroup.logformat import KAFKA07_LOG, KAFKA_LOG
from streamgroup.model import Broker, Dialect, TopicPartition
from streamgroup.wire import registrations

OLD, NEW = Dialect.KAFKA07, Dialect.KAFKA
PATH = "/consumers/g/ids/c"


# -- paths ------------------------------------------------------------------------------------------------------------


def test_the_paths_of_0_7_are_those_of_its_consumers() -> None:
    paths, tp = GroupPaths("grp1", OLD), TopicPartition("ctopic", 10_002)
    assert paths.consumer("grp1_c1") == "/consumers/grp1/ids/grp1_c1"
    assert paths.owner(tp) == "/consumers/grp1/owners/ctopic/1-2"
    assert paths.offset(tp) == "/consumers/grp1/offsets/ctopic/1-2"
    assert paths.metadata_of(tp) == "/consumers/grp1/streamgroup/ctopic/1-2"


def test_the_paths_of_0_8_have_plain_numbers() -> None:
    paths, tp = GroupPaths("g8", NEW), TopicPartition("t8", 3)
    assert paths.owner(tp) == "/consumers/g8/owners/t8/3"
    assert paths.offset(tp) == "/consumers/g8/offsets/t8/3"


@pytest.mark.parametrize("group", ["", ".", "..", "a/b", "a\0", "/"])
def test_a_group_that_no_node_can_be_called_after_is_refused(group: str) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.group\.id"):
        GroupPaths(group, NEW)


def test_a_topic_called_members_is_in_nobodys_way() -> None:
    paths = GroupPaths("g", NEW)
    assert not paths.member("x").startswith(paths.metadata() + "/")
    assert not paths.metadata_of(TopicPartition("members", 0)).startswith(paths.members + "/")


@given(st.integers(0, 214_000), st.integers(0, 9_999))
def test_a_partition_of_0_7_is_found_by_its_name(broker: int, partition: int) -> None:
    number = registrations.partition_in(KAFKA07_LOG, f"{broker}-{partition}")
    assert KAFKA07_LOG.partition_name(number) == f"{broker}-{partition}"


@pytest.mark.parametrize(
    "name", ["", "1", "1-", "-1", "a-b", "1-2-3", "1-10000", "99999999-0", "1 -2", "1-²", "1-02", "01-2"]
)
def test_what_is_no_partition_of_0_7_is_refused(name: str) -> None:
    with pytest.raises(DecodeError):
        registrations.partition_in(KAFKA07_LOG, name)


@pytest.mark.parametrize("name", ["", "-1", "0-1", "x", "2147483648", "99999999999999999999", "+1", "1\n", "01"])
def test_what_is_no_partition_of_0_8_is_refused(name: str) -> None:
    with pytest.raises(DecodeError):
        registrations.partition_in(KAFKA_LOG, name)


# -- brokers and topics -----------------------------------------------------------------------------------------------

BROKER_8 = b'{"jmx_port":-1,"timestamp":"1795200966157","host":"127.0.0.1","version":1,"port":23844}'


def test_brokers_as_they_registered() -> None:
    old = b"127.0.0.1-1795199826379:127.0.0.1:17093"
    assert registrations.dialect_of(old) is OLD
    assert registrations.dialect_of(BROKER_8) is NEW
    assert registrations.read_broker("1", old) == Broker(1, "127.0.0.1", 17093)
    assert registrations.read_broker("1", BROKER_8) == Broker(1, "127.0.0.1", 23844)


def test_a_broker_of_0_7_on_ipv6() -> None:
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


GARBAGE = [
    b"",
    b"\xff\xfe",
    b"{",
    b"[]",
    b"null",
    b"x",
    b"{" * 20_000,
    b'{"host":1}',
    b"a:b",
    b"h-1:h:0",
    b"h-1:h:65536",
]


@pytest.mark.parametrize("data", GARBAGE)
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


# -- consumers --------------------------------------------------------------------------------------------------------


def test_we_register_as_the_real_consumers_spell_it() -> None:
    assert f.registration(OLD, ["dtopic", "ctopic"], 5) == b'{ "ctopic": 1,"dtopic": 1 }'
    assert f.registration(NEW, ["t8"], 1795200970602) == (
        b'{"version":1,"subscription":{"t8":1},"pattern":"static","timestamp":"1795200970602"}'
    )


@given(st.sets(st.text(max_size=5), max_size=4), st.sampled_from(Dialect))
def test_what_we_register_is_read_as_it_was_meant(topics: set[str], dialect: Dialect) -> None:
    data = f.registration(dialect, topics, 1)
    assert f.read_consumer(PATH, data, dialect) == Interest(f.STATIC, dict.fromkeys(topics, 1))


@pytest.mark.parametrize(
    ("dialect", "data", "streams"),
    [
        (OLD, '{ "ctopic": 1,"dtopic": 2 }', {"ctopic": 1, "dtopic": 2}),
        (OLD, "*2*j-.*", {"j-1": 2, "j-2": 2}),
        (OLD, "!2!j-.*", {"ctopic": 2, "dtopic": 2, "__consumer_offsets": 2, "k_1": 2}),
        (OLD, "*1*ctopic, dtopic", {"ctopic": 1, "dtopic": 1}),
        (OLD, "*1*'j-1'", {"j-1": 1}),
        (OLD, "*1*j", {}),  # the whole name has to match
        (OLD, "*3*.*", dict.fromkeys(["ctopic", "dtopic", "j-1", "j-2", "k_1", "__consumer_offsets"], 3)),
        (NEW, '{"version":1,"subscription":{"t8":1},"pattern":"static","timestamp":"1"}', {"t8": 1}),
        (NEW, '{"version":1,"subscription":{"j-.*":2},"pattern":"white_list","timestamp":"1"}', {"j-1": 2, "j-2": 2}),
        (NEW, '{"version":1,"subscription":{"j-.*":1},"pattern":"black_list"}', {"ctopic": 1, "dtopic": 1, "k_1": 1}),
        (NEW, '{"version":1,"subscription":{".*offsets":1},"pattern":"white_list"}', {}),
        (NEW, '{"version":1,"subscription":{},"pattern":"white_list"}', {}),
        (NEW, '{"version":1,"subscription":{"t8":1},"pattern":{}}', {"t8": 1}),
        (NEW, '{"version":1,"subscription":{"t8":1},"pattern":["white_list"]}', {"t8": 1}),
        (NEW, '{"version":1,"subscription":{"__consumer_offsets":1},"pattern":"static"}', {"__consumer_offsets": 1}),
    ],
)
def test_what_real_consumers_register(dialect: Dialect, data: str, streams: dict[str, int]) -> None:
    interest = f.read_consumer(PATH, data.encode(), dialect)
    there = ["ctopic", "dtopic", "j-1", "j-2", "k_1", "__consumer_offsets"]
    assert interest.topics(there, dialect) == streams


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80",
        b"[1]",
        b"{",
        b'{"subscription":7,"pattern":"static"}',
        b'{"subscription":{"t":0},"pattern":"static"}',
        b'{"subscription":{"t":2000000000},"pattern":"static"}',
        b'{"subscription":{"t":true},"pattern":"static"}',
        b"*0*t",
        b"*2000000000*t",
        b"[" * 100_000,
    ],
)
def test_garbage_is_no_consumer_and_the_error_names_the_node(data: bytes, dialect: Dialect) -> None:
    with pytest.raises(DecodeError, match=PATH):
        f.read_consumer(PATH, data, dialect)


def test_a_pattern_has_the_syntax_of_java() -> None:
    assert f.read_consumer(PATH, rb"*1*\p{Alpha}+", OLD).topics(["t", "1"], OLD) == {"t": 1}
    unknown = f.read_consumer(PATH, rb"*1*\p{Letters}+", OLD)
    with pytest.raises(DecodeError, match="Letters"):
        unknown.topics(["t"], OLD)


def test_our_ids_look_like_the_real_ones() -> None:
    me = Incarnation.of("grp1", "vm", 1795200126907, 0xAB19BE2887)
    assert me == Incarnation("grp1_vm-1795200126907-19be2887", 1795200126907)
    assert registrations.is_node_name(Incarnation.of("g", "a/b\0", 1, 2).consumer_id)


def test_owner_nodes_name_a_thread() -> None:
    thread = f.read_owner("/o", f.owner_data("grp1_c1-10"))
    assert thread == "grp1_c1-10"
    assert f.consumer_of(thread) == "grp1_c1"
    with pytest.raises(DecodeError, match="/o"):
        f.read_owner("/o", b"somebody")


@given(st.integers(0, 2**63 - 1))
def test_offsets_are_bare_decimals(offset: int) -> None:
    assert f.offset_data(offset) == str(offset).encode()
    assert f.read_offset("/o", f.offset_data(offset)) == offset


@pytest.mark.parametrize("data", [b"", b"-1", b" 5", b"5\n", b"1.0", b"0x5", b"9223372036854775808", "٣".encode()])
def test_garbage_is_no_offset(data: bytes) -> None:
    with pytest.raises(DecodeError, match="/o"):
        f.read_offset("/o", data)


def test_an_error_shows_no_more_than_the_beginning_of_garbage() -> None:
    with pytest.raises(DecodeError) as caught:
        f.read_offset("/o", b"x" * 100_000)
    assert len(str(caught.value)) < 200
