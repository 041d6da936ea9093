from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgroup.kafka.wire import kafka07 as wire
from streamgroup.kafka.wire.kafka07 import LATEST_TIME, FetchRequest07, OffsetsRequest07, ProduceRequest07, message07
from streamgroup.testing.kafka07 import Compressed, message_set
from streamgroup.testing.kafka07.codecs import compress_gzip, compress_snappy
from tests.unit.testing.kafka07.brokers import PARTITIONS, Broker

SILENT = (b"", False)
A = message07(b"a")
EMPTY = bytes.fromhex("000000020000")
OUT_OF_RANGE = bytes.fromhex("000000020001")
WRONG_PARTITION = bytes.fromhex("000000020003")
UNKNOWN = bytes.fromhex("00000002ffff")

ILLEGAL = ["", ".", "..", "a/b", "a\x00", "a\x1f", "a\x7f", "a\x9f", "t" * 256, "\ufffd", "\ue000"]


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """Has 22 bytes in t/0: two messages."""
    broker = Broker(tmp_path)
    assert broker.produce(A + A)[:2] == SILENT
    return broker


def fetch(broker: Broker, topic: str, partition: int, offset: int, max_size: int = 1000) -> bytes:
    reply = broker.ask(FetchRequest07(topic, partition, offset, max_size))
    assert not reply.close
    return reply.data


# FETCH: what is answered


@pytest.mark.parametrize(
    ("topic", "partition", "offset", "answer"),
    [
        *((topic, n, at, EMPTY) for topic, n in (("unknown", 0), ("t", 1)) for at in (0, 5, -1, 1 << 60)),
        *((topic, 0, 0, EMPTY) for topic in ("t" * 255, "...", "a.b-c_d", "größe", "a b")),
        ("t", 0, 22, EMPTY),
        *(("t", 0, offset, OUT_OF_RANGE) for offset in (23, 1 << 60, -1, -2)),
        *((topic, n, 0, WRONG_PARTITION) for topic in ("t", "unknown") for n in (-1, -2, PARTITIONS, 1 << 30)),
    ],
    ids=ascii,
)
def test_a_fetch_at_the_end_or_without_a_log_is_empty_and_another_has_its_code(
    broker: Broker, topic: str, partition: int, offset: int, answer: bytes
) -> None:
    assert fetch(broker, topic, partition, offset) == answer


@pytest.mark.parametrize("topic", ILLEGAL, ids=ascii)
@pytest.mark.parametrize("partition", [0, 99])
def test_fetch_of_an_illegal_topic_is_error_minus_1(broker: Broker, topic: str, partition: int) -> None:
    assert fetch(broker, topic, partition, 0) == UNKNOWN


@pytest.mark.parametrize("max_size", [0, 3, 10, 11, 15, 22, 23])
def test_fetch_cuts_where_the_size_ends(broker: Broker, max_size: int) -> None:
    assert fetch(broker, "t", 0, 0, max_size)[6:] == (A + A)[:max_size]


@pytest.mark.parametrize("max_size", [-1, -2, -100, -(2**31)])
def test_fetch_of_a_negative_size_is_a_nonsense_header_and_the_end(broker: Broker, max_size: int) -> None:
    reply = broker.ask(FetchRequest07("t", 0, 0, max_size))
    assert (reply.data, reply.close) == (struct.pack(">ih", max_size + 2, 0), True)


@pytest.mark.parametrize(("topic", "offset", "answer"), [("t", 22, EMPTY), ("t", 23, OUT_OF_RANGE), ("x", 0, EMPTY)])
def test_a_negative_size_does_not_matter_where_nothing_is_read(
    broker: Broker, topic: str, offset: int, answer: bytes
) -> None:
    assert fetch(broker, topic, 0, offset, -1) == answer


# MULTIFETCH


def multifetch(broker: Broker, *fetches: tuple[str, int, int, int]) -> tuple[bytes, bool]:
    reply = broker.ask(wire.MultiFetchRequest07(tuple(FetchRequest07(*each) for each in fetches)))
    return reply.data, reply.close


def test_one_bad_part_does_not_spoil_the_others(broker: Broker) -> None:
    assert multifetch(broker) == (EMPTY, False)
    data, closed = multifetch(
        broker, ("t", 0, 0, 11), ("t", 0, 99, 11), ("t", 9, 0, 11), ("a/b", 0, 0, 11), ("x", 0, 0, 11), ("t", 0, 11, 11)
    )
    good = struct.pack(">ih", 13, 0) + A
    assert not closed
    assert data[6:] == good + OUT_OF_RANGE + WRONG_PARTITION + UNKNOWN + EMPTY + good
    assert data[:6] == struct.pack(">ih", len(data) - 4, 0)


