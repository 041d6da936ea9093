"""The user data of assignments: round trips, and anything of others is no error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.group.userdata import AssignmentBasis, decode_basis, encode_basis


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=20), st.integers(0, 10_000)), st.integers(0, 500), st.integers(0, 9))
def test_what_is_written_is_read(counts: dict[str, int], members: int, withheld: int) -> None:
    basis = AssignmentBasis(counts, members, withheld)
    assert decode_basis(memoryview(encode_basis(basis))) == basis
    assert basis.total == sum(counts.values())


@given(st.binary(max_size=200))
def test_other_makes_user_data_says_nothing(data: bytes) -> None:
    assert decode_basis(data) is None


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"null",
        b"[1]",
        b'{"streamgroup":2,"counts":{},"members":1}',
        b'{"streamgroup":1,"counts":{"t":-1},"members":1}',
        b'{"streamgroup":1,"counts":{"t":true},"members":1}',
        b'{"streamgroup":1,"counts":[],"members":1}',
        b'{"streamgroup":1,"counts":{}}',
        b'{"streamgroup":1,"counts":{},"members":1,"withheld":-1}',
        b"[" * 100_000,
        b"1" * 10_000,
    ],
)
def test_what_only_looks_like_ours_says_nothing(data: bytes | None) -> None:
    assert decode_basis(data) is None
