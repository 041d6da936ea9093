from __future__ import annotations

import socket

from streamgroup.testing.ports import LOOPBACK, free_ports


def test_ports_are_distinct_and_can_be_bound() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        with socket.socket() as listener:
            listener.bind((LOOPBACK, port))


def test_ports_lie_below_those_of_outgoing_connections() -> None:
    assert all(1024 < port < 32_768 for port in free_ports(50))
