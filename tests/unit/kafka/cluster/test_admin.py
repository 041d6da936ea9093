"""Groups, their commits, topics and configurations: requests and changes of an operator to scripted brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamgroup.errors import (
    AuthorizationError,
    BrokerAuthorizationError,
    BrokerError,
    TransportError,
    UnsupportedVersionError,
    error_of,
)
from streamgroup.kafka.cluster.admin import (
    committed,
    describe_any_group,
    describe_consumer_group,
    describe_groups,
    list_groups,
    list_groups_once,
    listing_of,
)
from streamgroup.kafka.cluster.changes import (
    GroupHasMembersError,
    commit_as_admin,
    create_topics,
    delete_group,
    delete_offsets,
    delete_topics,
    grow_topics,
)
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
from streamgroup.kafka.wire.messages import admin, offsets, topics
from streamgroup.kafka.wire.messages.group import FindCoordinatorResponse
from streamgroup.model import (
    CommittedOffset,
    GroupDescription,
    GroupListing,
    GroupState,
    MemberDescription,
    TopicPartition,
)
from tests.clock import Clock
from tests.fakes.answers import metadata, topic
from tests.fakes.broker import CLOSE, SILENCE, FakeBroker
from tests.fakes.offsets import zookeepers_answer
from tests.fakes.old_broker import old_broker
from tests.unit.kafka.cluster.conftest import Brokers, Make, Options, Start
from tests.unit.kafka.net.conftest import script
from tests.waiting import soon


def fetched(*rows: tuple[int, int], group_error: int = 0, error: int = 0) -> offsets.OffsetFetchResponse:
    """The commits of group g for (partition, offset) of `orders`."""
    partitions = tuple(
        offsets.OffsetFetchResponsePartitions(partition_index=p, committed_offset=o, metadata="m", error_code=error)
        for p, o in rows
    )
    orders = offsets.OffsetFetchResponseTopics(name="orders", partitions=partitions)
    return offsets.OffsetFetchResponse(
        groups=(offsets.OffsetFetchResponseGroup(group_id="g", topics=(orders,), error_code=group_error),)
    )


def listed(*groups: str, code: int = 0, **facts: str) -> admin.ListGroupsResponse:
    rows = tuple(admin.ListedGroup(group_id=each, **{"protocol_type": "consumer", **facts}) for each in groups)
    return admin.ListGroupsResponse(error_code=code, groups=rows)


def group(name: str, **facts: Any) -> admin.DescribeGroupsResponse:
    return admin.DescribeGroupsResponse(groups=(admin.DescribedGroup(group_id=name, **facts),))


TOPIC_ID = "9aa68196-23c9-4da3-870e-c3c5405fb8e5"
ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)


def test_commits_are_asked_for_as_stable_ones_and_partitions_without_are_absent(brokers: Brokers) -> None:
    brokers.answer(1, offsets.OffsetFetchRequest, fetched((0, 42), (1, -1)))
    found = committed(brokers.cluster, "g", soon())
    assert found == {TopicPartition("orders", 0): CommittedOffset(42, "m")}
    committed(brokers.cluster, "g", soon(), stable=False)
    stable, unstable = brokers.brokers[1].asked("OffsetFetch")
    assert (stable.require_stable, unstable.require_stable) == (True, False)
    assert stable.groups[0].topics is None


def test_pending_transactions_are_waited_for(brokers: Brokers) -> None:
    brokers.answer(1, offsets.OffsetFetchRequest, fetched((0, -1), error=88), fetched((0, 7)))
    assert committed(brokers.cluster, "g", soon())[TopicPartition("orders", 0)].offset == 7


def test_brokers_that_know_one_group_at_a_time_are_asked_so(make: Make) -> None:
    brokers = make(offsetfetch=(1, 5))
    row = offsets.OffsetFetchResponsePartition(partition_index=3, committed_offset=9, metadata="")
    orders = offsets.OffsetFetchResponseTopic(name="orders", partitions=(row,))
    brokers.answer(1, offsets.OffsetFetchRequest, offsets.OffsetFetchResponse(topics=(orders,)))
    assert committed(brokers.cluster, "g", soon()) == {TopicPartition("orders", 3): CommittedOffset(9)}
    assert brokers.brokers[1].asked("OffsetFetch")[0].group_id == "g"


@pytest.mark.parametrize("trouble", [fetched(group_error=16), CLOSE], ids=["not the coordinator", "gone"])
def test_a_coordinator_that_moved_is_found_again(trouble: Any, make: Make) -> None:
    brokers = make(count=2)

    def moves(_: Any) -> Any:
        brokers.coordinator = 2
        return trouble

    brokers.answer(1, offsets.OffsetFetchRequest, moves)
    brokers.answer(2, offsets.OffsetFetchRequest, fetched((0, 5)))
    assert committed(brokers.cluster, "g", soon())[TopicPartition("orders", 0)].offset == 5


@pytest.mark.parametrize("code", [-1, 8, 69, 140])
def test_a_coordinator_that_fails_in_passing_is_asked_again(code: int, brokers: Brokers) -> None:
    brokers.answer(1, offsets.OffsetFetchRequest, fetched(group_error=code), fetched((0, 5)))
    assert committed(brokers.cluster, "g", soon())[TopicPartition("orders", 0)].offset == 5
    assert len(brokers.brokers[1].asked("OffsetFetch")) == 2


def test_commits_that_may_not_be_read_are_an_error_with_the_group(brokers: Brokers) -> None:
    brokers.answer(1, offsets.OffsetFetchRequest, fetched(group_error=30))
    with pytest.raises(
        BrokerError, match="cannot fetch the committed offsets of group 'g': GROUP_AUTHORIZATION_FAILED"
    ):
        committed(brokers.cluster, "g", soon())


def test_a_coordinator_that_never_has_loaded_is_an_error_at_the_deadline(make: Make) -> None:
    clock = Clock()
    brokers = make(clock=clock)
    brokers.answer(1, offsets.OffsetFetchRequest, clock.before(5, fetched(group_error=14)))
    with pytest.raises(TransportError, match=r"OffsetFetch response for group 'g' .*COORDINATOR_LOAD_IN_PROGRESS"):
        committed(brokers.cluster, "g", clock.now + 30)


def test_groups_of_all_brokers_are_listed(make: Make) -> None:
    brokers = make(count=2)
    brokers.answer(1, admin.ListGroupsRequest, listed(code=15), listed("a"))
    brokers.answer(2, admin.ListGroupsRequest, listed("b", protocol_type=""))
    assert list_groups(brokers.cluster, soon()) == {"a": GroupListing("a", "consumer"), "b": GroupListing("b")}


def test_groups_of_the_brokers_that_answer_are_listed_once_with_the_causes_of_missing_ones(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, wait = Clock(), Poller.wait
    brokers = make(count=3, clock=clock)
    brokers.answer(1, admin.ListGroupsRequest, listed("a"))
    brokers.answer(2, admin.ListGroupsRequest, listed(code=15))
    brokers.answer(3, admin.ListGroupsRequest, SILENCE)

    def wait_and_let_time_pass(poller: Poller, timeout: float | None) -> list[Event]:
        """The timeout is over when two brokers have answered, however long that really takes."""
        events = wait(poller, timeout)
        responses = [event.response for event in events if isinstance(event, ResponseReceived)]
        clock.now += sum(isinstance(each, admin.ListGroupsResponse) for each in responses)
        return events

    monkeypatch.setattr(Poller, "wait", wait_and_let_time_pass)
    found, causes = list_groups_once(brokers.cluster, clock.now + 20, timeout=2.0, epoch=1)
    assert found == {"a": GroupListing("a", "consumer")}
    assert "cannot list the groups of broker 2: COORDINATOR_NOT_AVAILABLE" in causes
    assert len(causes) == 2
    assert sum("COORDINATOR_NOT_AVAILABLE" in cause for cause in causes) == 1


def test_the_coordinator_of_a_group_is_asked_for_its_listing(make: Make) -> None:
    brokers = make(count=2)
    brokers.coordinator = 2
    both = listed("other", "g", group_state="Stable", group_type="consumer")
    brokers.answer(2, admin.ListGroupsRequest, listed(code=14), both, listed("other"))
    assert listing_of(brokers.cluster, "g", soon()) == GroupListing("g", "consumer", "Stable", "consumer")
    assert listing_of(brokers.cluster, "g", soon()) is None


def test_a_user_who_may_not_list_groups_is_told_so(brokers: Brokers) -> None:
    brokers.answer(1, admin.ListGroupsRequest, listed(code=31))
    with pytest.raises(AuthorizationError, match="cannot list the groups of broker 1"):
        list_groups_once(brokers.cluster, soon(), timeout=5.0, epoch=1)


@pytest.mark.parametrize("code", [0, 69])
def test_a_group_that_does_not_exist_is_dead(code: int, brokers: Brokers) -> None:
    brokers.answer(1, admin.DescribeGroupsRequest, group("g", error_code=code, group_state="Dead"))
    assert describe_groups(brokers.cluster, ["g"], soon()) == {"g": GroupDescription("g", GroupState.DEAD)}


def test_a_description_tells_what_members_subscribe_to_tell_and_hold(brokers: Brokers) -> None:
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)
    metadata = encode_subscription(ConsumerSubscription(topics=("t", "u"), user_data=b"told"))
    assignment = encode_assignment(ConsumerAssignment(assigned_partitions=by_topic([one, zero])))
    members = (
        admin.DescribedGroupMember(
            member_id="m",
            group_instance_id="node-1",
            client_id="c",
            client_host="/h",
            member_metadata=metadata,
            member_assignment=assignment,
        ),
        admin.DescribedGroupMember(member_id="joins", member_metadata=b"", member_assignment=b""),
        admin.DescribedGroupMember(member_id="strange", member_metadata=b"\0", member_assignment=b"\0\1\xff"),
    )
    stable = group("g", group_state="Stable", protocol_type="consumer", protocol_data="range", members=members)
    brokers.answer(1, admin.DescribeGroupsRequest, stable)
    assert describe_groups(brokers.cluster, ["g"], soon())["g"] == GroupDescription(
        "g",
        GroupState.STABLE,
        "consumer",
        "range",
        (
            MemberDescription("m", "c", "/h", "node-1", ("t", "u"), b"told", (zero, one)),
            MemberDescription("joins"),
            MemberDescription("strange", assigned=None),
        ),
    )


def consumer_group(**facts: Any) -> admin.ConsumerGroupDescribeResponse:
    return admin.ConsumerGroupDescribeResponse(groups=(admin.DescribedConsumerGroup(group_id="g", **facts),))


def test_a_group_of_kip_848_has_members_with_topics_and_partitions(brokers: Brokers) -> None:
    rows, target = (
        admin.ConsumerGroupAssignment(
            topic_partitions=tuple(
                admin.ConsumerGroupTopicPartitions(topic_id=TOPIC_ID, topic_name=name, partitions=(1, 0)) for name in of
            )
        )
        for of in ("ut", "t")
    )
    member = admin.ConsumerGroupMember(
        member_id="m",
        instance_id="node-1",
        client_id="c",
        client_host="/h",
        subscribed_topic_names=("t", "u"),
        member_epoch=7,
        member_type=1,
        assignment=rows,
        target_assignment=target,
    )
    classic = admin.ConsumerGroupMember(member_id="java", member_type=0)
    refused = consumer_group(error_code=16)
    described = consumer_group(group_state="Stable", group_epoch=8, assignor_name="uniform", members=(member, classic))
    brokers.answer(1, admin.ConsumerGroupDescribeRequest, refused, described)
    found = describe_consumer_group(brokers.cluster, "g", soon())
    assigned = tuple(TopicPartition(name, partition) for name in "tu" for partition in (0, 1))
    assert found == GroupDescription(
        "g",
        GroupState.STABLE,
        "consumer",
        "uniform",
        (
            MemberDescription("m", "c", "/h", "node-1", ("t", "u"), assigned=assigned, epoch=7, target=assigned[:2]),
            MemberDescription("java", epoch=0, target=(), hides_user_data=True),
        ),
        epoch=8,
    )


def test_a_group_of_another_protocol_is_dead_to_the_description_of_kip_848(brokers: Brokers) -> None:
    brokers.answer(1, admin.ConsumerGroupDescribeRequest, consumer_group(error_code=69))
    assert describe_consumer_group(brokers.cluster, "g", soon()) == GroupDescription("g", GroupState.DEAD)


@pytest.mark.parametrize(("code", "says"), [(29, "Describe on a topic.*--topic ..."), (30, "Describe on group 'g'")])
def test_a_description_that_is_refused_names_the_group_or_that_a_topic_is_missing(
    code: int, says: str, brokers: Brokers
) -> None:
    brokers.answer(1, admin.ConsumerGroupDescribeRequest, consumer_group(error_code=code))
    with pytest.raises(BrokerAuthorizationError, match=says):
        describe_consumer_group(brokers.cluster, "g", soon())


def test_a_group_is_described_by_the_api_of_its_protocol(brokers: Brokers) -> None:
    dead = admin.DescribeGroupsResponse(groups=(admin.DescribedGroup(group_id="g", group_state="Dead"),))
    stable = admin.DescribeGroupsResponse(groups=(admin.DescribedGroup(group_id="g", group_state="Stable"),))
    brokers.answer(1, admin.DescribeGroupsRequest, dead, stable)
    brokers.answer(1, admin.ConsumerGroupDescribeRequest, consumer_group(group_state="Assigning"))
    assert describe_any_group(brokers.cluster, "g", soon()).state == GroupState.ASSIGNING
    assert describe_any_group(brokers.cluster, "g", soon()).state == GroupState.STABLE
    brokers.answer(1, admin.DescribeGroupsRequest, dead)
    brokers.answer(1, admin.ConsumerGroupDescribeRequest, consumer_group(error_code=35))
    assert describe_any_group(brokers.cluster, "g", soon()).state == GroupState.DEAD, "the protocol is switched off"


# -- configurations ---------------------------------------------------------------------------------------------------

FACTOR = "offsets.topic.replication.factor"


def described(
    *configs: topics.DescribeConfigsResourceResult, code: int = 0, kind: int = topics.BROKER, name: str = "2"
) -> topics.DescribeConfigsResponse:
    result = topics.DescribeConfigsResult(error_code=code, resource_type=kind, resource_name=name, configs=configs)
    return topics.DescribeConfigsResponse(results=(result,))


def test_a_broker_describes_itself(make: Make) -> None:
    brokers = make(2)
    brokers.answer(
        2, topics.DescribeConfigsRequest, described(topics.DescribeConfigsResourceResult(name=FACTOR, value="3"))
    )
    assert broker_config(brokers.cluster, 2, FACTOR, soon()) == "3"
    (request,) = brokers.brokers[2].asked("DescribeConfigs")
    assert request.resources == (
        topics.DescribeConfigsResource(resource_type=topics.BROKER, resource_name="2", configuration_keys=(FACTOR,)),
    )


@pytest.mark.parametrize("configs", [(), (topics.DescribeConfigsResourceResult(name=FACTOR, value=None),)])
def test_a_configuration_that_a_broker_lacks_or_keeps_secret_has_no_value(
    configs: tuple[topics.DescribeConfigsResourceResult, ...], brokers: Brokers
) -> None:
    brokers.answer(1, topics.DescribeConfigsRequest, described(*configs))
    assert broker_config(brokers.cluster, 1, FACTOR, soon()) is None


@pytest.mark.parametrize(
    ("code", "error", "says"),
    [
        (31, AuthorizationError, r"not allowed the operation DescribeConfigs on the cluster\."),
        (42, BrokerError, "cannot describe the configuration of broker '2'"),
    ],
)
def test_a_refusal_names_permission_or_resource(code: int, error: type[Exception], says: str, brokers: Brokers) -> None:
    brokers.answer(1, topics.DescribeConfigsRequest, described(code=code))
    with pytest.raises(error, match=says):
        broker_config(brokers.cluster, 1, FACTOR, soon())


def test_brokers_before_0_11_describe_nothing(make: Make) -> None:
    with pytest.raises(UnsupportedVersionError, match="DescribeConfigs"):
        broker_config(make(without={topics.DescribeConfigsRequest}).cluster, 1, FACTOR, soon())


def test_a_topic_that_a_broker_does_not_know_yet_is_asked_for_again(brokers: Brokers) -> None:
    own = topics.DescribeConfigsResourceResult(name="retention.ms", value="1", config_source=1)
    default = topics.DescribeConfigsResourceResult(name="flush.ms", value="2", config_source=5)
    secret = topics.DescribeConfigsResourceResult(name="secret", value=None, config_source=1)
    brokers.answer(
        1,
        topics.DescribeConfigsRequest,
        described(code=3, kind=topics.TOPIC, name="t"),
        described(own, default, secret, kind=topics.TOPIC, name="t"),
    )
    found = topic_configs(brokers.cluster, ["t"], soon())
    assert found == {"t": {"retention.ms": TopicConfig("1", True), "flush.ms": TopicConfig("2", False)}}


# -- brokers before 0.10 ----------------------------------------------------------------------------------------------

TP = TopicPartition("orders", 1)
IN_ZOOKEEPER = {TP: CommittedOffset(5)}
IN_KAFKA = {TP: CommittedOffset(7)}
Old = Callable[..., tuple[FakeBroker, KafkaCluster]]


@pytest.fixture
def old(broker: Start, options: Options) -> Old:
    """Starts a broker of a release before 0.10, and its cluster. It has commits of all groups: v0 are ZooKeeper's."""

    def commits(request: offsets.OffsetFetchRequest, version: int) -> offsets.OffsetFetchResponse:
        return zookeepers_answer(request, IN_KAFKA if version else IN_ZOOKEEPER)

    def start(release: str = "0.9", **handlers: Any) -> tuple[FakeBroker, KafkaCluster]:
        handlers |= {"Metadata": lambda *_: metadata({1: fake.port}, topic("orders", 1, 1)), "OffsetFetch": commits}
        if release != "0.8.1":
            found = {"node_id": 1, "host": "127.0.0.1"}
            handlers["FindCoordinator"] = lambda *_: FindCoordinatorResponse(port=fake.port, **found)
        fake = old_broker(broker, release, **handlers)
        return fake, KafkaCluster(options(fake.port))

    return start


