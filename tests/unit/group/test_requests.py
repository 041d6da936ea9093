"""The subscription of a member in JoinGroup, for the leader."""

from __future__ import annotations

from streamgroup.group.requests import JoinSubscription, join_group
from streamgroup.group.timing import MemberConfig
from streamgroup.kafka.wire.consumer import ConsumerSubscription, by_topic, decode_subscription
from streamgroup.kafka.wire.messages.group import JoinGroupRequest
from streamgroup.model import TopicPartition

A, B = TopicPartition("t", 1), TopicPartition("u", 0)
HELD = JoinSubscription(("t", "u"), b"lineage", (B, A), 7)


def metadata(subscription: JoinSubscription, *strategies: str) -> dict[str, bytes]:
    request: JoinGroupRequest = join_group(MemberConfig("g", strategies=strategies), "me", subscription, "why")(9)
    return {protocol.name: bytes(protocol.metadata) for protocol in request.protocols}


def test_a_cooperative_member_tells_what_it_holds_and_since_when() -> None:
    """KIP-429, KIP-792; in the user data once more the generation, for Java's leaders before 3.4, then who it is."""
    told = decode_subscription(metadata(HELD, "cooperative-sticky")["cooperative-sticky"])
    assert told == ConsumerSubscription(
        topics=("t", "u"), user_data=b"\0\0\0\7lineage", owned_partitions=by_topic([A, B]), generation_id=7
    )


def test_strategies_side_by_side_each_have_user_data_of_their_own() -> None:
    both = metadata(JoinSubscription(("t",), b"lineage"), "cooperative-sticky", "range")
    user_data = {name: bytes(decode_subscription(data).user_data or b"") for name, data in both.items()}
    assert user_data == {"cooperative-sticky": b"\xff\xff\xff\xfflineage", "range": b"lineage"}


def test_nothing_to_tell_is_no_user_data() -> None:
    assert decode_subscription(metadata(JoinSubscription(("t",)), "range")["range"]) == ConsumerSubscription(
        topics=("t",)
    )
