"""How a query shows the other members of its group which query it is (R28), and the weight of its member.

A member writes its `RunIdentity` into the user data of its subscription, as compact JSON. The first key is the number
of the format. Assignments have no user data: a broker converts a group to the consumer protocol (KIP-848) only then.
The consumer protocol does not have user data. Under it the member id contains the identity.
"""

from __future__ import annotations

import json
from typing import Any

from streamgroup.backoff import Random
from streamgroup.frozen import frozen
from streamgroup.kafka.wire.primitives import Bytes

FORMAT = 1
MOST_WEIGHT = 1_000_000
"""The largest `group.member.weight`."""

_MAX_IDENTITY_BYTES = 4096
"""More bytes than any identity. Longer user data is not parsed."""
_GENERATION_BYTES = 4
"""Cooperative members write their generation before the identity (`sticky.encode_user_data`)."""


@frozen
class RunIdentity:
    """Identifies one start of a query on one checkpoint, in the user data of JoinGroup.

    `lineage` (the id that all copies of a checkpoint share) and `run` are also in the query's offset documents (R1).
    `admitted`: the query has looked for another live member of its lineage and found none. `asking`: the query makes
    all members rejoin, so that they report their identities. `weight` is the member's share of the partitions under
    `streamgroup-range`, relative to the weights of the other members.
    """

    lineage: str
    run: str
    admitted: bool | None = False
    """None: a member id cannot show it."""
    asking: bool = False
    weight: int = 1


def encode_identity(identity: RunIdentity) -> bytes:
    """Return the user data. The same identity gives the same bytes."""
    document = {"streamgroup": FORMAT, "lineage": identity.lineage, "run": identity.run, "admitted": identity.admitted}
    if identity.asking:
        document["asking"] = True
    if identity.weight != 1:
        document["weight"] = identity.weight
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
            weight = document.get("weight")
            weight = weight if type(weight) is int and 1 <= weight <= MOST_WEIGHT else 1
            return RunIdentity(lineage, run, admitted, document.get("asking") is True, weight)
    return None


_MEMBER_ID = "streamgroup"


def member_id_of(identity: RunIdentity | None, random: Random) -> str:
    """Return the id of a member under the consumer protocol. It is unique for each start of a query.

    `identity` is None if the query has no lineage to compare.
    """
    if identity is None:
        return f"{_MEMBER_ID}:{int(random.random() * 2**64):016x}"
    return f"{_MEMBER_ID}:{identity.lineage}:{identity.run}"


def identity_in(member_id: str) -> RunIdentity | None:
    """Return the identity that a member id contains; None if it is of another client or has none."""
    match member_id.split(":"):
        case [name, lineage, run] if name == _MEMBER_ID and lineage and run:
            return RunIdentity(lineage, run, admitted=None)
    return None
