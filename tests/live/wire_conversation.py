"""One conversation with a real broker in which every API is spoken in every version that both know.

Run as a program it starts the brokers, of the releases in its arguments or of all, and writes the frames that were
exchanged to tests/vectors/wire, from where the unit tests read them.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import Producer

from streamgroup.errors import ErrorCode, error_of
from streamgroup.kafka.wire import consumer
from streamgroup.kafka.wire.frames import decode_response, encode_request
from streamgroup.kafka.wire.messages import admin, cluster, group, log, offsets, produce, topics, transactions
from streamgroup.kafka.wire.messages.offsets import offset_fetch_request
from streamgroup.kafka.wire.schema import Message, Request, encode
from streamgroup.kafka.wire.versions import BrokerVersions
from streamgroup.model import TopicPartition
from streamgroup.testing import KafkaServer
from tests.servers import address_of
from tests.unit.kafka.records.encoder import Record, encode_batch
from tests.unit.kafka.records.encoder_sets import Message as OldMessage
from tests.unit.kafka.records.encoder_sets import encode_set
from tests.unit.kafka.wire.declared import REQUESTS, lowest

VECTORS = Path(__file__).parents[1] / "vectors" / "wire"
RELEASES = ("3.9.1", "4.1.1", "4.3.1")
DEADLINE_S = 60.0
R = TypeVar("R", bound=Message)


@dataclass(frozen=True)
class Exchange:
    """A request and what came back: the frames without their lengths."""

    api: str
    version: int
    request: bytes
    response: bytes


class Conversation:
    """Speaks with one broker and keeps the first exchange of each API and version."""

    def __init__(self, server: KafkaServer) -> None:
        self.bootstrap_servers = server.bootstrap_servers
        self.has_zookeeper = bool(server.zookeeper_connect)
        self.socket = socket.create_connection(address_of(server), timeout=DEADLINE_S)
        self.asked = 0
        self.exchanges: dict[tuple[str, int], Exchange] = {}
        self.versions = BrokerVersions.of(self.ask(cluster.ApiVersionsRequest(), 0), server.bootstrap_servers)

    def ask(self, request: Request[R], version: int) -> R:
        """Sends one request and reads its answer, which must follow at once."""
        self.asked += 1
        frame = encode_request(request, version, self.asked, "conversation")
        self.socket.sendall(frame)
        (size,) = struct.unpack(">i", self.receive(4))
        answer = self.receive(size)
        correlation_id, response = decode_response(type(request), version, answer)
        assert correlation_id == self.asked
        self.exchanges.setdefault((request.NAME, version), Exchange(request.NAME, version, frame[4:], answer))
        return response

    def receive(self, count: int) -> bytes:
        """Exactly `count` bytes."""
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            assert piece, "the broker closed the connection"
            data += piece
        return data

    def speaks(self, cls: type[Request[Any]]) -> bool:
        """Whether the broker has this API."""
        return cls.API_KEY in self.versions.ranges

    def at(self, cls: type[Request[Any]], round_: int) -> int:
        """The version of `cls` for this round: as many rounds as versions reach them all, from the lowest up."""
        return min(max(round_, lowest(cls, self.versions)), self.versions.highest(cls))

    def rounds(self) -> int:
        """How many rounds reach every version of every API."""
        return 1 + max(self.versions.highest(cls) for cls in (log.FetchRequest, cluster.MetadataRequest))


def converse(server: KafkaServer) -> Conversation:
    """The whole conversation. Every answer has no error, but those of dead versions and of SASL on this listener."""
    talk = Conversation(server)
    topic, topic_id = create(talk, 0)
    write_transactions(talk.bootstrap_servers, topic)
    if talk.speaks(group.ConsumerGroupHeartbeatRequest):
        live_as_consumers(talk, topic)
    for round_ in range(talk.rounds()):
        talk.ask(
            cluster.ApiVersionsRequest(client_software_name="conversation", client_software_version="1"),
            talk.at(cluster.ApiVersionsRequest, round_),
        )
        if round_:
            create(talk, round_)
        read_log(talk, round_, topic, topic_id)
        write(talk, round_, topic, topic_id)
        live_in_group(talk, round_, f"group-{round_}", topic)
        authenticate(talk, round_)
        change_topics(talk, round_)
        transact(talk, round_)
    talk.socket.close()
    return talk


def require_understood(talk: Conversation) -> None:
    """Fail unless every answer, in every common version of every API, is read, and written again byte for byte."""
    for cls in filter(talk.speaks, REQUESTS):
        for version in range(lowest(cls, talk.versions), talk.versions.highest(cls) + 1):
            answer = talk.exchanges[cls.NAME, version].response
            _, response = decode_response(cls, version, answer)
            header = 5 if cls.is_flexible(version) and cls is not cluster.ApiVersionsRequest else 4
            assert encode(response, version) == answer[header:], (cls.NAME, version)


def create(talk: Conversation, round_: int, prefix: str = "conversation") -> tuple[str, str]:
    """A topic of two partitions: its name and id."""
    name = f"{prefix}-{round_}"
    config = admin.CreatableTopicConfig(name="retention.ms", value="-1")
    topic = admin.CreatableTopic(name=name, num_partitions=2, replication_factor=1, configs=(config,))
    request = admin.CreateTopicsRequest(topics=(topic,), timeout_ms=30_000)
    (created,) = talk.ask(request, talk.at(admin.CreateTopicsRequest, round_)).topics
    assert created.error_code == 0
    named = cluster.MetadataRequest(topics=(cluster.MetadataRequestTopic(name=name),))
    for _ in attempts():
        talk.ask(named, talk.at(cluster.MetadataRequest, round_))
        (found,) = talk.ask(named, talk.versions.highest(cluster.MetadataRequest)).topics
        if found.error_code == 0 and all(p.leader_id >= 0 for p in found.partitions):
            return name, found.topic_id
    raise AssertionError(f"{name} has no leaders")


def attempts() -> Iterator[None]:
    """Again and again until the deadline."""
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        yield
        time.sleep(0.05)


def write_transactions(bootstrap_servers: str, topic: str) -> None:
    """Two committed records, then an aborted one, in partition 0."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(DEADLINE_S)
    for values, end in (([b"a", b"b"], producer.commit_transaction), ([b"c"], producer.abort_transaction)):
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, key=b"k", partition=0)
        producer.flush(DEADLINE_S)
        end(DEADLINE_S)