@pytest.mark.parametrize(("release", "in_zookeeper"), [("0.8.1", None), ("0.8.1", True), ("0.8.2", True)])
def test_commits_are_zookeepers_without_group_coordinators_or_where_the_caller_selects_them(
    release: str, in_zookeeper: bool | None, old: Old
) -> None:
    _, cluster = old(release)
    assert committed(cluster, "g", soon(), in_zookeeper=in_zookeeper) == {TP: CommittedOffset(5, offsets.NO_METADATA)}


def test_commits_in_kafka_cannot_be_asked_of_brokers_that_keep_none(old: Old) -> None:
    _, cluster = old("0.8.1")
    with pytest.raises(UnsupportedVersionError, match=r"FindCoordinator .*\(Kafka 0\.8\.1\) does not have it"):
        committed(cluster, "g", soon(), in_zookeeper=False)


def test_groups_of_0_8_cannot_be_listed_by_its_brokers(old: Old) -> None:
    _, cluster = old("0.8.2")
    with pytest.raises(UnsupportedVersionError, match=r"ListGroups .*\(Kafka 0\.8\.2\)"):
        list_groups(cluster, soon())
    with pytest.raises(UnsupportedVersionError, match=r"DescribeGroups .*\(Kafka 0\.8\.2\)"):
        describe_groups(cluster, ["g"], soon())


