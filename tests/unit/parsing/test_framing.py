from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.parsing.framing import UnreadableError, id_in_error, split_schema_id, unknown_id_error


@given(st.integers(-(2**31), 2**31 - 1), st.binary())
def test_a_prefix_is_split_off(schema_id: int, payload: bytes) -> None:
    assert split_schema_id(b"\0" + schema_id.to_bytes(4, "big", signed=True) + payload) == (schema_id, payload)
    assert id_in_error(unknown_id_error(schema_id)) == schema_id


@pytest.mark.parametrize(
    ("value", "said"), [(b"", "has 0 bytes"), (b"\0\0\0\1", "has 4 bytes"), (b'{"id":1}', "begins with byte 123")]
)
def test_a_value_without_a_prefix_is_unreadable(value: bytes, said: str) -> None:
    with pytest.raises(UnreadableError, match=said):
        split_schema_id(value)


def test_other_reasons_have_no_id() -> None:
    assert id_in_error("the value is null") is None
