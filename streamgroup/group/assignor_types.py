"""The arguments and the result of an assignor, and the order of strings, for `assignors.py` and `sticky.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from streamgroup.frozen import frozen
from streamgroup.model import TopicInfo, TopicPartition

NO_GENERATION = -1
"""The generation of a member that is new, or whose client sends none."""


@frozen
class GroupMember:
    """A member as described in its JoinGroup. A topic named twice counts once."""

    topics: tuple[str, ...]
    instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    """The partitions that the member owned when it joined: `ownedPartitions` of a subscription from v1 (KIP-429), in
    order."""
    generation: int = NO_GENERATION
    """The generation of `owned`: `generationId` of a subscription from v2 (KIP-792), or if that is negative the one in
    its user data (`sticky.decode_user_data`)."""
    rack: str | None = None
    """`client.rack` (v3, KIP-881). No assignor uses it: our metadata has no racks of replicas."""
    weight: int = 1
    """`group.member.weight` of a member of streamgroup."""


Assignment = dict[str, list[TopicPartition]]
"""The partitions of each member, by member id; members without any have an empty list."""

Assignor = Callable[[Mapping[str, GroupMember], Mapping[str, TopicInfo]], Assignment]
"""`assign(members, topics)`; `topics` has the topics that exist. Other subscribed topics have no partitions."""


def java_order(text: str) -> bytes:
    """Return a key that sorts as Java's `String.compareTo`: by UTF-16 code units, not by code points as Python."""
    return text.encode("utf-16-be", "surrogatepass")


def subscribed(members: Mapping[str, GroupMember], topics: Mapping[str, TopicInfo]) -> list[str]:
    """Return the topics that exist and have a subscriber, in Java's order of strings."""
    wanted = {topic for member in members.values() for topic in member.topics}
    return sorted(wanted & topics.keys(), key=java_order)