def test_a_list_of_groups_waits_for_its_coordinators(old: Old) -> None:
    # The first answer is that to the probe of the handshake.
    _, cluster = old(ListGroups=script(listed(), listed(code=15), listed("g")))
    assert list_groups(cluster, soon()) == {"g": GroupListing("g", "consumer")}


def test_a_list_of_groups_that_is_forbidden_is_an_error_with_the_broker(old: Old) -> None:
    _, cluster = old(ListGroups=script(listed(code=29)))
    with pytest.raises(BrokerError, match="the groups of broker 1: TOPIC_AUTHORIZATION_FAILED"):
        list_groups(cluster, soon())


@pytest.mark.parametrize("code", [14, 15, 16])
def test_a_description_waits_for_its_coordinator(code: int, old: Old) -> None:
    stable = group("g", group_state="Stable", protocol_type="consumer")
    fake, cluster = old(DescribeGroups=script(group("g", error_code=code), stable))
    assert describe_groups(cluster, ["g"], soon()) == {"g": GroupDescription("g", "Stable", "consumer")}
    assert len(fake.asked("FindCoordinator")) == 2, "it may have moved"


@pytest.mark.parametrize("code", [29, 30])
def test_a_description_that_is_forbidden_is_an_error_with_the_group(code: int, old: Old) -> None:
    _, cluster = old(DescribeGroups=script(group("g", error_code=code)))
    with pytest.raises(BrokerError, match=f"cannot describe group 'g': {error_of(code).name}"):
        describe_groups(cluster, ["g"], soon())


