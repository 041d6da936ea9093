"""What our leader writes into the user data of each member's assignment: what the assignment was computed from (R23).

Compact JSON, `{"streamgroup":1,"counts":{"orders":6},"members":3}`: its first key is the number of the format, `counts`
the partitions of every topic that the group subscribes to (0: the topic did not exist), `members` how many shared them.
Where it is not 0 there is also `withheld`: how many partitions have no owner until those who have them give them up.
The group's leader, and any member that was not told who leads, compares the counts with the cluster's. A consumer of
another make ignores it, and as a leader writes none of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamgroup.wire.primitives import Bytes

FORMAT = 1

_MAX_BYTES = 4 * 1024 * 1024
"""Far beyond any real group's topics; more is not ours and is not parsed."""


@dataclass(frozen=True, slots=True)
class AssignmentBasis:
    """What an assignment was computed from."""

    counts: Mapping[str, int]
    members: int
    withheld: int = 0

    @property
    def total(self) -> int:
        """The partitions of all topics of the group."""
        return sum(self.counts.values())


def encode_basis(basis: AssignmentBasis) -> bytes:
    """The user data; the same basis gives the same bytes."""
    document = {"streamgroup": FORMAT, "counts": dict(sorted(basis.counts.items())), "members": basis.members}
    if basis.withheld:
        document["withheld"] = basis.withheld
    return json.dumps(document, separators=(",", ":")).encode()


def decode_basis(data: Bytes | None) -> AssignmentBasis | None:
    """What our leader wrote, or None: no user data, another make's, or a later format.

    Anything may stand there (assignors of others use it in their own way), so nothing in it is an error.
    """
    if not data or len(data) > _MAX_BYTES:
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
