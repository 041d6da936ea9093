from __future__ import annotations

import contextlib
import itertools
import os
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgroup.errors import ConfigError
from streamgroup.kafka.wire import kafka07 as wire
from streamgroup.kafka.wire.kafka07 import LATEST_TIME, FetchRequest07, FetchResponse07, ProduceRequest07
from streamgroup.testing.kafka07 import BrokerServer
from tests.kafka07_replay import LEFT_OUT, PROPERTIES, replay
from tests.kafka07_samples import samples
from tests.unit.testing.kafka07.brokers import TIMEOUT_S, config, connect, is_open, read, read_frame
from tests.waiting import wait_until

A = wire.message07(b"a")
FETCH = FetchRequest07("t", 0, 0, 1000)
FETCHED = FetchResponse07(0, A + A).encode()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerServer]:
    """Has two messages in t/0."""
    with BrokerServer(config(tmp_path_factory.mktemp("broker"), max_socket_request_bytes=2000)) as server:
        with connect(server.address) as connection:
            connection.sendall(ProduceRequest07("t", 0, A + A).encode())
            assert is_open(connection)
        yield server


# One stream of requests, and of its answers

REQUESTS = (
    FETCH.encode()
    + wire.OffsetsRequest07("t", 0, LATEST_TIME, 5).encode()
    + ProduceRequest07("u", 1, b"").encode()
    + wire.MultiFetchRequest07((FETCH, FetchRequest07("t", 9, 0, 1))).encode()
    + FetchRequest07("t", 0, 22, 1).encode()
)
ANSWERS = (
    FETCHED
    + wire.OffsetsResponse07((22, 0)).encode()
    + wire.MultiFetchResponse07((FetchResponse07(0, A + A), FetchResponse07(3))).encode()
    + FetchResponse07(0).encode()
)


