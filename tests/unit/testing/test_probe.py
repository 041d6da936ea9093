from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.testing.ports import LOOPBACK, free_ports, receive_exactly
from streamgroup.testing.probe import (
    accepts,
    answers_metadata,
    broker_ids,
    brokers_known_to,
    leaders_known_to,
    partition_leaders,
    zookeeper_serves,
)

Serve = Callable[[bytes], int]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A server that answers its one client's first bytes with these, then closes."""
    started: list[tuple[threading.Thread, socket.socket]] = []

    def start(answer: bytes) -> int:
        listener = socket.create_server((LOOPBACK, 0))
        listener.settimeout(10)

        def run() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(answer)

        thread = threading.Thread(target=run, daemon=True)
        started.append((thread, listener))
        thread.start()
        return int(listener.getsockname()[1])

    yield start
    for thread, listener in started:
        thread.join(10)
        listener.close()


def metadata(*brokers: tuple[int, str]) -> bytes:
    rows = b"".join(struct.pack(">ih", i, len(h)) + h.encode() + struct.pack(">i", 9092) for i, h in brokers)
    return struct.pack(">ii", 0, len(brokers)) + rows


def framed(answer: bytes) -> bytes:
    return struct.pack(">i", len(answer)) + answer


def test_the_brokers_of_a_metadata_answer_are_found(serve: Serve) -> None:
    topics = struct.pack(">i", 0)
    port = serve(framed(metadata((0, "127.0.0.1"), (7, "a-longer-host"), (3, "")) + topics))
    assert brokers_known_to(LOOPBACK, port) == {0, 3, 7}


def topic(error: int, *partitions: tuple[int, int, int]) -> bytes:
    """Of one topic: partitions as (error, number, leader), each with two replicas of which one is in sync."""
    rows = b"".join(struct.pack(">hiiiiiii", *partition, 2, 0, 1, 1, 0) for partition in partitions)
    return struct.pack(">ihh2si", 1, error, 2, b"t8", len(partitions)) + rows


def test_the_leaders_of_a_topic_are_found_and_partitions_without_one_left_out(serve: Serve) -> None:
    port = serve(framed(metadata((0, "h"), (1, "h")) + topic(0, (0, 2, 1), (5, 1, -1), (9, 0, 0))))
    assert leaders_known_to(LOOPBACK, port, "t8") == {0: 0, 2: 1}


def test_a_topic_that_is_not_there_yet_has_no_leaders() -> None:
    assert partition_leaders(metadata((0, "h")) + topic(3)) == {}


def test_an_answer_that_ends_within_a_topic_has_no_leaders(serve: Serve) -> None:
    assert leaders_known_to(LOOPBACK, serve(framed((metadata((0, "h")) + topic(0, (0, 0, 0)))[:-5])), "t8") == {}
    huge = metadata((0, "h")) + struct.pack(">ihh2si", 1, 0, 2, b"t8", 2**31 - 1)
    with pytest.raises(struct.error, match="invalid number of brokers"):
        partition_leaders(huge)


def test_a_broker_that_knows_no_brokers_answers_all_the_same(serve: Serve) -> None:
    assert answers_metadata(LOOPBACK, serve(framed(metadata() + struct.pack(">i", 0))))
    assert brokers_known_to(LOOPBACK, serve(framed(metadata() + struct.pack(">i", 0)))) == frozenset()


def test_whether_anybody_listens(serve: Serve) -> None:
    assert accepts(LOOPBACK, serve(b""))
    (port,) = free_ports(1)
    assert not accepts(LOOPBACK, port)
    assert not answers_metadata(LOOPBACK, port)
    assert brokers_known_to(LOOPBACK, port) == frozenset()
    assert not zookeeper_serves(LOOPBACK, port, "/data")


@pytest.mark.parametrize(
    "answer", [b"", b"\0\0", framed(b""), framed(metadata((1, "host"))[:-1]), framed(metadata((1, "host")))[:-2]]
)
def test_a_truncated_answer_is_not_a_broker(serve: Serve, answer: bytes) -> None:
    assert brokers_known_to(LOOPBACK, serve(answer)) == frozenset()


@given(st.binary(max_size=200))
def test_any_bytes_are_brokers_or_a_struct_error(answer: bytes) -> None:
    with contextlib.suppress(struct.error):
        assert len(broker_ids(answer)) <= len(answer) // 10


def test_a_zookeeper_serves_once_it_shows_its_configuration_and_is_known_by_its_data(serve: Serve) -> None:
    configuration = b"clientPort=2181\nsecureClientPort=-1\ndataDir=/tmp/a/version-2\ndataDirSize=67108880\n"
    assert zookeeper_serves(LOOPBACK, serve(configuration), "/tmp/a")
    assert not zookeeper_serves(LOOPBACK, serve(configuration), "/tmp/b")
    assert not zookeeper_serves(
        LOOPBACK, serve(b"This ZooKeeper instance is not currently serving requests\n"), "/tmp/a"
    )


# -- ports and sockets -------------------------------------------------------------------------------------------------


def test_ports_are_distinct_can_be_bound_and_lie_below_those_of_outgoing_connections() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert all(1024 < port < 32_768 for port in ports)
    for port in ports:
        with socket.socket() as listener:
            listener.bind((LOOPBACK, port))


def test_bytes_that_come_in_pieces_are_received_whole_and_no_more() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for piece in (b"ab", b"c", b"de"):
            theirs.sendall(piece)
        assert receive_exactly(ours, 4) == b"abcd"
        assert receive_exactly(ours, 0) == b""
        assert receive_exactly(ours, 1) == b"e"


def test_a_stream_that_ends_before_is_an_error() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.sendall(b"abc")
        with pytest.raises(ConnectionError, match="it closed the connection"):
            receive_exactly(ours, 4)