def test_a_multifetch_ends_at_its_first_negative_size_with_sizes_that_count_on(broker: Broker) -> None:
    good = struct.pack(">ih", 13, 0) + A
    data, closed = multifetch(broker, ("t", 0, 0, 11), ("t", 0, 0, -1), ("t", 0, 0, 11), ("t", 0, 0, -7))
    announced = 2 + 2 * (4 + 13) + (4 + 1) + (4 - 5)
    assert (data, closed) == (struct.pack(">ih", announced, 0) + good + struct.pack(">ih", 1, 0), True)


# OFFSETS: no error is ever sent


@pytest.mark.parametrize(
    ("topic", "partition", "most"),
    [("t", -1, 1), ("t", PARTITIONS, 1), ("unknown", PARTITIONS, 1), ("t", 0, -1), *((name, 0, 1) for name in ILLEGAL)],
    ids=ascii,
)
def test_offsets_that_would_be_an_error_close_without_an_answer(
    broker: Broker, topic: str, partition: int, most: int
) -> None:
    reply = broker.ask(OffsetsRequest07(topic, partition, LATEST_TIME, most))
    assert (reply.data, reply.close) == (b"", True)


@pytest.mark.parametrize(("topic", "partition"), [("unknown", 0), ("t", 2)])
def test_without_a_log_both_ends_are_0_and_other_times_have_none(broker: Broker, topic: str, partition: int) -> None:
    for time in (LATEST_TIME, wire.EARLIEST_TIME):
        assert broker.offsets(time, topic=topic, partition=partition) == [0]
    for time in (0, -3, 1 << 60):
        assert broker.offsets(time, topic=topic, partition=partition) == []


# PRODUCE: never an answer


GZIP = message_set([Compressed("gzip", [b"x", b"y"])])


def damaged(message: bytes, at: int) -> bytes:
    return message[:at] + bytes([message[at] ^ 0xFF]) + message[at + 1 :]


def wrapper_of(inner: bytes, codec: str = "gzip") -> bytes:
    """A good wrapper around bytes that may be none of messages."""
    number, compress = {"gzip": (1, compress_gzip), "snappy": (2, compress_snappy)}[codec]
    return message07(compress(inner), codec=number)


GOOD = {
    "magic 0": message07(b"x", magic=0),
    "magic 1": message07(b"x"),
    "gzip": GZIP,
    "snappy in blocks": message_set([Compressed("snappy", [b"x" * 40_000, b"y"])]),
    "snappy raw": message_set([Compressed("snappy-raw", [b"x", b"y"])]),
    "magic 0 within gzip": message_set([Compressed("gzip", [b"x"], magic=0)]),
    "gzip within gzip within snappy": message_set([Compressed("snappy", [Compressed("gzip", [GZIP, b"z"])])]),
    "all mixed": message_set([b"a", Compressed("gzip", [b"b"]), Compressed("snappy", [b"c"]), b"d"]) + A,
    "other attributes": message07(b"x", codec=0x04),
    "other attributes of a wrapper": wrapper_of(A)[:5] + b"\xf9" + wrapper_of(A)[6:],
    "nothing in a wrapper": message_set([Compressed("gzip", [])]) + A,
    "a cut message within a wrapper, behind a whole one": wrapper_of(A + A[:7]),
    "the largest payload": message07(bytes(1_000_000)),
    "two members of gzip": message07(GZIP[10:] + GZIP[10:], codec=1),
}


@pytest.mark.parametrize("data", GOOD.values(), ids=GOOD)
def test_good_messages_are_kept_as_they_came(tmp_path: Path, data: bytes) -> None:
    broker = Broker(tmp_path)
    assert broker.produce(data)[:2] == SILENT
    assert bytes(broker.fetch(0, 1 << 22).records) == data


