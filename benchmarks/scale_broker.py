"""A topic of many partitions and a group of many members, on a real broker.

    python -m benchmarks.scale_broker [--partitions N] [--members N]

One query is the group's leader, and is polled every 10 ms as by Spark. It starts alone, idles, plans a batch with a
record of each partition, and commits it. Then the other members join at once, by requests on a connection each, and
take what the query assigns them.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any

import click
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from benchmarks.topics import admin_client
from streamgroup.coordinator.coordinator import Coordinator
from streamgroup.coordinator.planning.document import to_value
from streamgroup.errors import error_of
from streamgroup.kafka.net.connection import Connection
from streamgroup.kafka.wire.consumer import ConsumerSubscription, decode_assignment, encode_subscription
from streamgroup.kafka.wire.messages.group import JoinGroupRequest, JoinGroupRequestProtocol, SyncGroupRequest
from streamgroup.model import INITIAL_DOCUMENT
from streamgroup.options.parse import parse_source
from streamgroup.options.types import ClientOptions, LimitOptions
from streamgroup.testing import KafkaServer

TOPIC, GROUP = "many", "scale"
TIMEOUT_S = 240.0
POLL_EVERY_S = 0.01
_JOIN_VERSION = 3
"""The last version that gives a new member its id and its place with one request."""
_AT_ONCE = 5_000
"""The most partitions that one request creates: the controller refuses 10,000 and a topic."""

Value = dict[str, Any]


def create_topic(server: KafkaServer, topic: str, partitions: int) -> None:
    """Create `topic` with so many partitions, and wait until each has a leader."""
    admin = admin_client(server)
    first = min(partitions, _AT_ONCE)
    admin.create_topics([NewTopic(topic, first, 1)], operation_timeout=120)[topic].result(150)
    for count in range(first + _AT_ONCE, partitions + _AT_ONCE, _AT_ONCE):
        admin.create_partitions([NewPartitions(topic, min(count, partitions))], operation_timeout=120)[topic].result(
            150
        )

    def all_led() -> bool:
        found = admin.list_topics(topic, timeout=30).topics[topic].partitions
        return len(found) == partitions and all(each.leader >= 0 for each in found.values())

    wait_until(all_led, "a leader of each partition")


def produce_to_each(server: KafkaServer, topic: str, partitions: int) -> None:
    """Write a record to each partition."""
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "linger.ms": 50, "log_level": 3})
    for partition in range(partitions):
        producer.produce(topic, b"x" * 100, partition=partition)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0


def committed(admin: AdminClient) -> int:
    """Return of how many partitions the group has committed a record."""
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])[GROUP].result(60)
    return sum(each.offset > 0 for each in found.topic_partitions)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait until `condition` holds. Raises SystemExit after TIMEOUT_S."""
    if not holds_in_time(condition):
        raise SystemExit(f"no {what} after {TIMEOUT_S:.0f} s")


def holds_in_time(condition: Callable[[], bool]) -> bool:
    """Wait until `condition` holds, for at most TIMEOUT_S, and return whether it does."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


class Query:
    """A streaming query without Spark: a thread polls its coordinator, takes each batch's tasks, and goes on."""

    def __init__(self, server: KafkaServer) -> None:
        options = {"subscribe": TOPIC, "kafka.bootstrap.servers": server.bootstrap_servers, "kafka.group.id": GROUP}
        self._coordinator = Coordinator(parse_source({**options, "startingOffsets": "latest"}, streaming=True))
        self._document: Value = to_value(INITIAL_DOCUMENT)
        self._ends = threading.Event()
        self._may_poll = threading.Lock()
        self.idle_polls: list[float] = []
        """CPU seconds of each poll that found nothing new."""
        self.plans: list[tuple[int, float, float, float]] = []
        """Of each batch: ranges, seconds of CPU to plan, to make tasks, and when it was planned."""
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="spark", daemon=True)
        self._thread.start()

    def paused(self) -> AbstractContextManager[object]:
        """Return a context in which the query is not polled, as while a batch runs."""
        return self._may_poll

    def status(self) -> Value:
        return self._coordinator.status()

    def stop(self) -> None:
        self._ends.set()
        self._thread.join(TIMEOUT_S)
        self._coordinator.stop()

    def _run(self) -> None:
        try:
            while not self._ends.wait(POLL_EVERY_S):
                with self._may_poll:
                    self._poll()
        except Exception as error:
            self.failure = error

    def _poll(self) -> None:
        start: Value = json.loads(json.dumps(self._document))
        began = time.thread_time()
        end = self._coordinator.latest_offset(start, limits=LimitOptions())
        planned = time.thread_time()
        if end == start:
            self.idle_polls.append(planned - began)
            return
        tasks = self._coordinator.partitions(start, end)
        ranges = sum(len(task.ranges) for task in tasks)
        self.plans.append((ranges, planned - began, time.thread_time() - planned, time.monotonic()))
        self._document = end


