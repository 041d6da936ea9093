"""An address can be pasted into a browser or an option, also that of IPv6."""

from __future__ import annotations

import pytest

from streamgroup.host_port import host_port, host_ports


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("broker", "broker:9092"),
        ("10.0.0.1", "10.0.0.1:9092"),
        ("::1", "[::1]:9092"),
        ("[::1]", "[::1]:9092"),
        ("fe80::1%eth0", "[fe80::1%eth0]:9092"),
    ],
)
def test_an_ipv6_address_is_in_brackets(host: str, text: str) -> None:
    assert host_port(host, 9092) == text


def test_servers_are_listed_as_options_list_them() -> None:
    assert host_ports([("a", 1), ("::1", 2)]) == "a:1,[::1]:2"
    assert host_ports([]) == ""