@given(st.sets(st.integers(1, len(REQUESTS) - 1), max_size=12))
@settings(max_examples=25, deadline=None)
def test_any_split_of_the_stream_gives_the_same_answers(broker: BrokerServer, cuts: set[int]) -> None:
    edges = [0, *sorted(cuts), len(REQUESTS)]
    with connect(broker.address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for begin, end in itertools.pairwise(edges):
            connection.sendall(REQUESTS[begin:end])
        assert read(connection, len(ANSWERS)) == ANSWERS


def test_a_request_byte_by_byte_is_answered_with_its_last_byte(broker: BrokerServer) -> None:
    with connect(broker.address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = FETCH.encode()
        for at in range(len(request) - 1):
            connection.sendall(request[at : at + 1])
        connection.settimeout(0.1)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(TIMEOUT_S)
        connection.sendall(request[-1:])
        assert read(connection, len(FETCHED)) == FETCHED


def test_answers_before_a_bad_request_arrive(broker: BrokerServer) -> None:
    with connect(broker.address) as connection:
        connection.sendall(FETCH.encode() + struct.pack(">ih", 2, 5))
        assert read(connection, 1000) == FETCHED


@pytest.mark.parametrize("size", [0, -1, -(2**31), 2001, 2**31 - 1])
def test_a_size_that_cannot_be_closes_without_an_answer(broker: BrokerServer, size: int) -> None:
    with connect(broker.address) as connection:
        connection.sendall(struct.pack(">i", size))
        assert read(connection, 1) == b""


def test_a_request_of_exactly_the_bound_is_read(broker: BrokerServer) -> None:
    with connect(broker.address) as connection:
        body = FETCH.encode()[4:]
        connection.sendall(struct.pack(">i", 2000) + body + bytes(2000 - len(body)))
        assert read(connection, len(FETCHED)) == FETCHED


@given(st.binary(min_size=1, max_size=80))
@settings(max_examples=25, deadline=None)
def test_random_bytes_only_close_their_own_connection(broker: BrokerServer, data: bytes) -> None:
    with connect(broker.address) as connection, connect(broker.address) as other:
        # A broker that has not read all resets the connection when it closes it.
        with contextlib.suppress(OSError):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1000):
                pass
        assert is_open(other)


def test_connections_are_served_side_by_side(broker: BrokerServer) -> None:
    with connect(broker.address) as slow, connect(broker.address) as quick:
        slow.sendall(FETCH.encode()[:10])
        assert is_open(quick)
        slow.sendall(FETCH.encode()[10:])
        assert read(slow, len(FETCHED)) == FETCHED


# A broker's life


def test_nothing_is_answered_before_it_is_open(tmp_path: Path) -> None:
    server = BrokerServer(config(tmp_path)).start()
    try:
        with connect(server.address) as connection:
            connection.sendall(FETCH.encode())
            connection.settimeout(0.2)
            with pytest.raises(TimeoutError):
                connection.recv(1)
            server.open()
            connection.settimeout(TIMEOUT_S)
            assert read_frame(connection) == b"\0\0"
    finally:
        server.stop()


def test_a_stop_ends_connections_and_leaves_a_clean_log(tmp_path: Path) -> None:
    with BrokerServer(config(tmp_path, log_flush_interval=100)) as server, connect(server.address) as connection:
        connection.sendall(ProduceRequest07("t", 0, A).encode())
        assert is_open(connection)
        server.stop()
        assert read(connection, 1) == b""
        with pytest.raises(ConnectionError):
            connect(server.address)
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    with BrokerServer(config(tmp_path)) as server, connect(server.address) as connection:
        connection.sendall(FETCH.encode())
        assert read_frame(connection) == b"\0\0" + A


def test_a_port_that_is_taken_is_an_error(tmp_path: Path, broker: BrokerServer) -> None:
    with pytest.raises(OSError, match="Address already in use"):
        BrokerServer(config(tmp_path, port=broker.port))


def test_a_second_start_is_an_error(broker: BrokerServer) -> None:
    with pytest.raises(ConfigError, match="runs already"):
        broker.start()


def test_the_scheduler_makes_messages_visible(tmp_path: Path) -> None:
    own = config(tmp_path, log_flush_interval=100, log_default_flush_scheduler_interval_ms=30)
    assert own.flush_interval_ms == 30
    with BrokerServer(own) as server, connect(server.address) as connection:
        connection.sendall(ProduceRequest07("t", 0, A).encode())

        def fetched() -> bool:
            connection.sendall(FETCH.encode())
            return read_frame(connection) == b"\0\0" + A

        wait_until(fetched, "the flush")


def test_the_cleaner_removes_what_is_old(tmp_path: Path) -> None:
    lines: list[str] = []
    own = config(tmp_path, log_file_size=1, log_retention_hours=1, log_cleanup_interval_mins=0.0005)
    with BrokerServer(own, lines.append) as server, connect(server.address) as connection:
        for _ in range(3):
            connection.sendall(ProduceRequest07("t", 0, A).encode())
        assert is_open(connection)
        first, *others = sorted((tmp_path / "t-0").iterdir())
        os.utime(first, (time.time() - 7200,) * 2)
        wait_until(lambda: not first.exists(), "the clean-up")
        connection.sendall(wire.OffsetsRequest07("t", 0, LATEST_TIME, 9).encode())
        assert read_frame(connection) == wire.OffsetsResponse07((33, 22, 11)).encode()[4:]
        assert all(path.exists() for path in others)
    assert "retention removed 1 segments" in lines


def test_a_connection_that_is_closed_for_a_reason_is_reported(tmp_path: Path) -> None:
    lines: list[str] = []
    with BrokerServer(config(tmp_path), lines.append) as server, connect(server.address) as connection:
        connection.sendall(ProduceRequest07("t", 9, A).encode())
        assert read(connection, 1) == b""
    (line,) = lines
    assert "WrongPartition: invalid partition 9: t has 3 partitions" in line


def test_a_disk_that_fails_closes_the_connection(tmp_path: Path) -> None:
    lines: list[str] = []
    with BrokerServer(config(tmp_path), lines.append) as server, connect(server.address) as connection:
        (tmp_path / "t-0").write_text("where the log's directory should be")
        connection.sendall(ProduceRequest07("t", 0, A).encode())
        assert read(connection, 1) == b""
    assert "the disk has failed" in lines[0]


def test_every_captured_sample_is_answered_byte_by_byte(tmp_path: Path) -> None:
    with BrokerServer(config(tmp_path, **PROPERTIES)) as broker:
        assert replay(broker.address) == []


def test_the_produces_before_a_sample_belong_to_one_sample(tmp_path: Path) -> None:
    assert LEFT_OUT.keys() <= {sample.name for sample in samples()}
