"""CPU time of each step that iterates over all partitions of a group, with n and with 8n partitions.

    python -m benchmarks.scale [--partitions N] [--only TEXT]

A step that is linear in the partitions takes 8 times as long for 8 times as many; one that sorts them takes a little
longer. The last row is a poll of a query that has read everything, which Spark makes every 10 ms.
`tests/timing/test_scale.py` limits the growth of the same steps, `tests/unit/test_scale.py` that of the lines they
execute.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import time
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

from streamgroup.advice import OffsetLocation
from streamgroup.coordinator.coordinator import Coordinator
from streamgroup.coordinator.planning.batch import next_document
from streamgroup.coordinator.planning.document import from_value, to_value
from streamgroup.coordinator.planning.known_logs import KnownLogs
from streamgroup.coordinator.planning.packing import pack
from streamgroup.coordinator.run.interface import ListOffsets, RunConfig
from streamgroup.coordinator.run.startup import StartingOffsets, losses_of
from streamgroup.coordinator.threads import log_watcher
from streamgroup.executor.read.cursor import Cursor
from streamgroup.executor.read.kafka import KAFKA_READ_FORMAT
from streamgroup.executor.read.recovery import Recovery
from streamgroup.group.assignor_types import GroupMember
from streamgroup.group.assignors import ASSIGNORS
from streamgroup.group.commits import CommitVerdict, refusals
from streamgroup.group.ledger import Ledger
from streamgroup.group.offsets.kafka import commit_verdicts
from streamgroup.group.offsets.store import CommitOffsets, FetchOffsets, MemoryOffsetStore
from streamgroup.group.start_positions import Origin
from streamgroup.kafka.cluster.metadata import snapshot_of
from streamgroup.kafka.cluster.requests import ListedOffset
from streamgroup.kafka.wire.consumer import (
    ConsumerAssignment,
    ConsumerSubscription,
    by_topic,
    decode_subscription,
    each_partition,
    encode_assignment,
    encode_subscription,
)
from streamgroup.kafka.wire.messages.cluster import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from streamgroup.kafka.wire.messages.offsets import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from streamgroup.kafka.wire.schema import decode, encode
from streamgroup.logformat import KAFKA07_LOG
from streamgroup.model import (
    EARLIEST,
    INITIAL_DOCUMENT,
    Broker,
    ClusterSnapshot,
    CommittedOffset,
    ConfiguredOffsets,
    Document,
    FetchRange,
    OffsetRange,
    PartitionInfo,
    Position,
    TopicInfo,
    TopicPartition,
)
from streamgroup.options.parse import parse_source
from streamgroup.options.types import LimitOptions, Subscription

PARTITIONS = 10_000
GROWTH = 8
MEMBERS, MANY_MEMBERS = 60, 300

Step = Callable[[], object]
"""The timed part of a step, whose input is made before."""


def rows(n: int, topics: int = 1) -> list[TopicPartition]:
    """`n` partitions of so many topics."""
    return [TopicPartition(f"topic-{i % topics:05d}", i // topics) for i in range(n)]


def topics_of(partitions: list[TopicPartition], topic_id: str = "id") -> dict[str, TopicInfo]:
    numbers: dict[str, list[int]] = {}
    for tp in partitions:
        numbers.setdefault(tp.topic, []).append(tp.partition)
    return {
        name: TopicInfo(name, tuple(PartitionInfo(p, p % 5, 0) for p in sorted(found)), topic_id)
        for name, found in numbers.items()
    }


# -- the ledger --------------------------------------------------------------------------------------------------------


def assigned(partitions: list[TopicPartition], start: Document = INITIAL_DOCUMENT) -> Ledger:
    ledger = Ledger("g", "run", "lineage")
    ledger.complete_batch(start)
    ledger.assigned("m", 1, partitions, frozenset())
    return ledger


def resolve(n: int) -> Step:
    partitions = rows(n)
    ledger = assigned(partitions)
    ledger.offsets_found("m", 1, {}, topics_of(partitions))
    offsets = dict.fromkeys(partitions, 5)
    return lambda: ledger.resolved(1, offsets)


def recreate(n: int) -> Step:
    partitions = rows(n)
    ledger = assigned(partitions)
    ledger.offsets_found("m", 1, dict.fromkeys(partitions, CommittedOffset(3)), topics_of(partitions))
    fewer = topics_of(partitions[: n // 2], "another")
    return lambda: ledger.topics_seen(fewer)


def gain_in_a_replay(n: int) -> Step:
    partitions = rows(n)
    ledger = Ledger("g", "run", "lineage")
    ranges = tuple(OffsetRange(tp, 3, 9) for tp in partitions)
    positions = dict.fromkeys(partitions, Position(9, "id"))
    ledger.replayed(INITIAL_DOCUMENT, Document("g", "lineage", "before", 4, ranges, positions), ranges, {})
    ledger.assigned("m", 1, partitions, frozenset())
    topics = topics_of(partitions)
    return lambda: ledger.offsets_found("m", 1, {}, topics)


def sink_and_commit(n: int) -> Step:
    partitions = rows(n)
    ledger = assigned(partitions)
    ledger.offsets_found("m", 1, dict.fromkeys(partitions, CommittedOffset(3)), topics_of(partitions))
    ranges = tuple(OffsetRange(tp, 3, 9) for tp in partitions)
    document = Document("g", "lineage", "run", 1, ranges, dict.fromkeys(partitions, Position(9, "id")))
    ledger.emitted(document)
    ledger.handed_out(document)

    def step() -> None:
        ledger.complete_batch(document)
        commit = ledger.commit_due(0.0)
        assert commit is not None
        ledger.answered(commit, CommitVerdict.ACCEPTED, 0.0)

    return step


# -- commits -----------------------------------------------------------------------------------------------------------


def memory_store(n: int) -> Step:
    store = MemoryOffsetStore()
    commit = CommitOffsets(1, "", "", -1, dict.fromkeys(rows(n, n // 5), CommittedOffset(1)), 1)
    store.commit(commit, 0.0)
    fetch = FetchOffsets(2, "", frozenset(), 1)
    return lambda: store.fetch(fetch, 0.0)


def refuse(n: int) -> Step:
    """Handle a refused commit after half of the partitions have been deleted."""
    partitions = rows(n)
    offsets = dict.fromkeys(partitions, CommittedOffset(1))
    rows_of = tuple(OffsetCommitResponsePartition(partition_index=i, error_code=3) for i in range(n))
    response = OffsetCommitResponse(topics=(OffsetCommitResponseTopic(name=partitions[0].topic, partitions=rows_of),))
    snapshot = ClusterSnapshot({}, topics_of(partitions[n // 2 :]))
    return lambda: refusals(offsets, commit_verdicts(response), lambda tp: snapshot.partition(tp) is not None)


# -- assignments -------------------------------------------------------------------------------------------------------


def assign(strategy: str, count: int = MEMBERS) -> Callable[[int], Step]:
    def make(n: int) -> Step:
        topics = topics_of(rows(n, n // 5))
        members = {f"m-{i:04d}": GroupMember(tuple(topics)) for i in range(count)}
        return lambda: ASSIGNORS[strategy](members, topics)

    return make


def stick_to_what_two_claim(n: int) -> Step:
    partitions = rows(n)
    topics = topics_of(partitions)
    claims = {"a": tuple(partitions), "b": tuple(reversed(partitions))}
    members = {name: GroupMember(tuple(topics), owned=owned, generation=3) for name, owned in claims.items()}
    return lambda: ASSIGNORS["cooperative-sticky"](members, topics)


def join_one_of_many(n: int) -> Step:
    """Read the subscriptions of many members to one topic, assign it, and write the assignments, as the leader does."""
    topics = topics_of(rows(n))
    names = [f"m-{i:04d}" for i in range(MANY_MEMBERS)]
    owned = ASSIGNORS["cooperative-sticky"]({name: GroupMember(tuple(topics)) for name in names[1:]}, topics)
    subscriptions = {
        name: ConsumerSubscription(
            topics=tuple(topics),
            owned_partitions=by_topic(owned.get(name, ())),
            generation_id=3 if name in owned else -1,
        )
        for name in names
    }
    received = {name: encode_subscription(each) for name, each in subscriptions.items()}

    def step() -> object:
        members = {}
        for name, data in received.items():
            read = decode_subscription(data)
            mine = each_partition(read.owned_partitions)
            members[name] = GroupMember(read.topics, owned=mine, generation=read.generation_id)
        shares = ASSIGNORS["cooperative-sticky"](members, topics)
        return [encode_assignment(ConsumerAssignment(assigned_partitions=by_topic(share))) for share in shares.values()]

    return step


def stick_while_one_joins(n: int) -> Step:
    """Members that subscribe to different topics, one of them new."""
    rng = random.Random(1)
    topics = topics_of(rows(n, n // 5))
    names = list(topics)
    members = {f"m-{i:04d}": GroupMember(tuple(rng.sample(names, len(names) * 3 // 4))) for i in range(MEMBERS)}
    shares = ASSIGNORS["cooperative-sticky"](members, topics)
    again = {m: GroupMember(g.topics, owned=tuple(shares[m]), generation=1) for m, g in members.items()}
    again["new"] = GroupMember(tuple(names))
    return lambda: ASSIGNORS["cooperative-sticky"](again, topics)


def stick_where_one_has_all(n: int) -> Step:
    partitions = rows(n, 2)
    topics = topics_of(partitions)
    members = {
        "a": GroupMember(tuple(topics), owned=tuple(partitions), generation=3),
        "b": GroupMember(tuple(topics)),
        "c": GroupMember(tuple(topics)[:1]),
    }
    return lambda: ASSIGNORS["cooperative-sticky"](members, topics)


# -- metadata ---------------------------------------------------------------------------------------------------------


def read_metadata(n: int) -> Step:
    """Decode the answer of a broker about one topic, and compare it with the last one."""
    wanted = frozenset({rows(1)[0].topic})
    partitions = tuple(
        MetadataResponsePartition(
            partition_index=i, leader_id=i % 5, leader_epoch=3, replica_nodes=(i % 5, (i + 1) % 5), isr_nodes=(i % 5,)
        )
        for i in range(n)
    )
    brokers = tuple(MetadataResponseBroker(node_id=i, host="h", port=i) for i in range(5))
    topic = MetadataResponseTopic(name=rows(1)[0].topic, partitions=partitions)
    version = MetadataResponse.VERSIONS[1]
    data = encode(MetadataResponse(brokers=brokers, topics=(topic,)), version)
    known = KnownLogs(300.0)
    held = rows(n)

    def step() -> None:
        snapshot, _ = snapshot_of(decode(MetadataResponse, data, version), wanted)
        known.take_snapshot(snapshot, held, 1.0)

    return step


# -- planning ----------------------------------------------------------------------------------------------------------


def start(n: int) -> Step:
    origins = {tp: (Origin.EARLIEST, Origin.STARTING)[tp.partition % 2] for tp in rows(n)}
    config = RunConfig(
        group_id="g",
        is_member=True,
        location=OffsetLocation("g"),
        subscription=Subscription(topics=("t",)),
        starting=ConfiguredOffsets(EARLIEST),
        join_timeout_s=60.0,
        session_timeout_s=45.0,
        dead_member_s=45.0,
        max_poll_s=300.0,
    )
    nobody: Any = None
    finder = StartingOffsets(config, nobody, nobody, perform=nobody, is_new=lambda tp: False)

    def find() -> object:
        steps = finder.offsets(origins)
        wait = next(steps)
        try:
            while True:
                listed = {tp: ListedOffset(0) for tp in wait.wanted} if isinstance(wait, ListOffsets) else None
                wait = steps.send(0.0 if listed is None else (0.0, listed))
        except StopIteration as done:
            return losses_of("g", origins, done.value)

    return find


def plan(n: int) -> Step:
    positions = dict.fromkeys(rows(n), Position(3, "id", 1))
    ends = dict.fromkeys(positions, 1_000_000)
    return lambda: next_document(
        INITIAL_DOCUMENT, group="g", lineage="l", run="r", positions=positions, ends=ends, max_offsets=10 * n
    )


def document_of(n: int) -> Document:
    ranges = tuple(OffsetRange(tp, 3, 9) for tp in rows(n))
    return Document("g", "l", "r", 1, ranges, {r.partition: Position(9, "id", 1) for r in ranges})


def write_document(n: int) -> Step:
    document = document_of(n)
    return lambda: to_value(document)


def read_document(n: int) -> Step:
    value = to_value(document_of(n))
    return lambda: from_value(value)


def packing(size: int, min_partitions_per_range: int = 0) -> Callable[[int], Step]:
    def make(n: int) -> Step:
        ranges = [FetchRange(OffsetRange(tp, 0, size), Broker(tp.partition % 3, "h", 1)) for tp in rows(n)]
        return lambda: pack(ranges, min_partitions=n * min_partitions_per_range or None, packed_offsets=20_000)

    return make


def divide(n: int) -> Step:
    """Divide one log of Kafka 0.7 with `n` segments."""
    ranges = [FetchRange(OffsetRange(TopicPartition("t", 0), 0, 100 * n), None)]
    segments = {ranges[0].range.partition: range(0, 100 * n, 100)}
    return lambda: pack(ranges, KAFKA07_LOG, min_partitions=n // 2, segments=segments)


def progress(n: int) -> Step:
    """Track the progress of a task that reads `n` small ranges, each of which is handed out by itself."""
    options = parse_source({"subscribe": "t", "kafka.bootstrap.servers": "127.0.0.1:1"}, streaming=False)
    lookup = KAFKA_READ_FORMAT.lookup(options.client, options.fetch, time.monotonic)
    recovery = Recovery(lookup, options.client, options.fetch, fail_on_data_loss=True, clock=time.monotonic)
    cursors = [Cursor.of(FetchRange(OffsetRange(tp, 0, 1), None)) for tp in rows(n)]

    def step() -> None:
        for cursor in cursors:
            cursor.mark_waiting(0.0)
            recovery.note_progress()

    return step


STEPS: dict[str, Callable[[int], Step]] = {
    "place what startingOffsets gave (`Ledger.resolved`)": resolve,
    "a topic is recreated with half its partitions (`Ledger.topics_seen`)": recreate,
    "gain partitions while a batch is replayed (`Ledger.offsets_found`)": gain_in_a_replay,
    "a batch has sunk: commit and its answer": sink_and_commit,
    "offsets fetched in `group.mode=off`, 5 partitions a topic": memory_store,
    "a refused commit, half of the partitions deleted": refuse,
    "assign `streamgroup-range`, 5 partitions a topic, 60 members": assign("streamgroup-range"),
    f"assign `streamgroup-range`, 5 partitions a topic, {MANY_MEMBERS} members": assign(
        "streamgroup-range", MANY_MEMBERS
    ),
    "assign `range`": assign("range"),
    "assign `roundrobin`": assign("roundrobin"),
    "assign `cooperative-sticky`": assign("cooperative-sticky"),
    f"`cooperative-sticky`, one of {MANY_MEMBERS} joins: subscriptions to assignments": join_one_of_many,
    "`cooperative-sticky`, two members claim everything": stick_to_what_two_claim,
    "`cooperative-sticky`, unlike subscriptions, a member joins": stick_while_one_joins,
    "`cooperative-sticky`, unlike subscriptions, one member has all": stick_where_one_has_all,
    "read the metadata": read_metadata,
    "starting offsets of two origins": start,
    "plan a batch": plan,
    "write its document": write_document,
    "read its document": read_document,
    "pack, a task for each range": packing(11_000),
    "pack, small ranges": packing(5),
    "pack, small ranges, `minPartitions` as many": packing(5, 1),
    "divide a log of Kafka 0.7 with n segments": divide,
    "hand out n small ranges of one task": progress,
}
"""The steps by name. Each is linear in the number of partitions, or sorts them once."""


def cpu_seconds(make: Callable[[int], Step], n: int, times: int = 3) -> float:
    """Return the least CPU time of `times` runs, each on fresh data; only this thread counts."""
    best = float("inf")
    for _ in range(times):
        step = make(n)
        gc.disable()
        try:
            began = time.thread_time()
            step()
            best = min(best, time.thread_time() - began)
        finally:
            gc.enable()
    return best


# -- polls -------------------------------------------------------------------------------------------------------------


class Logs:
    """A cluster whose logs end at 100."""

    def __init__(self, partitions: list[TopicPartition]) -> None:
        self.snapshot_ = ClusterSnapshot({i: Broker(i, "h", i) for i in range(5)}, topics_of(partitions))

    def deadline(self, timeout_ms: int) -> float:
        return time.monotonic() + timeout_ms / 1000

    def snapshot(self, *_: object, **__: object) -> ClusterSnapshot:
        return self.snapshot_

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *_: object, **__: object
    ) -> dict[TopicPartition, ListedOffset]:
        return {tp: ListedOffset(0 if at == EARLIEST else 100, -1, 0) for tp, at in wanted.items()}

    def list_offsets_once(
        self, wanted: Mapping[TopicPartition, int], *_: object, **__: object
    ) -> tuple[dict[TopicPartition, ListedOffset], list[str]]:
        return self.list_offsets(wanted), []

    def close(self) -> None:
        """Close nothing: this cluster answers from memory."""


class Polls:
    """A query of `n` partitions in `group.mode=off` that has read everything. Spark's thread polls it."""

    def __init__(self, n: int) -> None:
        partitions = rows(n)
        given = {"subscribe": partitions[0].topic, "kafka.bootstrap.servers": "127.0.0.1:1", "group.mode": "off"}
        options = parse_source({**given, "startingOffsets": "latest"}, streaming=True)
        with mock.patch.object(log_watcher, "open_cluster", return_value=Logs(partitions)):
            self.coordinator = Coordinator(options)
            self.text = json.dumps(to_value(INITIAL_DOCUMENT))
            # The first document has no ranges: it carries the positions that startingOffsets gave.
            deadline = time.monotonic() + 60.0
            while self.text.count("[") < n:
                assert time.monotonic() < deadline, "no plan"
                self.poll()

    def poll(self) -> float:
        """Poll as Spark does, with a value decoded anew from the same text. Return the CPU seconds of the call."""
        value = json.loads(self.text)
        began = time.thread_time()
        planned = self.coordinator.latest_offset(value, limits=LimitOptions())
        taken = time.thread_time() - began
        self.text = json.dumps(planned)
        return taken

    def cpu_seconds(self, polls: int = 200) -> float:
        """Return the mean of `polls` polls, without Spark's encoding and decoding of the documents as JSON."""
        return sum(self.poll() for _ in range(polls)) / polls

    def stop(self) -> None:
        self.coordinator.stop()


# -- the table ---------------------------------------------------------------------------------------------------------


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--partitions", type=int, default=PARTITIONS, help="how many; an eighth is measured, too")
    arguments.add_argument("--only", default="", help="only steps whose name has this text")
    asked = arguments.parse_args()
    many, few = asked.partitions, asked.partitions // GROWTH
    print(f"| step | {few} partitions | {many} partitions | growth (x{GROWTH}) |\n|---|---|---|---|")
    for name, make in STEPS.items():
        if asked.only in name:
            small, large = cpu_seconds(make, few), cpu_seconds(make, many)
            print(f"| {name} | {1e3 * small:.1f} ms | {1e3 * large:.1f} ms | {large / small:.1f} |", flush=True)
    name = "an idle poll (`latestOffset`)"
    if asked.only in name:
        times = []
        for n in (few, many):
            polls = Polls(n)
            times.append(polls.cpu_seconds())
            polls.stop()
        print(f"| {name} | {1e3 * times[0]:.2f} ms | {1e3 * times[1]:.2f} ms | {times[1] / times[0]:.1f} |")


if __name__ == "__main__":
    main()