def read_log(talk: Conversation, round_: int, topic: str, topic_id: str) -> None:
    """ListOffsets, OffsetForLeaderEpoch, Fetch."""
    version = talk.at(log.ListOffsetsRequest, round_)
    latest = log.ListOffsetsPartition(partition_index=0, timestamp=-1)
    asked = log.ListOffsetsTopic(name=topic, partitions=(latest,))
    list_offsets = log.ListOffsetsRequest(replica_id=-1, topics=(asked,))
    for _ in attempts():  # the marker of the abort is written after its answer
        talk.exchanges.pop(("ListOffsets", version), None)
        (end,) = talk.ask(list_offsets, version).topics[0].partitions
        assert end.error_code == 0
        if 5 in (end.offset, *end.old_style_offsets):  # three records and two markers
            break

    of_epoch = log.OffsetForLeaderTopic(topic=topic, partitions=(log.OffsetForLeaderPartition(leader_epoch=0),))
    epochs = log.OffsetForLeaderEpochRequest(replica_id=-1, topics=(of_epoch,))
    (epoch_end,) = talk.ask(epochs, talk.at(log.OffsetForLeaderEpochRequest, round_)).topics[0].partitions
    assert (epoch_end.error_code, epoch_end.end_offset) == (0, 5)

    version = talk.at(log.FetchRequest, round_)
    fetch = log.FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        isolation_level=log.READ_COMMITTED,
        topics=(
            log.FetchTopic(
                topic=topic,
                topic_id=topic_id,
                partitions=(log.FetchPartition(fetch_offset=0, partition_max_bytes=65_536),),
            ),
        ),
    )
    (data,) = talk.ask(fetch, version).responses[0].partitions
    assert (data.error_code, data.high_watermark) == (0, 5)
    assert data.records
    if version >= 4:
        assert [a.first_offset for a in data.aborted_transactions or ()] == [3]