class Members:
    """Members of the group that do nothing but join, and take their assignments."""

    def __init__(self, server: KafkaServer, count: int) -> None:
        host, port = server.bootstrap_servers.split(",")[0].rsplit(":", 1)
        options = ClientOptions(bootstrap_servers=((host, int(port)),))
        self._connections = [Connection(host, int(port), options) for _ in range(count)]
        self._until = time.monotonic() + TIMEOUT_S
        for connection in self._connections:
            connection.connect(self._until)

    def join(self) -> list[int]:
        """Join at once, and return how many partitions each is assigned."""
        subscription = encode_subscription(ConsumerSubscription(topics=(TOPIC,)), 1)
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=120_000,
            rebalance_timeout_ms=120_000,
            member_id="",
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=subscription),),
        )
        for connection in self._connections:
            connection.send(request, _JOIN_VERSION)
        joined = [connection.receive(self._until).response for connection in self._connections]
        for connection, answer in zip(self._connections, joined, strict=True):
            assert not answer.error_code, error_of(answer.error_code)
            assert answer.leader != answer.member_id, "the query leads the group"
            sync = SyncGroupRequest(
                group_id=GROUP, generation_id=answer.generation_id, member_id=answer.member_id, assignments=()
            )
            connection.send(sync, _JOIN_VERSION)
        synced = [connection.receive(self._until).response for connection in self._connections]
        shares = []
        for answer in synced:
            assert not answer.error_code, error_of(answer.error_code)
            rows = decode_assignment(answer.assignment).assigned_partitions
            shares.append(sum(len(row.partitions) for row in rows))
        return shares

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


@contextmanager
def row(what: str) -> Iterator[list[str]]:
    """Print a row of the table: seconds of the wall clock and of this process's CPU, and what is appended."""
    notes: list[str] = []
    began, cpu = time.monotonic(), time.process_time()
    yield notes
    wall, used = time.monotonic() - began, time.process_time() - cpu
    click.echo(f"| {what} | {wall:.2f} s | {used:.2f} s | {', '.join(notes)} |")


def measure(server: KafkaServer, partitions: int, members: int) -> None:
    """Print the table."""
    click.echo(f"load: {', '.join(f'{load:.1f}' for load in os.getloadavg())}\n")
    click.echo("| step | wall clock | CPU of the coordinator | |\n|---|---|---|---|")
    with row("start, join, first positions"):
        query = Query(server)
        with_all = f"positions of all {partitions} partitions"
        wait_until(
            lambda: query.failure is not None or len(query.status().get("positions", ())) == partitions, with_all
        )
    with closing_query(query):
        with row("idle for 20 s") as notes:
            query.idle_polls.clear()
            time.sleep(20.0)
            polls = sorted(query.idle_polls)
            notes += [
                f"{len(polls)} polls",
                f"median {1e3 * polls[len(polls) // 2]:.2f} ms",
                f"longest {1e3 * polls[-1]:.0f} ms",
            ]
        before = len(query.plans)
        with row("a record of each partition: written, planned, committed") as notes:
            with query.paused():
                produce_to_each(server, TOPIC, partitions)
            wait_until(lambda: sum(plan[0] for plan in query.plans[before:]) == partitions, "plan of all records")
            admin = admin_client(server)
            wait_until(lambda: committed(admin) == partitions, "commit of all records")
            largest = max(query.plans[before:])
            notes += [
                f"largest batch {largest[0]} ranges",
                f"planned in {largest[1]:.2f} s",
                f"tasks in {largest[2]:.2f} s",
            ]
        with closing(Members(server, members - 1)) as others:
            with row(f"{members - 1} members join the query") as notes:
                shares = others.join()
                notes.append(f"{min(shares)} to {max(shares)} partitions each")
            wait_until(
                lambda: len(query.status().get("positions", ())) == partitions - sum(shares), "rest for the query"
            )


@contextmanager
def closing_query(query: Query) -> Iterator[None]:
    try:
        yield
        if query.failure is not None:
            raise query.failure
    finally:
        query.stop()


@click.command(help=__doc__)
@click.option("--partitions", default=10_000, show_default=True)
@click.option("--members", default=300, show_default=True)
def main(partitions: int, members: int) -> None:
    with KafkaServer(jvm_flags=("-Xmx1500m",), start_timeout_s=120) as server:
        with row(f"create a topic of {partitions} partitions"):
            create_topic(server, TOPIC, partitions)
        measure(server, partitions, members)


if __name__ == "__main__":
    main()
