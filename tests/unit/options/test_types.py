"""The parsed options: a user reads the source's name in Spark, and the derived values follow from the options."""

from __future__ import annotations

import pytest

from streamgroup.advice import OffsetLocation, StoredIn
from streamgroup.errors import ConfigError
from streamgroup.model import EARLIEST, ConfiguredOffsets, TopicPartition
from streamgroup.options.types import (
    ClientOptions,
    FetchOptions,
    GroupMode,
    GroupOptions,
    LimitOptions,
    OffsetsStorage,
    SourceOptions,
    SplitOptions,
    Subscription,
)
from tests.unit.options.reads import stream


def source(group: GroupOptions | None) -> SourceOptions:
    return SourceOptions(
        client=ClientOptions((("b1", 9092),)),
        subscription=Subscription(topics=("orders",)),
        starting=ConfiguredOffsets(EARLIEST),
        ending=None,
        fetch=FetchOptions(),
        limits=LimitOptions(),
        split=SplitOptions(),
        group=group,
    )


@pytest.mark.parametrize(
    ("subscription", "text"),
    [
        (Subscription(topics=("orders", "payments")), "Subscribe[orders, payments]"),
        (Subscription(pattern="orders.*"), "SubscribePattern[orders.*]"),
        (Subscription(pattern=""), "SubscribePattern[]"),
        (Subscription(assign=(TopicPartition("orders", 0), TopicPartition("a-b", 12))), "Assign[orders-0, a-b-12]"),
    ],
)
def test_a_subscription_reads_as_in_sparks_own_source(subscription: Subscription, text: str) -> None:
    assert str(subscription) == text


@pytest.mark.parametrize(
    ("group", "text"),
    [
        (None, "streamgroup[Subscribe[orders]]"),
        (GroupOptions("etl"), "streamgroup[Subscribe[orders], group=etl, mode=member]"),
        (GroupOptions("etl", GroupMode.COMMIT), "streamgroup[Subscribe[orders], group=etl, mode=commit]"),
        (GroupOptions("", GroupMode.OFF), "streamgroup[Subscribe[orders], mode=off]"),
    ],
)
def test_the_description_of_a_source_has_the_group_where_there_is_one(group: GroupOptions | None, text: str) -> None:
    assert source(group).description == text


@pytest.mark.parametrize(("given_ms", "seconds"), [(None, 120.0), (0, 0.0), (1, 0.001), (5_500, 5.5)])
def test_the_poll_timeout_is_in_seconds_and_by_default_sparks(given_ms: int | None, seconds: float) -> None:
    assert FetchOptions(poll_timeout_ms=given_ms).poll_timeout_s == seconds


@pytest.mark.parametrize(
    ("mode", "storage", "dual", "stored_in"),
    [
        (GroupMode.MEMBER, None, False, StoredIn.KAFKA),
        (GroupMode.MEMBER, None, True, StoredIn.BOTH),
        (GroupMode.MEMBER, OffsetsStorage.KAFKA, False, StoredIn.KAFKA),
        (GroupMode.MEMBER, OffsetsStorage.KAFKA, True, StoredIn.BOTH),
        (GroupMode.MEMBER, OffsetsStorage.ZOOKEEPER, False, StoredIn.ZOOKEEPER),
        (GroupMode.MEMBER, OffsetsStorage.ZOOKEEPER, True, StoredIn.ZOOKEEPER),
        # Brokers before 0.8.2 write such commits into their ZooKeeper, and only the brokers know that.
        (GroupMode.COMMIT, None, False, StoredIn.BROKERS),
        (GroupMode.COMMIT, None, True, StoredIn.BROKERS),
        (GroupMode.COMMIT, OffsetsStorage.KAFKA, True, StoredIn.KAFKA),
        (GroupMode.COMMIT, OffsetsStorage.ZOOKEEPER, False, StoredIn.ZOOKEEPER),
    ],
)
def test_the_offsets_are_stored_where_the_mode_and_the_storage_say(
    mode: GroupMode, storage: OffsetsStorage | None, dual: bool, stored_in: StoredIn
) -> None:
    group = GroupOptions("etl", mode, offsets_storage=storage, dual_commit=dual)
    assert group.offset_location == OffsetLocation("etl", stored_in)


def test_transactions_commit_the_offsets_of_members() -> None:
    group = stream(offsets__store="transaction", kafka__transactional__id="copy").group
    assert (group.in_transaction, group.store_url, group.transactional_id) == (True, "", "copy")
    assert group.transaction_timeout_ms == 600_000
    with pytest.raises(ConfigError, match=r"^cannot use offsets.store=transaction without a membership"):
        stream(offsets__store="transaction", group__mode="commit")
    with pytest.raises(ConfigError, match=r"^cannot use offsets\.store with a group .* in ZooKeeper"):
        stream(offsets__store="transaction", zookeeper__connect="zk1")


def test_without_transactions_their_options_have_no_effect() -> None:
    (note,) = stream(kafka__transactional__id="copy", kafka__transaction__timeout__ms="1000").notes
    assert "kafka.transactional.id, kafka.transaction.timeout.ms" in note
    assert "set offsets.store=transaction" in note
