"""What an assignor is handed and what it gives: the leaf below `assignors.py` and each strategy's own file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streamgroup.model import TopicInfo, TopicPartition

NO_GENERATION = -1
"""A member that told no generation: it is new, or of a client that does not tell."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member as its JoinGroup told it. A topic named twice counts once."""

    topics: tuple[str, ...]
    instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    """What it held when it joined: `ownedPartitions` of a subscription of v1 or later (KIP-429), in its order."""
    generation: int = NO_GENERATION
    """The generation that `owned` was assigned in: `generationId` of a subscription of v2 or later (KIP-792) unless
    negative, else what its user data tell (`sticky.decode_user_data`)."""
    rack: str | None = None
    """`client.rack` (v3, KIP-881). No assignor here uses it: that needs the racks of all replicas, which our metadata
    do not hold."""


Assignment = dict[str, list[TopicPartition]]
"""The partitions of each member, by member id; members without any have an empty list."""

Assignor = Callable[[Mapping[str, GroupMember], Mapping[str, TopicInfo]], Assignment]
"""`assign(members, topics)`. `topics` holds those that exist; of a subscribed topic that is absent nobody gets any."""


def java_order(text: str) -> bytes:
    """A key that sorts as Java's `String.compareTo` does: by UTF-16 code units, not by code points."""
    return text.encode("utf-16-be", "surrogatepass")


def subscribed(members: Mapping[str, GroupMember], topics: Mapping[str, TopicInfo]) -> list[str]:
    """The topics that exist and have a subscriber, in Java's order of strings."""
    wanted = {topic for member in members.values() for topic in member.topics}
    return sorted(wanted & topics.keys(), key=java_order)
