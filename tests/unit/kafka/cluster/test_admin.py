from typing import Any

import pytest

from streamgroup.errors import AuthorizationError, BrokerError, TransportError
from streamgroup.kafka.cluster.admin import committed, describe_groups, list_groups, list_groups_once, listing_of
from streamgroup.kafka.net.poller import Event, Poller, ResponseReceived
from streamgroup.kafka.wire.consumer import (
    ConsumerAssignment,
    ConsumerSubscription,
    by_topic,
    encode_assignment,
    encode_subscription,
)
from streamgroup.kafka.wire.messages.admin import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from streamgroup.kafka.wire.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from streamgroup.model import (
    CommittedOffset,
    GroupDescription,
    GroupListing,
    GroupState,
    MemberDescription,
    TopicPartition,
)
from tests.clock import Clock
from tests.fakes.broker import CLOSE, SILENCE
from tests.unit.kafka.cluster.conftest import Make
from tests.waiting import soon


def fetched(*offsets: tuple[int, int], group_error: int = 0, error: int = 0) -> OffsetFetchResponse:
    """The commits of group g for (partition, offset) of `orders`."""
    partitions = tuple(
        OffsetFetchResponsePartitions(partition_index=p, committed_offset=o, metadata="m", error_code=error)
        for p, o in offsets
    )
    topics = (OffsetFetchResponseTopics(name="orders", partitions=partitions),)
    return OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=group_error),))


def test_commits_are_asked_for_as_stable_ones_and_partitions_without_are_absent(make: Make) -> None:
    brokers = make()
    brokers.answer(1, OffsetFetchRequest, fetched((0, 42), (1, -1)))
    found = committed(brokers.cluster, "g", soon())
    assert found == {TopicPartition("orders", 0): CommittedOffset(42, "m")}
    (request,) = brokers.brokers[1].asked("OffsetFetch")
    assert request.require_stable
    assert request.groups[0].topics is None


def test_unstable_commits_are_read_where_that_is_asked_for(make: Make) -> None:
    brokers = make()
    brokers.answer(1, OffsetFetchRequest, fetched((0, 42)))
    committed(brokers.cluster, "g", soon(), stable=False)
    assert not brokers.brokers[1].asked("OffsetFetch")[0].require_stable


def test_pending_transactions_are_waited_for(make: Make) -> None:
    brokers = make()
    brokers.answer(1, OffsetFetchRequest, fetched((0, -1), error=88), fetched((0, 7)))
    assert committed(brokers.cluster, "g", soon())[TopicPartition("orders", 0)].offset == 7


def test_brokers_that_know_one_group_at_a_time_are_asked_so(make: Make) -> None:
    brokers = make(offsetfetch=(1, 5))
    row = OffsetFetchResponsePartition(partition_index=3, committed_offset=9, metadata="")
    brokers.answer(
        1,
        OffsetFetchRequest,
        OffsetFetchResponse(topics=(OffsetFetchResponseTopic(name="orders", partitions=(row,)),)),
    )
    assert committed(brokers.cluster, "g", soon()) == {TopicPartition("orders", 3): CommittedOffset(9)}
    assert brokers.brokers[1].asked("OffsetFetch")[0].group_id == "g"


@pytest.mark.parametrize("trouble", [fetched(group_error=16), CLOSE], ids=["not the coordinator", "gone"])
def test_a_coordinator_that_moved_is_found_again(trouble: Any, make: Make) -> None:
    brokers = make(count=2)

    def moves() -> Any:
        brokers.coordinator = 2
        return trouble

    brokers.answer(1, OffsetFetchRequest, moves)
    brokers.answer(2, OffsetFetchRequest, fetched((0, 5)))
    assert committed(brokers.cluster, "g", soon())[TopicPartition("orders", 0)].offset == 5


@pytest.mark.parametrize("code", [-1, 8, 69, 140])
def test_a_coordinator_that_fails_in_passing_is_asked_again(code: int, make: Make) -> None:
    brokers = make()
    answers = [fetched(group_error=code), fetched((0, 5))]
    brokers.answer(1, OffsetFetchRequest, lambda: answers.pop(0))
    assert committed(brokers.cluster, "g", soon())[TopicPartition("orders", 0)].offset == 5
    assert answers == []


def test_commits_that_may_not_be_read_are_an_error_with_the_group(make: Make) -> None:
    brokers = make()
    brokers.answer(1, OffsetFetchRequest, fetched(group_error=30))
    with pytest.raises(
        BrokerError, match="cannot fetch the committed offsets of group 'g': GROUP_AUTHORIZATION_FAILED"
    ):
        committed(brokers.cluster, "g", soon())


def test_a_coordinator_that_never_has_loaded_is_an_error_at_the_deadline(make: Make) -> None:
    clock = Clock()
    brokers = make(clock=clock)
    brokers.answer(1, OffsetFetchRequest, clock.before(5, fetched(group_error=14)))
    with pytest.raises(TransportError, match=r"OffsetFetch of group 'g' .*COORDINATOR_LOAD_IN_PROGRESS"):
        committed(brokers.cluster, "g", clock.now + 30)


