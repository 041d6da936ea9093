"""User data that members exchange: the identity in a subscription (R28), and the basis in an assignment (R23).

A member writes its `RunIdentity` into the user data of its subscription. Our leader writes the `AssignmentBasis` into
the user data of each assignment, under Java's strategies only if a member needs it (`assignment.divide`). Both are
compact JSON: `{"streamgroup":1,"counts":{"orders":6},"members":3}`. The first key is the number of the format. `counts`
has the number of partitions of every topic that the group subscribes to, 0 for a topic that did not exist. `members` is
the number of members. `withheld`, present if it is not 0, is the number of partitions that have no owner until their
former owners give them up. The leader compares the counts with the cluster's, as does a member that may lead without
knowing it. Other clients ignore the basis, and write none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamgroup.kafka.wire.primitives import Bytes

FORMAT = 1

_MAX_BASIS_BYTES = 4 * 1024 * 1024
"""More bytes than the basis of any real group. Longer user data is not parsed."""


@dataclass(frozen=True, slots=True)
class AssignmentBasis:
    """The partition and member counts from which the leader computed an assignment."""

    counts: Mapping[str, int]
    members: int
    withheld: int = 0

    @property
    def total(self) -> int:
        return sum(self.counts.values())


def encode_basis(basis: AssignmentBasis) -> bytes:
    """Return the user data. The same basis gives the same bytes."""
    document = {"streamgroup": FORMAT, "counts": dict(sorted(basis.counts.items())), "members": basis.members}
    if basis.withheld:
        document["withheld"] = basis.withheld
    return json.dumps(document, separators=(",", ":")).encode()


def decode_basis(data: Bytes | None) -> AssignmentBasis | None:
    """Parse a basis. Return None without user data, or if it is another client's or has a later format.

    Other assignors define their own user data, so no content is an error.
    """
    if not data or len(data) > _MAX_BASIS_BYTES:
        return None
    try:
        document: Any = json.loads(bytes(data))
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or document.get("streamgroup") != FORMAT:
        return None
    counts, members, withheld = document.get("counts"), document.get("members", -1), document.get("withheld", 0)
    if not isinstance(counts, dict) or not all(_is_count(count) for count in (members, withheld, *counts.values())):
        return None
    return AssignmentBasis(counts, members, withheld)


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


_MAX_IDENTITY_BYTES = 4096
"""More bytes than any identity. Longer user data is not parsed."""
_GENERATION_BYTES = 4
"""Cooperative members write their generation before the identity (`sticky.encode_user_data`)."""


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """Identifies one start of a query on one checkpoint, in the user data of JoinGroup.

    `lineage` (the id that all copies of a checkpoint share) and `run` are also in the query's offset documents (R1).
    `admitted`: the query has looked for another live member of its lineage and found none. `asking`: the query makes
    all members rejoin, so that they report their identities.
    """

    lineage: str
    run: str
    admitted: bool = False
    asking: bool = False


def encode_identity(identity: RunIdentity) -> bytes:
    """Return the user data. The same identity gives the same bytes."""
    document = {"streamgroup": FORMAT, "lineage": identity.lineage, "run": identity.run, "admitted": identity.admitted}
    if identity.asking:
        document["asking"] = True
    return json.dumps(document, separators=(",", ":")).encode()


def decode_identity(data: Bytes | None) -> RunIdentity | None:
    """Parse an identity. Return None without user data, or if it is another client's or has a later format.

    Other assignors define their own user data, so no content is an error.
    """
    if not data or len(data) > _MAX_IDENTITY_BYTES:
        return None
    text = bytes(data)
    if not text.startswith(b"{"):
        text = text[_GENERATION_BYTES:]
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or type(document.get("streamgroup")) is not int:
        return None
    match document:
        case {"streamgroup": 1, "lineage": str(lineage), "run": str(run), "admitted": bool(admitted)}:
            return RunIdentity(lineage, run, admitted, document.get("asking") is True)
    return None