def commit_answered(*codes: int) -> offsets.OffsetCommitResponse:
    partitions = tuple(
        offsets.OffsetCommitResponsePartition(partition_index=i, error_code=c) for i, c in enumerate(codes)
    )
    return offsets.OffsetCommitResponse(
        topics=(offsets.OffsetCommitResponseTopic(name="orders", partitions=partitions),)
    )


def deleted(code: int) -> admin.DeleteGroupsResponse:
    return admin.DeleteGroupsResponse(results=(admin.DeletableGroupResult(group_id="g", error_code=code),))


def forgotten(*codes: int, group: int = 0) -> admin.OffsetDeleteResponse:
    partitions = tuple(
        admin.OffsetDeleteResponsePartition(partition_index=i, error_code=c) for i, c in enumerate(codes)
    )
    rows = (admin.OffsetDeleteResponseTopic(name="orders", partitions=partitions),) if codes else ()
    return admin.OffsetDeleteResponse(error_code=group, topics=rows)


def created(code: int, message: str | None = None) -> admin.CreateTopicsResponse:
    return admin.CreateTopicsResponse(
        topics=(admin.CreatableTopicResult(name="new", error_code=code, error_message=message),)
    )


def deleted_topic(code: int) -> topics.DeleteTopicsResponse:
    return topics.DeleteTopicsResponse(responses=(topics.DeletableTopicResult(name="old", error_code=code),))