def test_groups_of_all_brokers_are_listed(make: Make) -> None:
    brokers = make(count=2)
    one, two = ListedGroup(group_id="a", protocol_type="consumer"), ListedGroup(group_id="b", protocol_type="")
    brokers.answer(
        1, ListGroupsRequest, ListGroupsResponse(error_code=15, groups=()), ListGroupsResponse(groups=(one,))
    )
    brokers.answer(2, ListGroupsRequest, ListGroupsResponse(groups=(two,)))
    assert list_groups(brokers.cluster, soon()) == {"a": GroupListing("a", "consumer"), "b": GroupListing("b")}


def test_groups_of_the_brokers_that_answer_are_listed_once_with_the_causes_of_missing_ones(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, wait = Clock(), Poller.wait
    brokers = make(count=3, clock=clock)
    one = ListedGroup(group_id="a", protocol_type="consumer")
    brokers.answer(1, ListGroupsRequest, ListGroupsResponse(groups=(one,)))
    brokers.answer(2, ListGroupsRequest, ListGroupsResponse(error_code=15, groups=()))
    brokers.answer(3, ListGroupsRequest, SILENCE)

    def wait_and_let_time_pass(poller: Poller, timeout: float | None) -> list[Event]:
        """The timeout is over when two brokers have answered, however long that really takes."""
        events = wait(poller, timeout)
        listings = [e for e in events if isinstance(e, ResponseReceived) and isinstance(e.response, ListGroupsResponse)]
        clock.now += len(listings)
        return events

    monkeypatch.setattr(Poller, "wait", wait_and_let_time_pass)
    listed, causes = list_groups_once(brokers.cluster, clock.now + 20, timeout=2.0, epoch=1)
    assert listed == {"a": GroupListing("a", "consumer")}
    assert [cause for cause in causes if "COORDINATOR_NOT_AVAILABLE" in cause] == [
        "cannot list the groups of broker 2: COORDINATOR_NOT_AVAILABLE"
    ]
    assert len(causes) == 2


def test_the_coordinator_of_a_group_is_asked_for_its_listing(make: Make) -> None:
    brokers = make(count=2)
    brokers.coordinator = 2
    other = ListedGroup(group_id="other")
    listed = ListedGroup(group_id="g", protocol_type="consumer", group_state="Stable", group_type="consumer")
    brokers.answer(
        2,
        ListGroupsRequest,
        ListGroupsResponse(error_code=14, groups=()),
        ListGroupsResponse(groups=(other, listed)),
        ListGroupsResponse(groups=(other,)),
    )
    assert listing_of(brokers.cluster, "g", soon()) == GroupListing("g", "consumer", "Stable")
    assert listing_of(brokers.cluster, "g", soon()) is None


def test_a_user_who_may_not_list_groups_is_told_so(make: Make) -> None:
    brokers = make()
    brokers.answer(1, ListGroupsRequest, ListGroupsResponse(error_code=31, groups=()))
    with pytest.raises(AuthorizationError, match="cannot list the groups of broker 1"):
        list_groups_once(brokers.cluster, soon(), timeout=5.0, epoch=1)


@pytest.mark.parametrize("code", [0, 69])
def test_a_group_that_does_not_exist_is_dead(code: int, make: Make) -> None:
    brokers = make()
    dead = DescribedGroup(error_code=code, group_id="g", group_state="Dead")
    brokers.answer(1, DescribeGroupsRequest, DescribeGroupsResponse(groups=(dead,)))
    found = describe_groups(brokers.cluster, ["g"], soon())["g"]
    assert found == GroupDescription("g", GroupState.DEAD)


def test_a_description_tells_what_members_subscribe_to_tell_and_hold(make: Make) -> None:
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)
    metadata = encode_subscription(ConsumerSubscription(topics=("t", "u"), user_data=b"told"))
    assignment = encode_assignment(ConsumerAssignment(assigned_partitions=by_topic([one, zero])))
    members = (
        DescribedGroupMember(
            member_id="m",
            group_instance_id="node-1",
            client_id="c",
            client_host="/h",
            member_metadata=metadata,
            member_assignment=assignment,
        ),
        DescribedGroupMember(member_id="joins", member_metadata=b"", member_assignment=b""),
        DescribedGroupMember(member_id="strange", member_metadata=b"\0", member_assignment=b"\0\1\xff"),
    )
    group = DescribedGroup(
        group_id="g", group_state="Stable", protocol_type="consumer", protocol_data="range", members=members
    )
    brokers = make()
    brokers.answer(1, DescribeGroupsRequest, DescribeGroupsResponse(groups=(group,)))
    assert describe_groups(brokers.cluster, ["g"], soon())["g"] == GroupDescription(
        "g",
        GroupState.STABLE,
        "consumer",
        "range",
        (
            MemberDescription(
                "m", "c", "/h", "node-1", ("t", "u"), b"told", (TopicPartition("t", 0), TopicPartition("t", 1))
            ),
            MemberDescription("joins"),
            MemberDescription("strange", assigned=None),
        ),
    )