BAD = {
    "checksum": damaged(A, 10),
    "checksum behind a good one": A + damaged(A, 6),
    "checksum of an inner one": wrapper_of(A + damaged(A, 10)),
    "checksum of an inner one of snappy": wrapper_of(damaged(A, 10), "snappy"),
    "checksum two levels down": wrapper_of(wrapper_of(damaged(A, 10))),
    "only a part of one": A[:-1],
    "only a part of one within a wrapper": wrapper_of(A[:-1]),
    "magic 2": damaged(A, 4)[:4] + b"\x02" + A[5:],
    "magic -1": A[:4] + b"\xff" + A[5:],
    "magic 2 within a wrapper": wrapper_of(A[:4] + b"\x02" + A[5:]),
    "codec 3": message07(b"x", codec=3),
    "codec 3 within a wrapper": wrapper_of(message07(b"x", codec=7)),
    "no gzip": message07(b"nonsense", codec=1),
    "gzip cut": message07(GZIP[10:-3], codec=1),
    "gzip damaged": message07(damaged(GZIP[10:], -6), codec=1),
    "no snappy": message07(b"\xff" * 9, codec=2),
    "snappy with a block too long": message07(b"\x82SNAPPY\x00\0\0\0\1\0\0\0\1\0\0\0\x05ab", codec=2),
    "snappy with half a header": message07(b"\x82SNAPPY\x00\0\0\0\1", codec=2),
    "length 0": struct.pack(">i", 0) + A,
    "length 1": struct.pack(">ib", 1, 1) + A,
    "length 5 in magic 1": struct.pack(">ibbbbb", 5, 1, 0, 0, 0, 0),
    "length -1": struct.pack(">i", -1) + A,
    "length -1 behind a good one": A + struct.pack(">i", -1),
    "too large behind a bad one": damaged(A, 10) + message07(bytes(1_000_001)),
}


@pytest.mark.parametrize("name", BAD)
def test_anything_damaged_closes_and_nothing_of_the_set_is_written(broker: Broker, name: str) -> None:
    reply = broker.produce(A + BAD[name] if "only" not in name else BAD[name])
    assert (reply.data, reply.close) == (b"", True)
    assert broker.offsets() == [22, 0]