def grown(code: int, message: str | None = None) -> topics.CreatePartitionsResponse:
    result = topics.CreatePartitionsTopicResult(name="old", error_code=code, error_message=message)
    return topics.CreatePartitionsResponse(results=(result,))


# -- changes that are refused ------------------------------------------------------------------------------------------

CHANGES: dict[type, Callable[[KafkaCluster], Any]] = {
    offsets.OffsetCommitRequest: lambda cluster: commit_as_admin(cluster, "g", {ZERO: 7}, soon()),
    admin.DeleteGroupsRequest: lambda cluster: delete_group(cluster, "g", soon()),
    admin.OffsetDeleteRequest: lambda cluster: delete_offsets(cluster, "g", [ONE, ZERO], soon()),
    admin.CreateTopicsRequest: lambda cluster: create_topics(cluster, {"new": 1}, soon(), replication_factor=3),
    topics.DeleteTopicsRequest: lambda cluster: delete_topics(cluster, ["old"], soon()),
    topics.CreatePartitionsRequest: lambda cluster: grow_topics(cluster, {"old": 2}, soon()),
}


@pytest.mark.parametrize(
    ("request_class", "answer", "error", "says"),
    [
        *(
            (
                offsets.OffsetCommitRequest,
                commit_answered(code),
                GroupHasMembersError,
                "orders-0 for group 'g', which has",
            )
            for code in (22, 25, 27, 68, 113)
        ),
        (offsets.OffsetCommitRequest, commit_answered(29), BrokerAuthorizationError, "--operation Read --topic orders"),
        (offsets.OffsetCommitRequest, commit_answered(30), BrokerAuthorizationError, "--operation Read --group g"),
        (admin.DeleteGroupsRequest, deleted(68), GroupHasMembersError, "cannot delete group 'g'"),
        (admin.DeleteGroupsRequest, deleted(69), BrokerError, "cannot delete group 'g'"),
        (admin.DeleteGroupsRequest, deleted(30), BrokerAuthorizationError, "--operation Delete --group g"),
        (admin.OffsetDeleteRequest, forgotten(group=30), BrokerAuthorizationError, "--operation Delete --group g"),
        (admin.OffsetDeleteRequest, forgotten(29, 29), BrokerAuthorizationError, "--operation Read --topic orders"),
        (
            topics.DeleteTopicsRequest,
            deleted_topic(3),
            BrokerError,
            "cannot delete topic 'old'.*UNKNOWN_TOPIC_OR_PARTITION",
        ),
        (topics.DeleteTopicsRequest, deleted_topic(73), BrokerError, "TOPIC_DELETION_DISABLED"),
        (topics.DeleteTopicsRequest, deleted_topic(29), BrokerAuthorizationError, "--operation Delete --topic old"),
        (admin.CreateTopicsRequest, created(38, "3 copies"), BrokerError, r"cannot create topic 'new' \(3 copies\)"),
        (topics.CreatePartitionsRequest, grown(37, "Has 3."), BrokerError, r"cannot change topic 'old' \(Has 3\.\)"),
    ],
)
def test_a_refused_change_is_an_error_at_once_with_the_cause_or_the_missing_permission(
    request_class: type, answer: Any, error: type[Exception], says: str, brokers: Brokers
) -> None:
    brokers.answer(1, request_class, answer)
    with pytest.raises(error, match=says):
        CHANGES[request_class](brokers.cluster)
    assert len(brokers.brokers[1].asked(request_class.NAME)) == 1, "no retry changes that"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("request_class", "says"),
    [
        (admin.DeleteGroupsRequest, r"Kafka 1\.1 and later .* offsets\.retention\.minutes"),
        (admin.OffsetDeleteRequest, r"Kafka 2\.4 and later"),
        (topics.CreatePartitionsRequest, "CreatePartitions"),
    ],
)
def test_brokers_without_an_api_are_named_with_what_helps(request_class: type, says: str, make: Make) -> None:
    with pytest.raises(UnsupportedVersionError, match=says):
        CHANGES[request_class](make(without=[request_class]).cluster)


