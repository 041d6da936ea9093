"""The identity of a member, in the user data of its subscription: the checkpoint that it reads (R28).

Compact JSON, `{"streamgroup":1,"lineage":"5a…","run":"c3…","admitted":true}`: the number of the format comes first.
Under `cooperative-sticky` Java's own user data, an int32 generation, stands before it. Consumers of other makes neither
write nor read it. DescribeGroups shows it to users who may describe the group.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from streamgroup.wire.primitives import Bytes

FORMAT = 1

_MAX_BYTES = 4096
"""More bytes than any identity has. Longer user data is not parsed."""
_GENERATION_BYTES = 4


@dataclass(frozen=True, slots=True)
class Identity:
    """One run of one checkpoint.

    `lineage` and `run` are those of its documents (R1). `admitted`: the run has looked for another live member of its
    lineage and found none. The next JoinGroup carries this flag. `asking`: the run makes all members join again, so
    that they tell theirs.
    """

    lineage: str
    run: str
    admitted: bool = False
    asking: bool = False


def encode_identity(identity: Identity) -> bytes:
    """Return the user data. The same identity gives the same bytes."""
    document = {"streamgroup": FORMAT, "lineage": identity.lineage, "run": identity.run, "admitted": identity.admitted}
    if identity.asking:
        document["asking"] = True
    return json.dumps(document, separators=(",", ":")).encode()


def decode_identity(data: Bytes | None) -> Identity | None:
    """Read an identity. None: there is no user data, or it is of another make or of a later format.

    Other assignors use the user data in their own way, so no content is an error.
    """
    if not data or len(data) > _MAX_BYTES:
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
            return Identity(lineage, run, admitted, document.get("asking") is True)
    return None
