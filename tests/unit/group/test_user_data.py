"""The user data of subscriptions and assignments: round trips, and other clients' data is no error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.group.user_data import (
    AssignmentBasis,
    RunIdentity,
    decode_basis,
    decode_identity,
    encode_basis,
    encode_identity,
)


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=20), st.integers(0, 10_000)), st.integers(0, 500), st.integers(0, 9))
def test_what_is_written_is_read(counts: dict[str, int], members: int, withheld: int) -> None:
    basis = AssignmentBasis(counts, members, withheld)
    assert decode_basis(memoryview(encode_basis(basis))) == basis
    assert basis.total == sum(counts.values())


@given(st.binary(max_size=200))
def test_user_data_of_another_client_is_neither_a_basis_nor_an_identity(data: bytes) -> None:
    assert (decode_basis(data), decode_identity(data)) == (None, None)


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


IDENTITIES = st.builds(RunIdentity, st.text(max_size=40), st.text(max_size=40), st.booleans())


@given(IDENTITIES, st.integers(0, 2**30))
def test_what_is_reported_is_understood_also_behind_javas_generation(identity: RunIdentity, generation: int) -> None:
    data = encode_identity(identity)
    assert decode_identity(data) == identity
    assert decode_identity(memoryview(data)) == identity
    assert decode_identity(generation.to_bytes(4, "big") + data) == identity


def test_the_bytes_are_compact_json_with_the_format_first() -> None:
    data = encode_identity(RunIdentity("l", "r", admitted=True))
    assert data == b'{"streamgroup":1,"lineage":"l","run":"r","admitted":true}'


OURS: dict[str, Any] = {"streamgroup": 1, "lineage": "l", "run": "r", "admitted": False}


@pytest.mark.parametrize(
    "document",
    [
        OURS | {"streamgroup": 2},
        OURS | {"streamgroup": True},
        OURS | {"lineage": 1},
        OURS | {"run": None},
        OURS | {"admitted": 1},
        {key: value for key, value in OURS.items() if key != "run"},
        [OURS],
        "streamgroup",
    ],
)
def test_another_format_or_shape_is_nobody(document: Any) -> None:
    assert decode_identity(json.dumps(document).encode()) is None


def test_more_than_ours_can_be_is_not_parsed() -> None:
    assert decode_identity(json.dumps(OURS | {"run": "r" * 5000}).encode()) is None
    assert decode_identity(b"[" * 4000) is None
    assert decode_identity(None) is None
    assert decode_identity(b"") is None


def test_what_a_later_release_adds_is_left_alone() -> None:
    assert decode_identity(json.dumps(OURS | {"since": 5}).encode()) == RunIdentity("l", "r")