# -- groups -----------------------------------------------------------------------------------------------------------


def test_a_commit_from_outside_is_that_of_kafkas_tools(brokers: Brokers) -> None:
    brokers.answer(1, offsets.OffsetCommitRequest, commit_answered(14, 14), commit_answered(0, 0))
    commit_as_admin(brokers.cluster, "g", {ONE: 9, ZERO: 7}, soon())
    _, request = brokers.brokers[1].asked("OffsetCommit")
    assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == ("g", -1, "")
    assert request.group_instance_id is None
    (topic,) = request.topics
    assert [(p.partition_index, p.committed_offset) for p in topic.partitions] == [(0, 7), (1, 9)]
    assert {(p.committed_metadata, p.committed_leader_epoch) for p in topic.partitions} == {("", -1)}


def test_a_group_is_deleted_by_its_coordinator(make: Make) -> None:
    brokers = make(count=2)
    brokers.coordinator = 2
    brokers.answer(2, admin.DeleteGroupsRequest, deleted(16), deleted(0))
    delete_group(brokers.cluster, "g", soon())
    assert [request.groups_names for request in brokers.brokers[2].asked("DeleteGroups")] == [("g",), ("g",)]


def test_offsets_of_partitions_are_deleted_each_with_its_result(brokers: Brokers) -> None:
    brokers.answer(1, admin.OffsetDeleteRequest, forgotten(0, 86))
    found = delete_offsets(brokers.cluster, "g", [ONE, ZERO], soon())
    assert found[ZERO] is None
    assert "GROUP_SUBSCRIBED_TO_TOPIC" in str(found[ONE])
    (request,) = brokers.brokers[1].asked("OffsetDelete")
    assert [[p.partition_index for p in topic.partitions] for topic in request.topics] == [[0, 1]]


