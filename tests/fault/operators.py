"""Operators and clients of a cluster, past the proxies: their actions, and the cluster's answers."""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, NewTopic

from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.kafka.cluster.metadata import metadata_request, snapshot_of
from streamgroup.kafka.wire.messages.cluster import MetadataRequest
from streamgroup.model import ClusterSnapshot, TopicInfo, TopicPartition
from streamgroup.testing import KafkaServer, java_tool
from tests.fault.harness import Streams
from tests.waiting import wait_until

ADMIN_S = 20


@functools.cache
def admin(server: KafkaServer) -> AdminClient:
    """Kept: what a client still waits for ends with it."""
    return AdminClient({"bootstrap.servers": server.direct_servers, "log_level": 0})


def look(streams: Streams) -> ClusterSnapshot:
    return streams.ask(lambda cluster: cluster.snapshot([streams.topic], cluster.deadline(), refresh=True))


def leaders(snapshot: ClusterSnapshot) -> list[tuple[TopicPartition, int]]:
    return [(TopicPartition(name, p.partition), p.leader) for name, t in snapshot.topics.items() for p in t.partitions]


def moved(streams: Streams, before: ClusterSnapshot) -> ClusterSnapshot | None:
    after = look(streams)
    was = dict(leaders(before))
    return after if all(leader not in (-1, was[tp]) for tp, leader in leaders(after)) else None


def coordinator(streams: Streams) -> int:
    return streams.ask(lambda cluster: cluster.coordinator(streams.group, cluster.deadline())).node_id


def offsets(streams: Streams) -> dict[TopicPartition, int]:
    return {tp: committed.offset for tp, committed in streams.committed().items()}


def reassign(streams: Streams, home: Path, replicas: Mapping[TopicPartition, list[int]]) -> None:
    """Give partitions the same replicas in another order, whose first is the preferred leader."""
    plan = home / "plan.json"
    rows = [{"topic": tp.topic, "partition": tp.partition, "replicas": ids} for tp, ids in replicas.items()]
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    tool(
        streams.server,
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
        *("--reassignment-json-file", str(plan), "--execute"),
    )


def elect_preferred(streams: Streams) -> None:
    partitions = [ConfluentPartition(tp.topic, tp.partition) for tp, _ in leaders(look(streams))]

    def elected() -> bool:
        found = admin(streams.server).elect_leaders(ElectionType.PREFERRED, partitions).result(ADMIN_S)
        return all(error is None or error.name() == "ELECTION_NOT_NEEDED" for error in found.values())

    wait_until(elected, "preferred leaders are elected")


def tool(server: KafkaServer, main_class: str, *arguments: str) -> str:
    argv = java_tool(server.version, main_class, "--bootstrap-server", server.direct_servers, *arguments)
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def recreate(streams: Streams) -> None:
    """Delete the topic and make it anew, with as many partitions on three brokers."""
    client, old = admin(streams.server), look(streams).topics[streams.topic]
    client.delete_topics([streams.topic], operation_timeout=ADMIN_S)[streams.topic].result(ADMIN_S)
    wait_until(lambda: not any(topics_of_each(streams)), "no broker knows the topic any more")
    new = NewTopic(streams.topic, len(old.partitions), 3, config={"retention.ms": "-1"})
    client.create_topics([new], operation_timeout=ADMIN_S)[streams.topic].result(ADMIN_S)
    # Every broker: one that has not heard of it takes a producer's records for the old topic, and loses them with it.
    wait_until(
        lambda: all(is_served_anew(topic, old) for topic in topics_of_each(streams)), "the new topic has leaders"
    )


def topics_of_each(streams: Streams) -> list[TopicInfo | None]:
    """Each broker's metadata of the topic."""

    def question(cluster: KafkaCluster) -> list[TopicInfo | None]:
        found = []
        for node in range(3):
            make = functools.partial(metadata_request, frozenset([streams.topic]))
            _, response = cluster.call_versioned(MetadataRequest, make, node, cluster.deadline())
            found.append(snapshot_of(response)[0].topics.get(streams.topic))
        return found

    return streams.ask(question)


def is_served_anew(topic: TopicInfo | None, old: TopicInfo) -> bool:
    if topic is None or topic.topic_id == old.topic_id:
        return False
    return len(topic.partitions) == len(old.partitions) and all(p.leader >= 0 for p in topic.partitions)


def delete_records(streams: Streams, before: Mapping[TopicPartition, int]) -> None:
    wanted: list[Any] = [ConfluentPartition(tp.topic, tp.partition, offset) for tp, offset in before.items()]
    for future in admin(streams.server).delete_records(wanted).values():
        future.result(ADMIN_S)


def delete_offsets(streams: Streams, *partitions: TopicPartition) -> None:
    """Delete offsets as `kafka-consumer-groups.sh --delete-offsets` does in a group without members."""
    numbers = ",".join(str(tp.partition) for tp in partitions)
    tool(
        streams.server,
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--delete-offsets", "--group", streams.group, "--topic", f"{streams.topic}:{numbers}"),
    )
