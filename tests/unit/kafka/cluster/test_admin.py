"""Groups, their commits, and configurations: requests of tools to scripted brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamgroup.errors import AuthorizationError, BrokerError, TransportError, UnsupportedVersionError, error_of
from streamgroup.kafka.cluster.admin import committed, describe_groups, list_groups, list_groups_once, listing_of
from streamgroup.kafka.cluster.configs import TopicConfig, broker_config, topic_configs
from streamgroup.kafka.cluster.kafka import KafkaCluster
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
from streamgroup.kafka.wire.messages.coordinator import FindCoordinatorResponse
from streamgroup.kafka.wire.messages.offsets import (
    NO_METADATA,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from streamgroup.kafka.wire.messages.topics import (
    BROKER,
    TOPIC,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from streamgroup.model import (
    CommittedOffset,
    GroupDescription,
    GroupListing,
    GroupState,
    MemberDescription,
    TopicPartition,
)
from streamgroup.options.types import ClientOptions
from tests.clock import Clock
from tests.fakes.answers import metadata, topic
from tests.fakes.broker import CLOSE, SILENCE, FakeBroker
from tests.fakes.offsets import zookeepers_answer
from tests.fakes.old_broker import old_broker
from tests.unit.kafka.cluster.conftest import Make
from tests.unit.kafka.cluster.test_kafka import first_then
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


# -- configurations ---------------------------------------------------------------------------------------------------

FACTOR = "offsets.topic.replication.factor"


def described(
    *configs: DescribeConfigsResourceResult, code: int = 0, kind: int = BROKER, name: str = "2"
) -> DescribeConfigsResponse:
    result = DescribeConfigsResult(error_code=code, resource_type=kind, resource_name=name, configs=configs)
    return DescribeConfigsResponse(results=(result,))


def test_a_broker_describes_itself(make: Make) -> None:
    brokers = make(2)
    brokers.answer(2, DescribeConfigsRequest, described(DescribeConfigsResourceResult(name=FACTOR, value="3")))
    assert broker_config(brokers.cluster, 2, FACTOR, soon()) == "3"
    (request,) = brokers.brokers[2].asked("DescribeConfigs")
    assert request.resources == (
        DescribeConfigsResource(resource_type=BROKER, resource_name="2", configuration_keys=(FACTOR,)),
    )


@pytest.mark.parametrize("configs", [(), (DescribeConfigsResourceResult(name=FACTOR, value=None),)])
def test_a_configuration_that_a_broker_lacks_or_keeps_secret_has_no_value(
    configs: tuple[DescribeConfigsResourceResult, ...], make: Make
) -> None:
    brokers = make()
    brokers.answer(1, DescribeConfigsRequest, described(*configs))
    assert broker_config(brokers.cluster, 1, FACTOR, soon()) is None


@pytest.mark.parametrize(
    ("code", "error", "says"),
    [
        (31, AuthorizationError, r"not allowed the operation DescribeConfigs on the cluster\."),
        (42, BrokerError, "cannot describe the configuration of broker '2'"),
    ],
)
def test_a_refusal_names_the_permission_or_the_resource(
    code: int, error: type[Exception], says: str, make: Make
) -> None:
    brokers = make()
    brokers.answer(1, DescribeConfigsRequest, described(code=code))
    with pytest.raises(error, match=says):
        broker_config(brokers.cluster, 1, FACTOR, soon())


def test_brokers_before_0_11_describe_nothing(make: Make) -> None:
    with pytest.raises(UnsupportedVersionError, match="DescribeConfigs"):
        broker_config(make(without={DescribeConfigsRequest}).cluster, 1, FACTOR, soon())


def test_a_topic_that_a_broker_does_not_know_yet_is_asked_for_again(make: Make) -> None:
    brokers = make()
    own = DescribeConfigsResourceResult(name="retention.ms", value="1", config_source=1)
    default = DescribeConfigsResourceResult(name="flush.ms", value="2", config_source=5)
    secret = DescribeConfigsResourceResult(name="secret", value=None, config_source=1)
    brokers.answer(
        1,
        DescribeConfigsRequest,
        described(code=3, kind=TOPIC, name="t"),
        described(own, default, secret, kind=TOPIC, name="t"),
    )
    found = topic_configs(brokers.cluster, ["t"], soon())
    assert found == {"t": {"retention.ms": TopicConfig("1", True), "flush.ms": TopicConfig("2", False)}}


Start = Callable[..., FakeBroker]
Options = Callable[..., ClientOptions]
# -- brokers before 0.10 ----------------------------------------------------------------------------------------------

TP = TopicPartition("orders", 1)
IN_ZOOKEEPER = {TP: CommittedOffset(5)}
IN_KAFKA = {TP: CommittedOffset(7)}


def holding(broker: Start, release: str) -> FakeBroker:
    """A broker of the topic `orders` with two partitions, and a group's commits: v0 are ZooKeeper's."""

    def offsets(request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
        return zookeepers_answer(request, IN_KAFKA if version else IN_ZOOKEEPER)

    found: dict[str, Any] = {
        "Metadata": lambda *_: metadata({1: fake.port}, topic("orders", 1, 1)),
        "OffsetFetch": offsets,
    }
    if release != "0.8.1":
        found["FindCoordinator"] = lambda *_: FindCoordinatorResponse(node_id=1, host="127.0.0.1", port=fake.port)
    fake = old_broker(broker, release, **found)
    return fake


@pytest.mark.parametrize(("release", "in_zookeeper"), [("0.8.1", None), ("0.8.1", True), ("0.8.2", True)])
def test_commits_are_zookeepers_without_group_coordinators_or_where_the_caller_selects_them(
    release: str, in_zookeeper: bool | None, broker: Start, options: Options
) -> None:
    cluster = KafkaCluster(options(holding(broker, release).port))
    assert committed(cluster, "g", soon(), in_zookeeper=in_zookeeper) == {TP: CommittedOffset(5, NO_METADATA)}


def test_commits_in_kafka_cannot_be_asked_of_brokers_that_keep_none(broker: Start, options: Options) -> None:
    cluster = KafkaCluster(options(holding(broker, "0.8.1").port))
    with pytest.raises(UnsupportedVersionError, match=r"FindCoordinator .*\(Kafka 0\.8\.1\) does not have it"):
        committed(cluster, "g", soon(), in_zookeeper=False)


def test_groups_of_0_8_cannot_be_listed_by_its_brokers(broker: Start, options: Options) -> None:
    cluster = KafkaCluster(options(holding(broker, "0.8.2").port))
    with pytest.raises(UnsupportedVersionError, match=r"ListGroups .*\(Kafka 0\.8\.2\)"):
        list_groups(cluster, soon())
    with pytest.raises(UnsupportedVersionError, match=r"DescribeGroups .*\(Kafka 0\.8\.2\)"):
        describe_groups(cluster, ["g"], soon())


def keeper(broker: Start, **handlers: Any) -> FakeBroker:
    """A broker of 0.9 that coordinates every group."""
    fake: FakeBroker = old_broker(
        broker,
        "0.9",
        Metadata=lambda *_: metadata({1: fake.port}),
        FindCoordinator=lambda *_: FindCoordinatorResponse(node_id=1, host="127.0.0.1", port=fake.port),
        **handlers,
    )
    return fake


ONE = ListedGroup(group_id="g", protocol_type="consumer")


def test_a_list_of_groups_waits_for_its_coordinators(broker: Start, options: Options) -> None:
    # The first answer is that to the probe of the handshake.
    answers = [ListGroupsResponse(), ListGroupsResponse(error_code=15), ListGroupsResponse(groups=(ONE,))]
    fake = keeper(broker, ListGroups=lambda *_: answers.pop(0) if len(answers) > 1 else answers[0])
    assert list_groups(KafkaCluster(options(fake.port)), soon()) == {"g": GroupListing("g", "consumer")}


def test_a_list_of_groups_that_is_forbidden_is_an_error_with_the_broker(broker: Start, options: Options) -> None:
    fake = keeper(broker, ListGroups=lambda *_: ListGroupsResponse(error_code=29))
    with pytest.raises(BrokerError, match="the groups of broker 1: TOPIC_AUTHORIZATION_FAILED"):
        list_groups(KafkaCluster(options(fake.port)), soon())


STABLE = DescribedGroup(error_code=0, group_id="g", group_state="Stable", protocol_type="consumer")


def old_description(code: int) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=(DescribedGroup(error_code=code, group_id="g"),))


@pytest.mark.parametrize("code", [14, 15, 16])
def test_a_description_waits_for_its_coordinator(code: int, broker: Start, options: Options) -> None:
    answers = first_then(old_description(code), lambda *_: DescribeGroupsResponse(groups=(STABLE,)))
    fake = keeper(broker, DescribeGroups=answers)
    assert describe_groups(KafkaCluster(options(fake.port)), ["g"], soon()) == {
        "g": GroupDescription("g", "Stable", "consumer")
    }
    assert len(fake.asked("FindCoordinator")) == 2, "it may have moved"


@pytest.mark.parametrize("code", [29, 30])
def test_a_description_that_is_forbidden_is_an_error_with_the_group(code: int, broker: Start, options: Options) -> None:
    fake = keeper(broker, DescribeGroups=lambda *_: old_description(code))
    with pytest.raises(BrokerError, match=f"cannot describe group 'g': {error_of(code).name}"):
        describe_groups(KafkaCluster(options(fake.port)), ["g"], soon())