# -- topics -----------------------------------------------------------------------------------------------------------


def test_topics_are_made_and_their_leaders_waited_for(brokers: Brokers) -> None:

    def makes(_: Any) -> admin.CreateTopicsResponse:
        brokers.topics = (topic("new", 1, 1),)
        return created(0)

    brokers.answer(1, admin.CreateTopicsRequest, created(41), makes)
    assert create_topics(brokers.cluster, {"new": 2}, soon(), configs={"new": {"retention.ms": "1"}}) == {"new"}
    (wanted,) = brokers.brokers[1].asked("CreateTopics")[-1].topics
    assert (wanted.num_partitions, wanted.replication_factor) == (2, 1)
    assert [(c.name, c.value) for c in wanted.configs] == [("retention.ms", "1")]


def test_topics_that_exist_are_no_error(brokers: Brokers) -> None:
    brokers.topics = (topic("new", 1),)
    brokers.answer(1, admin.CreateTopicsRequest, created(36))
    assert create_topics(brokers.cluster, {"new": 1}, soon()) == frozenset()


@pytest.mark.parametrize("versions", [(1, 5), (6, 6)], ids=["by name", "by state"])
def test_a_topic_is_deleted_and_waited_for(versions: tuple[int, int], make: Make) -> None:
    brokers = make(deletetopics=versions)
    brokers.topics = (topic("old", 1),)

    def deletes(_: Any) -> topics.DeleteTopicsResponse:
        brokers.topics = ()
        return deleted_topic(0)

    brokers.answer(1, topics.DeleteTopicsRequest, deleted_topic(41), deletes)
    delete_topics(brokers.cluster, ["old"], soon())
    asked: Any = brokers.brokers[1].asked("DeleteTopics")[-1]
    assert (asked.topic_names or tuple(state.name for state in asked.topics)) == ("old",)
    assert asked.timeout_ms > 0


def test_a_topic_that_stays_in_the_metadata_is_an_error_at_the_deadline(brokers: Brokers, options: Options) -> None:
    clock = Clock()
    brokers.topics = (topic("old", 1),)
    brokers.answer(1, topics.DeleteTopicsRequest, deleted_topic(0))
    cluster = KafkaCluster(options(brokers.ports[1]), clock=clock, sleep=clock.sleep)
    with pytest.raises(TransportError):
        delete_topics(cluster, ["old"], clock.now + 0.5)
    assert len(brokers.brokers[1].asked("Metadata")) > 2, "it has looked again"


def test_a_topic_gets_more_partitions_and_their_leaders_are_waited_for(brokers: Brokers) -> None:
    brokers.topics = (topic("old", 1),)

    def grows(_: Any) -> topics.CreatePartitionsResponse:
        brokers.topics = (topic("old", 1, 1, 1),)
        return grown(0)

    brokers.answer(1, topics.CreatePartitionsRequest, grows)
    grow_topics(brokers.cluster, {"old": 3}, soon())
    (asked,) = brokers.brokers[1].asked("CreatePartitions")[-1].topics
    assert (asked.name, asked.count, asked.assignments) == ("old", 3, None)