def write(talk: Conversation, round_: int, topic: str, topic_id: str) -> None:
    """InitProducerId, then Produce to partition 1: a record, and from v3 on of an idempotent producer."""
    asked = produce.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
    given = talk.ask(asked, talk.at(produce.InitProducerIdRequest, round_))
    assert (given.error_code, given.producer_epoch) == (0, 0)
    version = talk.at(produce.ProduceRequest, round_)
    if version < 3:
        records = encode_set([OldMessage(0, b"v", b"k")], magic=version // 2)
    else:
        records = encode_batch([Record(0, key=b"k", value=b"v")], producer_id=given.producer_id)
    row = produce.PartitionProduceData(index=1, records=records)
    written = talk.ask(
        produce.ProduceRequest(
            acks=produce.ALL_ACKS,
            timeout_ms=30_000,
            topic_data=(produce.TopicProduceData(name=topic, topic_id=topic_id, partition_data=(row,)),),
        ),
        version,
    )
    (answer,) = written.responses[0].partition_responses
    assert (answer.error_code, answer.base_offset) == (0, round_)


def transact(talk: Conversation, round_: int) -> None:
    """A transaction of a partition and of a group's offset, as its producer and as an operator see it."""
    name = f"transaction-{round_}"
    topic, _ = create(talk, round_, "transacted")
    asked = produce.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    given = until_accepted(talk, asked, talk.versions.highest(produce.InitProducerIdRequest))
    of_producer = {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch}
    of_transaction = {"transactional_id": name, **of_producer}
    add_partition(talk, round_, topic, of_transaction)
    assert given.producer_epoch == 0
    records = encode_batch([Record(0, value=b"v")], transactional=True, producer_id=given.producer_id)
    row = produce.PartitionProduceData(index=0, records=records)
    of_topic = produce.TopicProduceData(name=topic, partition_data=(row,))
    # A broker of transactions V2 would add the partition at v12.
    write = produce.ProduceRequest(
        transactional_id=name, acks=produce.ALL_ACKS, timeout_ms=30_000, topic_data=(of_topic,)
    )
    for _ in attempts():  # the new topic's leader may not know that it is
        (written,) = talk.ask(write, 8).responses[0].partition_responses
        if written.error_code == 0:
            break
    add_offsets = transactions.AddOffsetsToTxnRequest(**of_transaction, group_id=name)
    until_accepted(talk, add_offsets, talk.at(transactions.AddOffsetsToTxnRequest, round_))
    offset = transactions.TxnOffsetCommitRequestPartition(committed_offset=3, committed_metadata="m")
    of_group = transactions.TxnOffsetCommitRequestTopic(name=topic, partitions=(offset,))
    commit = transactions.TxnOffsetCommitRequest(**of_transaction, group_id=name, topics=(of_group,))
    version = talk.at(transactions.TxnOffsetCommitRequest, round_)
    for _ in attempts():
        (committed,) = talk.ask(commit, version).topics[0].partitions
        if committed.error_code == 0:
            break
        del talk.exchanges[commit.NAME, version]
    observe_transaction(talk, round_, name, topic)
    end = transactions.EndTxnRequest(**of_transaction, committed=True)
    until_accepted(talk, end, talk.at(transactions.EndTxnRequest, round_))


def until_accepted(talk: Conversation, request: Request[R], version: int) -> R:
    """The answer without an error: the coordinator may load its log or write markers first."""
    for _ in attempts():
        answer = talk.ask(request, version)
        if not answer.error_code:  # type: ignore[attr-defined]
            return answer
        assert error_of(answer.error_code).retriable, answer  # type: ignore[attr-defined]
        del talk.exchanges[request.NAME, version]
    raise AssertionError(f"{request.NAME} v{version} is not accepted")


def add_partition(talk: Conversation, round_: int, topic: str, of_transaction: dict[str, Any]) -> None:
    """AddPartitionsToTxn: of one transaction up to v3, of several from v4."""
    version = talk.at(transactions.AddPartitionsToTxnRequest, round_)
    of_topic = transactions.AddPartitionsToTxnTopic(name=topic, partitions=(0,))
    if version <= transactions.LAST_ADD_OF_CLIENTS:
        fields = {f"v3_and_below_{key}": value for key, value in of_transaction.items()}
        request = transactions.AddPartitionsToTxnRequest(**fields, v3_and_below_topics=(of_topic,))
    else:
        one = transactions.AddPartitionsToTxnTransaction(**of_transaction, topics=(of_topic,))
        request = transactions.AddPartitionsToTxnRequest(transactions=(one,))
    for _ in attempts():
        answer = talk.ask(request, version)
        results = answer.results_by_topic_v3_and_below or answer.results_by_transaction[0].topic_results
        if [each.partition_error_code for each in results[0].results_by_partition] == [0]:
            return
        del talk.exchanges[request.NAME, version]
    raise AssertionError(f"{topic} is not added")


def observe_transaction(talk: Conversation, round_: int, name: str, topic: str) -> None:
    """DescribeProducers; DescribeTransactions and ListTransactions, which Kafka 2.8 lacks."""
    of_topic = transactions.DescribeProducersTopic(name=topic, partition_indexes=(0,))
    request = transactions.DescribeProducersRequest(topics=(of_topic,))
    (found,) = talk.ask(request, talk.at(transactions.DescribeProducersRequest, round_)).topics[0].partitions
    assert [each.current_txn_start_offset for each in found.active_producers] == [0]
    if not talk.speaks(transactions.DescribeTransactionsRequest):
        return
    version = talk.at(transactions.DescribeTransactionsRequest, round_)
    describe = transactions.DescribeTransactionsRequest(transactional_ids=(name,))
    (described,) = talk.ask(describe, version).transaction_states
    partitions = {each.topic: each.partitions for each in described.topics}
    assert (described.error_code, described.transaction_state, partitions[topic]) == (0, "Ongoing", (0,))
    version = talk.at(transactions.ListTransactionsRequest, round_)
    listed = talk.ask(transactions.ListTransactionsRequest(state_filters=("Ongoing",)), version)
    assert [each.transactional_id for each in listed.transaction_states] == [name]


def live_in_group(talk: Conversation, round_: int, name: str, topic: str) -> None:
    """From FindCoordinator to LeaveGroup: a member alone in its group."""
    find(talk, round_, name)
    member_id, generation = join(talk, round_, name, topic)
    assignment = consumer.ConsumerAssignment(assigned_partitions=consumer.by_topic([TopicPartition(topic, 0)]))
    mine = group.SyncGroupRequestAssignment(member_id=member_id, assignment=consumer.encode_assignment(assignment))
    sync = group.SyncGroupRequest(
        group_id=name,
        generation_id=generation,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=(mine,),
    )
    synced = talk.ask(sync, talk.at(group.SyncGroupRequest, round_))
    assert consumer.decode_assignment(synced.assignment) == assignment
    beat = group.HeartbeatRequest(group_id=name, generation_id=generation, member_id=member_id)
    assert talk.ask(beat, talk.at(group.HeartbeatRequest, round_)).error_code == 0
    commit_and_fetch(talk, round_, beat, topic)
    administrate(talk, round_, name, topic)
    version = talk.at(group.LeaveGroupRequest, round_)
    identity = group.MemberIdentity(member_id=member_id, reason="done")
    leave = group.LeaveGroupRequest(
        group_id=name,
        member_id=member_id if version < 3 else "",
        members=() if version < 3 else (identity,),
    )
    assert talk.ask(leave, version).error_code == 0
    request = admin.DeleteGroupsRequest(groups_names=(name,))
    (deleted,) = talk.ask(request, talk.at(admin.DeleteGroupsRequest, round_)).results
    assert (deleted.group_id, deleted.error_code) == (name, 0)


def find(talk: Conversation, round_: int, name: str) -> None:
    """FindCoordinator until there is one."""
    version = talk.at(group.FindCoordinatorRequest, round_)
    request = group.FindCoordinatorRequest(
        key=name if version < 4 else "", coordinator_keys=() if version < 4 else (name,)
    )
    for _ in attempts():
        found = talk.ask(request, version)
        if (found.coordinators[0].error_code if version >= 4 else found.error_code) == 0:
            return
    raise AssertionError(f"{name} has no coordinator")


def join(talk: Conversation, round_: int, name: str, topic: str) -> tuple[str, int]:
    """JoinGroup until the member is in: its id and generation."""
    version = talk.at(group.JoinGroupRequest, round_)
    subscription = consumer.encode_subscription(consumer.ConsumerSubscription(topics=(topic,)))
    member_id = ""
    for _ in attempts():
        request = group.JoinGroupRequest(
            group_id=name,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=(group.JoinGroupRequestProtocol(name="range", metadata=subscription),),
            reason="conversation",
        )
        joined = talk.ask(request, version)
        member_id = joined.member_id
        if joined.error_code == 0:
            (member,) = joined.members
            assert consumer.decode_subscription(member.metadata).topics == (topic,)
            return member_id, joined.generation_id
        talk.exchanges.pop((request.NAME, version))  # a refusal shows less
    raise AssertionError(f"{name} cannot be joined")


def commit_and_fetch(talk: Conversation, round_: int, beat: group.HeartbeatRequest, topic: str) -> None:
    """OffsetCommit, OffsetFetch, by the member that `beat` names. v0 of both is about offsets in ZooKeeper."""
    row = offsets.OffsetCommitRequestPartition(committed_offset=3, committed_metadata="m")
    commit = offsets.OffsetCommitRequest(
        group_id=beat.group_id,
        generation_id_or_member_epoch=beat.generation_id,
        member_id=beat.member_id,
        topics=(offsets.OffsetCommitRequestTopic(name=topic, partitions=(row,)),),
    )
    version = talk.at(offsets.OffsetCommitRequest, round_)
    (committed,) = talk.ask(commit, version).topics[0].partitions
    assert (committed.error_code == 0) == (version > 0 or talk.has_zookeeper)
    version = talk.at(offsets.OffsetFetchRequest, round_)
    answer = talk.ask(offset_fetch_request(version, beat.group_id, [TopicPartition(topic, 0)]), version)
    if version > 0:
        topics = answer.topics or answer.groups[0].topics
        assert topics[0].partitions[0].error_code == 0


def administrate(talk: Conversation, round_: int, name: str, topic: str) -> None:
    """ListGroups, DescribeGroups, and OffsetDelete of a topic that the member subscribes to."""
    listed = talk.ask(admin.ListGroupsRequest(), talk.at(admin.ListGroupsRequest, round_))
    assert name in {g.group_id for g in listed.groups}
    (described,) = talk.ask(
        admin.DescribeGroupsRequest(groups=(name,)), talk.at(admin.DescribeGroupsRequest, round_)
    ).groups
    assert (described.error_code, described.group_state, len(described.members)) == (0, "Stable", 1)
    of_topic = admin.OffsetDeleteRequestTopic(name=topic, partitions=(admin.OffsetDeleteRequestPartition(),))
    forget = admin.OffsetDeleteRequest(group_id=name, topics=(of_topic,))
    forgotten = talk.ask(forget, talk.at(admin.OffsetDeleteRequest, round_))
    assert [[p.error_code for p in found.partitions] for found in forgotten.topics] == [[86]]
    assert forgotten.error_code == 0


def live_as_consumers(talk: Conversation, topic: str) -> None:
    """ConsumerGroupHeartbeat and ConsumerGroupDescribe. Kafka 3.9 has v0 alone, and such groups by a feature only."""
    name, highest = "consumers", talk.versions.highest(group.ConsumerGroupHeartbeatRequest)
    find(talk, 4, name)
    for version in range(highest + 1):
        join = group.ConsumerGroupHeartbeatRequest(
            group_id=name,
            member_id="conversation" if version else "",
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=(topic,),
            topic_partitions=(),
        )
        for _ in attempts():
            joined = talk.ask(join, version)
            if not error_of(joined.error_code).retriable:
                break
            del talk.exchanges[join.NAME, version]
        assert bool(joined.error_code) == (highest == 0)
        (found,) = talk.ask(admin.ConsumerGroupDescribeRequest(group_ids=(name,)), version).groups
        assert [each.member_id for each in found.members] == ([joined.member_id] if highest else [])
        leave = {"member_id": joined.member_id or "", "member_epoch": -1}
        talk.ask(group.ConsumerGroupHeartbeatRequest(group_id=name, **leave), version)


def change_topics(talk: Conversation, round_: int) -> None:
    """DescribeConfigs, CreatePartitions and DeleteTopics of a topic that is made for it."""
    name, _ = create(talk, round_, "changed")
    version = talk.at(topics.DescribeConfigsRequest, round_)
    of_topic = topics.DescribeConfigsResource(
        resource_type=2, resource_name=name, configuration_keys=("cleanup.policy", "retention.ms")
    )
    describe = topics.DescribeConfigsRequest(
        resources=(of_topic,), include_synonyms=version >= 1, include_documentation=version >= 3
    )
    (described,) = talk.ask(describe, version).results
    assert {c.name: c.value for c in described.configs} == {"cleanup.policy": "delete", "retention.ms": "-1"}
    more = topics.CreatePartitionsTopic(name=name, count=3, assignments=None)
    request = topics.CreatePartitionsRequest(topics=(more,), timeout_ms=30_000)
    (grown,) = talk.ask(request, talk.at(topics.CreatePartitionsRequest, round_)).results
    assert (grown.name, grown.error_code) == (name, 0)
    version = talk.at(topics.DeleteTopicsRequest, round_)
    delete = topics.DeleteTopicsRequest(
        topics=(topics.DeleteTopicState(name=name),) if version >= 6 else (),
        topic_names=() if version >= 6 else (name,),
        timeout_ms=30_000,
    )
    (deleted,) = talk.ask(delete, version).responses
    assert (deleted.name, deleted.error_code) == (name, 0)


def authenticate(talk: Conversation, round_: int) -> None:
    """SaslHandshake, SaslAuthenticate: the listener is PLAINTEXT, so the broker refuses both."""
    shake, proof = (
        cluster.SaslHandshakeRequest(mechanism="PLAIN"),
        cluster.SaslAuthenticateRequest(auth_bytes=b"\0user\0pw"),
    )
    for request in (shake, proof):
        answer = talk.ask(request, talk.at(type(request), round_))
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE


def record(release: str) -> None:
    """Writes the vectors of one release."""
    with KafkaServer(release) as server:
        exchanges = converse(server).exchanges
    rows = [
        {"api": e.api, "version": e.version, "request": e.request.hex(), "response": e.response.hex()}
        for _, e in sorted(exchanges.items())
    ]
    VECTORS.mkdir(parents=True, exist_ok=True)
    text = ",\n".join(json.dumps(row) for row in rows)
    (VECTORS / f"kafka-{release}.json").write_text(f"[\n{text}\n]\n")


if __name__ == "__main__":
    for each in sys.argv[1:] or RELEASES:
        record(each)
