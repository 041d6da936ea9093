"""An address can be pasted into a browser or an option, also that of IPv6."""

from __future__ import annotations

import pytest

from streamgroup.text import counted, first_of, host_port, host_ports


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


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "record", "0 records"),
        (1, "record", "1 record"),
        (2, "record", "2 records"),
        (1, "batch", "1 batch"),
        (12, "batch", "12 batches"),
    ],
)
def test_a_noun_is_plural_but_after_one(count, noun, text):
    assert counted(count, noun) == text


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["a", "b"], "a, b"),
        (["a", "b", "c"], "a, b and 1 more topic"),
        (["a", "b", "c", "d"], "a, b and 2 more topics"),
    ],
)
def test_the_names_beyond_the_first_are_counted(names: list[str], text: str) -> None:
    assert first_of(names, 2, "topic") == text
    assert first_of(["a, b", "c", "d"], 2, "cause", "; ") == "a, b; c and 1 more cause"