def test_a_bad_set_makes_its_topic_all_the_same(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    assert broker.produce(BAD["checksum"], topic="new", partition=2).close
    assert broker.logs.topics == ["new"]
    assert broker.segments("new", 2)[0].stat().st_size == 0


@pytest.mark.parametrize("partition", [-2, PARTITIONS, 99])
def test_a_set_for_a_partition_that_cannot_be_closes_and_makes_no_topic(broker: Broker, partition: int) -> None:
    assert broker.produce(A, "new", partition)[:2] == (b"", True)
    assert broker.logs.topics == ["t"]


def test_partition_minus_1_is_any_of_the_brokers_own(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    for _ in range(60):
        assert broker.produce(A, partition=-1)[:2] == SILENT
    ends = [broker.offsets(most=1, partition=partition)[0] for partition in range(PARTITIONS)]
    assert sum(ends) == 60 * len(A)
    assert all(ends)


def test_an_empty_set_makes_the_topic(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    made: list[str] = []
    broker.logs.on_new_topic = made.append
    for _ in range(2):
        assert broker.produce(b"")[:2] == SILENT
    assert made == ["t"]
    assert broker.fetch(0) == broker.fetch(0, topic="unknown")


def test_neither_fetch_nor_offsets_make_a_topic(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.fetch(0)
    broker.offsets()
    assert (broker.logs.topics, list(tmp_path.glob("t-*"))) == ([], [])


@pytest.mark.parametrize("cut", range(1, len(A)))
def test_a_cut_message_at_the_end_is_left_out(broker: Broker, cut: int) -> None:
    assert broker.produce(A + A[:cut])[:2] == SILENT
    assert bytes(broker.fetch(22).records) == A


DROPPED = {
    **{f"{size} bytes, too few for a length": bytes(size) for size in (1, 2, 3)},
    "a payload too large": message07(bytes(1_000_001)),
    "a payload too large among others": A + message07(bytes(1_000_001)) + A,
}


@pytest.mark.parametrize("data", DROPPED.values(), ids=DROPPED)
def test_a_set_without_a_length_or_with_a_payload_too_large_is_dropped_without_a_word(
    broker: Broker, data: bytes
) -> None:
    assert broker.produce(data)[:2] == SILENT
    assert broker.offsets() == [22, 0]


def test_a_message_that_is_too_large_only_decompressed_is_kept(broker: Broker) -> None:
    data = message_set([Compressed("gzip", [bytes(2_000_000)])])
    assert len(data) < 10_000
    assert broker.produce(data)[:2] == SILENT
    assert broker.offsets(most=1) == [22 + len(data)]


def test_a_bomb_closes_before_it_has_expanded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamgroup.testing.kafka07.codecs.MAX_INFLATED", 1 << 20)
    for codec in ("gzip", "snappy", "snappy-raw"):
        reply = broker.produce(message_set([Compressed(codec, [bytes(2 << 20)])]))
        assert reply.close
        assert "TooLarge" in reply.why


# MULTIPRODUCE


def multiproduce(broker: Broker, *parts: tuple[str, int, bytes]) -> tuple[bytes, bool]:
    return broker.ask(wire.MultiProduceRequest07(tuple(ProduceRequest07(*each) for each in parts)))[:2]


def test_parts_are_written_in_order_up_to_the_first_bad_one(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    parts = [("p", 0, A), ("p", 0, message07(b"second")), ("p", 9, A), ("p", 1, A)]
    assert multiproduce(broker, *parts) == (b"", True)
    assert bytes(broker.fetch(0, topic="p").records) == A + message07(b"second")
    assert broker.offsets(topic="p", partition=1) == [0]


def test_a_part_without_a_topic_is_a_bad_one_like_others(tmp_path: Path) -> None:
    """The broker reads all parts before it writes any, and takes a negative length of the topic for null."""
    broker = Broker(tmp_path)
    part = struct.pack(">h1sii", 1, b"p", 0, len(A)) + A
    null = struct.pack(">hii", -1, 0, len(A)) + A
    reply = broker.handler.handle(struct.pack(">hh", 3, 3) + part + null + part)
    assert (reply.data, reply.close) == (b"", True)
    assert bytes(broker.fetch(0, topic="p").records) == A
    assert broker.handler.handle(struct.pack(">hh", 3, 2) + null + part).close
    assert bytes(broker.fetch(0, topic="p").records) == A


def test_a_part_too_large_is_dropped_and_the_next_is_written(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    assert multiproduce(broker, ("p", 0, message07(bytes(1_000_001))), ("p", 0, A)) == SILENT
    assert broker.offsets(topic="p", most=1) == [len(A)]


def test_parts_that_do_not_fit_the_body_are_noticed_before_any_is_written(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    whole = wire.MultiProduceRequest07((ProduceRequest07("p", 0, A), ProduceRequest07("p", 0, A))).encode()[4:]
    assert broker.handler.handle(whole[:-1]).close
    assert broker.logs.topics == []


# Bytes that are no requests


INVALID = {
    "empty": b"",
    "one byte": b"\x00",
    "type 5": struct.pack(">h", 5),
    "type -1": struct.pack(">h", -1),
    "null topic": struct.pack(">hhiqi", 1, -1, 0, 0, 1),
    "null topic of a PRODUCE": struct.pack(">hhii", 0, -1, 0, 0),
    "null topic of a MULTIFETCH": struct.pack(">hhhiqi", 2, 1, -1, 0, 0, 1),
    "null topic of an OFFSETS": struct.pack(">hhiqi", 4, -1, 0, -1, 1),
    "FETCH too short": FetchRequest07("t", 0, 0, 1).encode()[4:-1],
    "OFFSETS too short": OffsetsRequest07("t", 0, 0, 1).encode()[4:-1],
    "negative set": struct.pack(">hh1sii", 0, 1, b"t", 0, -1),
    "set longer than the body": struct.pack(">hh1sii", 0, 1, b"t", 0, 12) + A,
    "negative MULTIFETCH": struct.pack(">hh", 2, -1),
    "negative MULTIPRODUCE": struct.pack(">hh", 3, -1),
}


@pytest.mark.parametrize("frame", INVALID.values(), ids=INVALID)
def test_an_invalid_request_closes_the_connection(broker: Broker, frame: bytes) -> None:
    reply = broker.handler.handle(frame)
    assert (reply.data, reply.close) == (b"", True)
    assert reply.why
    assert broker.offsets() == [22, 0]


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Broker:
    broker = Broker(tmp_path_factory.mktemp("fuzzed"))
    broker.produce(A + A)
    return broker


TOPICS = st.sampled_from(["t", "u", "", "a/b"])
NUMBERS = st.sampled_from([-(2**31), -2, -1, 0, 1, 2, 3, 21, 22, 23, 2**31 - 1])
SETS = st.one_of(st.binary(max_size=40), st.sampled_from([*BAD.values(), A, GZIP]))
FRAMES = st.one_of(
    st.binary(max_size=60),
    st.builds(lambda kind, body: struct.pack(">h", kind) + body, st.integers(-1, 5), st.binary(max_size=60)),
    st.builds(FetchRequest07, TOPICS, NUMBERS, NUMBERS, NUMBERS).map(lambda r: r.encode()[4:]),
    st.builds(OffsetsRequest07, TOPICS, NUMBERS, NUMBERS, NUMBERS).map(lambda r: r.encode()[4:]),
    st.builds(ProduceRequest07, TOPICS, NUMBERS, SETS).map(lambda r: r.encode()[4:]),
)


@pytest.mark.slow
@given(FRAMES, st.integers(0, 3))
@settings(max_examples=300)
def test_no_bytes_break_the_handler(fuzzed: Broker, frame: bytes, cut: int) -> None:
    reply = fuzzed.handler.handle(frame[: len(frame) - cut])
    if not reply.close and reply.data:
        assert struct.unpack(">i", reply.data[:4])[0] == len(reply.data) - 4
    assert bytes(fuzzed.fetch(0, 22).records) == A + A
