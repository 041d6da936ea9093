from __future__ import annotations

import socket

import pytest

from streamgroup.testing.ports import LOOPBACK, free_ports, receive_exactly


def test_ports_are_distinct_and_can_be_bound() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        with socket.socket() as listener:
            listener.bind((LOOPBACK, port))


def test_ports_lie_below_those_of_outgoing_connections() -> None:
    assert all(1024 < port < 32_768 for port in free_ports(50))


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
