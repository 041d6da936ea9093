from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.errors import ConfigError
from streamgroup.spark.parsing.framing import (
    SchemaRegistry,
    UnreadableError,
    id_in_error,
    split_message_index,
    split_schema_id,
    unknown_id_error,
)


@given(st.integers(-(2**31), 2**31 - 1), st.binary())
def test_a_prefix_is_split_off(schema_id: int, payload: bytes) -> None:
    assert split_schema_id(b"\0" + schema_id.to_bytes(4, "big", signed=True) + payload) == (schema_id, payload)
    assert id_in_error(unknown_id_error("Avro", schema_id)) == schema_id


@pytest.mark.parametrize(
    ("value", "said"), [(b"", "has 0 bytes"), (b"\0\0\0\1", "has 4 bytes"), (b'{"id":1}', "begins with byte 123")]
)
def test_a_value_without_a_prefix_is_unreadable(value: bytes, said: str) -> None:
    with pytest.raises(UnreadableError, match=said):
        split_schema_id(value)


def test_other_reasons_have_no_id() -> None:
    assert id_in_error("the value is null") is None


def zigzag(number: int) -> bytes:
    """Write a varint by itself, as Confluent's serializers do."""
    left, out = (number << 1) ^ (number >> 31), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5), st.binary())
def test_a_message_index_is_split_off(index: list[int], payload: bytes) -> None:
    prefix = b"".join(zigzag(n) for n in (len(index), *index))
    assert split_message_index(prefix + payload) == (tuple(index), payload)
    assert split_message_index(b"\0" + payload) == ((0,), payload), "the short form of [0]"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"", "is not a list of varints"),
        (b"\x80", "is not a list of varints"),
        (b"\xff\xff\xff\xff\xff", "is not a list of varints"),
        (b"\xff\xff\xff\xff\x1f", "is not a list of varints"),
        (b"\2", "has 1 positions, and 0 bytes follow"),
        (b"\1\0", "has -1 positions"),
        (b"\2\1", "has the position -1"),
        (zigzag(2**31 - 1) + b"abc", "has 2147483647 positions, and 3 bytes follow"),
        (b"\4\0\x80", "is not a list of varints"),
    ],
)
def test_a_value_without_a_message_index_is_unreadable(value: bytes, said: str) -> None:
    with pytest.raises(UnreadableError, match=said):
        split_message_index(value)


INVALID = "invalid URL of the schema registry: expected, for example, https://registry:8081"
CREDENTIALS = "credentials in it. Set the user and the password"
ONE_OF_TWO = "both user and password, or neither. Set the other one too"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        *(
            (url, INVALID)
            for url in ("", "registry:8081", "http://", "http://[", "HTTP://registry", "https:///subjects")
        ),
        *((f"https://registry:{port}", INVALID) for port in ("0", "65536", "-1", "80a", "port")),
        *((url, INVALID) for url in ("https://one,http://two", "https://one,http://u:p@two", "https://r?a=true")),
        *((f"https://{user}@registry", CREDENTIALS) for user in ("etl:hunter2", ":hunter2", "etl")),
        (("http://registry", "etl"), ONE_OF_TWO),
        (("https://registry", None, "hunter2"), ONE_OF_TWO),
        (("http://registry", None, None, "/ca.pem"), "not https"),
    ],
)
def test_a_registry_that_cannot_be_asked_is_refused_without_its_password(
    given: str | tuple[Any, ...], said: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        SchemaRegistry(*([given] if isinstance(given, str) else given))
    assert said in str(raised.value)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    "given",
    [
        ("http://registry",),
        ("http://registry:8081/schemas",),
        ("https://[::1]:8081",),
        ("https://registry:65535", "etl", "env:PASSWORD"),
        ("https://registry", None, None, "/ca.pem"),
        # Only None means that there is no user: an empty password is one.
        ("https://registry", "etl", ""),
    ],
)
def test_a_registry_that_can_be_asked_keeps_its_parts_as_given(given: tuple[str, ...]) -> None:
    registry = SchemaRegistry(*given)
    parts = (registry.url, registry.user, registry.password, registry.ca)
    assert parts == (*given, None, None, None)[:4]


def test_the_text_of_a_registry_does_not_show_its_password() -> None:
    text = repr(SchemaRegistry("https://registry", "etl", "hunter2"))
    assert "hunter2" not in text
    assert "etl" in text
