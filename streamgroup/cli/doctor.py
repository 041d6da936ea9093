"""`streamgroup doctor`: check this machine, the versions that a cluster supports, and the state of groups.

Each check yields findings, and none prints. A check that cannot run yields a failed finding, so all others still run.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cramjam

from streamgroup import __version__
from streamgroup.cli._click import (
    OR_UNITS,
    OUTPUT,
    Column,
    Duration,
    SectionedCommand,
    flag,
    json_option,
    json_rows,
    option,
    table,
    timeout_option,
)
from streamgroup.cli._cluster import EITHER, ClusterAddress, client_options, cluster_options
from streamgroup.cli._group_stores import OFFSETS_TOPIC, GroupStore, opened_store
from streamgroup.cli._offset_store import (
    StoreAddress,
    lagging,
    looks_of,
    offset_database,
    passed,
    store_options,
)
from streamgroup.cli._properties import without_prefix
from streamgroup.errors import AuthorizationError, ConfigError, NoBrokersYetError, StreamGroupError
from streamgroup.frozen import frozen
from streamgroup.kafka.cluster.configs import broker_config
from streamgroup.kafka.cluster.interface import Cluster, kafka_of, open_cluster
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.kafka.cluster.transactions import HeldUp, held_up, open_transactions
from streamgroup.kafka.net.connection import Connection
from streamgroup.kafka.records import kernel
from streamgroup.kafka.wire.kafka07 import LATEST_TIME, OffsetsRequest07
from streamgroup.kafka.wire.messages.admin import DescribeGroupsRequest, ListGroupsRequest
from streamgroup.kafka.wire.messages.cluster import MetadataRequest
from streamgroup.kafka.wire.messages.group import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from streamgroup.kafka.wire.messages.log import FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from streamgroup.kafka.wire.schema import Request
from streamgroup.kafka.wire.versions import BrokerVersions
from streamgroup.model import ClusterSnapshot, Dialect, GroupDescription, GroupState, TopicPartition, name_some
from streamgroup.options.types import ClientOptions
from streamgroup.spark_home import pyspark_version, spark_submit
from streamgroup.testing.java import java_executable, java_version
from streamgroup.text import counted, first_of, host_port

if TYPE_CHECKING:
    from streamgroup.sql.operations import OffsetDatabase


class CheckVerdict(Enum):
    """The verdict of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@frozen
class Finding:
    """The result of one check: its subject, the verdict, and a text with the next step unless the verdict is OK."""

    subject: str
    verdict: CheckVerdict
    text: str


@frozen
class ApiVersions:
    """The versions of one API: at the broker, in this client, and the one in use. None means no version."""

    broker: str
    api: str
    at_broker: str | None
    at_client: str
    used: int | None


APIS: tuple[type[Request[Any]], ...] = (
    MetadataRequest,
    ListOffsetsRequest,
    FetchRequest,
    OffsetForLeaderEpochRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    SyncGroupRequest,
    HeartbeatRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ListGroupsRequest,
    DescribeGroupsRequest,
)
"""The requests of queries and commands."""

_OFFSETS_FACTOR = "offsets.topic.replication.factor"
_OFFSETS_REPLICAS = 3
"""The default of this setting of the brokers."""
_SHOWS_COMMAND = "`streamgroup topics --open-transactions` shows the command that aborts it"
_EXECUTORS = "Executors of Spark"
_PACKAGES = ("pyarrow", "numpy", "cryptography", "kazoo")
_CODECS = ("gzip", "snappy", "lz4", "zstd")
_SAMPLE = b"streamgroup" * 20
_RELEASE_OF_FETCH = {
    2: "0.10.0",
    3: "0.10.1",
    5: "0.11",
    6: "1.0",
    7: "1.1",
    8: "2.0",
    10: "2.1",
    11: "2.3",
    12: "2.7",
    13: "3.1",
    15: "3.5",
    16: "3.7",
    17: "3.9",
    18: "4.1",
}
"""The release that introduced each version of Fetch.

Brokers do not report their release, and Fetch has changed most often.
"""
_FETCH_OF_4_0 = (4, 17)
"""The versions of Fetch that 4.0 supports. It removed the versions that only clients before 2.1 use (KIP-896)."""
_LATER_RELEASES = ((35, "DescribeLogDirs", 5, "4.3"), (ListOffsetsRequest.API_KEY, "ListOffsets", 11, "4.2"))
"""API key, name and version of what is new since the release of the newest Fetch, the newest release first."""


# -- this machine ------------------------------------------------------------------------------------------------------


def of_this_machine() -> Iterator[Finding]:
    """Check streamgroup, Python, Java, PySpark, the packages, the records kernel and the codecs."""
    yield Finding("streamgroup", CheckVerdict.OK, f"{__version__} ({Path(__file__).parents[1]})")
    yield Finding("system", CheckVerdict.OK, platform.platform())
    yield Finding("python", CheckVerdict.OK, f"{platform.python_version()} ({sys.executable})")
    yield _tried("java", _java)
    yield _pyspark()
    yield _tried("packages", lambda: ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES))
    if kernel.name() == "compiled":
        yield Finding("records kernel", CheckVerdict.OK, "compiled")
    else:
        text = "numpy, which is slower. Reinstall streamgroup on a machine with a C compiler and Python's headers"
        yield Finding("records kernel", CheckVerdict.WARN, text)
    yield _tried("codecs", _codecs)


def _java() -> str:
    executable = str(java_executable())
    return f"{java_version(executable)[0]} ({executable})"


def _pyspark() -> Finding:
    try:
        return of_pyspark(pyspark_version())
    except ConfigError as error:
        return Finding("pyspark", CheckVerdict.FAIL, str(error))


def _codecs() -> str:
    for name in _CODECS:
        codec = getattr(cramjam, name)
        if bytes(codec.decompress(codec.compress(_SAMPLE))) != _SAMPLE:
            raise StreamGroupError(
                f"cannot decompress {name}: cramjam returns other bytes than it has compressed. Reinstall cramjam"
            )
    return ", ".join(_CODECS)


def _tried(subject: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(subject, CheckVerdict.OK, look())
    except (StreamGroupError, importlib.metadata.PackageNotFoundError) as error:
        return Finding(subject, CheckVerdict.FAIL, str(error))


TRIED = ("4.2", "4.3")
"""Minor versions, ascending. The first is the lower bound in pyproject.toml."""


def of_pyspark(version: str) -> Finding:
    """Return whether streamgroup is tested with the minor version of `version`, such as `4.2.0`."""
    if ".".join(version.split(".")[:2]) in TRIED:
        return Finding("pyspark", CheckVerdict.OK, version)
    tried = " and ".join(TRIED)
    text = f"{version}: streamgroup is tested with PySpark {tried}. Install one of these if a query fails"
    return Finding("pyspark", CheckVerdict.WARN, text)


# -- the cluster -------------------------------------------------------------------------------------------------------


def of_cluster(options: ClientOptions) -> Iterator[Finding | ApiVersions]:
    """Check that the cluster can be reached, and which versions each broker supports."""
    where = "zookeeper" if options.zookeeper and not options.bootstrap_servers else "cluster"
    try:
        with closing(open_cluster(options)) as cluster:
            try:
                snapshot = cluster.snapshot(None, cluster.deadline())
            except NoBrokersYetError as error:
                servers = kafka_of(cluster, cluster.deadline()).options.bootstrap_servers
                yield from _without_brokers(where, error, servers, options)
                return
            problem = _of_offsets_topic(cluster, snapshot) if snapshot.dialect is Dialect.KAFKA else ""
            transactions = list(_of_transactions(cluster, snapshot)) if snapshot.dialect is Dialect.KAFKA else []
    except StreamGroupError as error:
        yield Finding(where, CheckVerdict.FAIL, str(error))
        return
    yield Finding(where, *_of_snapshot(snapshot))
    coordinates = False
    for broker in snapshot.brokers.values():
        for row in _of_broker(f"broker {broker.node_id}", broker.host, broker.port, snapshot.dialect, options):
            yield row
            if isinstance(row, ApiVersions) and row.api == FindCoordinatorRequest.NAME:
                coordinates |= row.used is not None
    if coordinates and problem:
        yield Finding("groups", CheckVerdict.WARN, problem)
    yield from transactions


def _of_transactions(cluster: Cluster, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Yield findings for hanging and for open transactions. None without transactions, and for brokers before 3.0."""
    kafka = kafka_of(cluster, cluster.deadline())
    now_ms = int(time.time() * 1000)
    try:
        found = open_transactions(kafka, kafka.deadline())
    except StreamGroupError:  # few clusters have transactions, and an older broker lists none
        return
    if hanging := _hanging(kafka, snapshot, now_ms):
        first = hanging[0]
        whose = "of an unknown id" if first.transaction is None else f"of {first.transaction.transactional_id!r}"
        yield Finding(
            "transactions",
            CheckVerdict.WARN,
            f"hanging transaction {whose} in {first.partition}, at offset {first.stable}"
            f"{f', and {len(hanging) - 1} more' if len(hanging) > 1 else ''}: no coordinator will end it. Consumers "
            f"with isolation.level=read_committed wait there. {_SHOWS_COMMAND}",
        )
    late = [one for one in found if one.is_overdue(now_ms)]
    if late:
        oldest = late[0]
        yield Finding(
            "transactions",
            CheckVerdict.WARN,
            f"{oldest.transactional_id!r} has been {oldest.state} for {(now_ms - oldest.started_ms) // 1000} s, with a "
            f"timeout of {oldest.timeout_ms // 1000} s. Consumers with isolation.level=read_committed wait at "
            f"{name_some(oldest.partitions)}. Restart the broker that is its coordinator, or upgrade it (KAFKA-19999). "
            f"{_SHOWS_COMMAND}",
        )
    elif found:
        oldest = found[0]
        yield Finding(
            "transactions",
            CheckVerdict.OK,
            f"{counted(len(found), 'open transaction')}; the oldest, of {oldest.transactional_id!r}, for "
            f"{max(0, now_ms - oldest.started_ms) // 1000} s",
        )


def _hanging(kafka: KafkaCluster, snapshot: ClusterSnapshot, now_ms: int) -> list[HeldUp]:
    """Return the hanging transactions; none if a leader does not answer."""
    partitions = (TopicPartition(t.name, p.partition) for t in snapshot.topics.values() for p in t.partitions)
    led = [tp for tp in partitions if snapshot.leader(tp) is not None]
    try:
        return [one for one in held_up(kafka, led, kafka.deadline(), now_ms) if one.is_hanging]
    except StreamGroupError:
        return []


def _of_offsets_topic(cluster: Cluster, snapshot: ClusterSnapshot) -> str:
    """Return why groups may have no group coordinator, or an empty text."""
    try:
        topic = cluster.snapshot([OFFSETS_TOPIC], cluster.deadline()).topics.get(OFFSETS_TOPIC)
    except AuthorizationError:  # other checks do not need to describe this topic
        return ""
    if topic is not None:
        without = sum(info.leader not in snapshot.brokers for info in topic.partitions)
        which = f"{without} of {counted(len(topic.partitions), 'partition')} of {OFFSETS_TOPIC}"
        why = f"{which} have no leader, so the groups in them have no coordinator. Start the missing brokers"
        return why if without else ""
    return _of_offsets_factor(cluster, snapshot)


def _of_offsets_factor(cluster: Cluster, snapshot: ClusterSnapshot) -> str:
    """Return why the brokers cannot create the topic of the groups' offsets, empty if they can."""
    brokers = len(snapshot.brokers)
    try:
        factor = _offsets_factor(cluster, snapshot)
    except StreamGroupError:  # such as a missing permission, or brokers before 0.11
        if brokers >= _OFFSETS_REPLICAS:
            return ""
        return (
            f"the topic {OFFSETS_TOPIC} does not exist yet. The brokers create it for the first group, with "
            f"{_OFFSETS_FACTOR} replicas ({_OFFSETS_REPLICAS} by default). With more replicas than brokers ({brokers}) "
            "they cannot, and no group gets a coordinator. Check this setting of the brokers"
        )
    if factor <= brokers:
        return ""
    return (
        f"the topic {OFFSETS_TOPIC} does not exist, and the brokers cannot create it: {_OFFSETS_FACTOR} is {factor}, "
        f"and the cluster has {counted(brokers, 'broker')}. So no group gets a coordinator. Start more brokers, or "
        "lower this setting of each broker and restart it"
    )


def _offsets_factor(cluster: Cluster, snapshot: ClusterSnapshot) -> int:
    """Return how many replicas the topic of the groups' offsets gets. Raises StreamGroupError if it cannot be read."""
    deadline = cluster.deadline()
    value = broker_config(kafka_of(cluster, deadline), min(snapshot.brokers), _OFFSETS_FACTOR, deadline)
    if value is None:
        raise StreamGroupError(f"the broker does not show {_OFFSETS_FACTOR}")
    return int(value)


def _of_snapshot(snapshot: ClusterSnapshot) -> tuple[CheckVerdict, str]:
    partitions = [info for topic in snapshot.topics.values() for info in topic.partitions]
    led = sum(info.leader in snapshot.brokers for info in partitions)
    seen = ", ".join(
        counted(len(all_of), noun)
        for all_of, noun in ((snapshot.brokers, "broker"), (snapshot.topics, "topic"), (partitions, "partition"))
    )
    if led == len(partitions):
        return CheckVerdict.OK, seen
    without = f"{len(partitions) - led} of them without a leader"
    return CheckVerdict.WARN, f"{seen}, {without}. Queries wait until they have one"


def _without_brokers(
    where: str, error: NoBrokersYetError, servers: Iterable[tuple[str, int]], options: ClientOptions
) -> Iterator[Finding | ApiVersions]:
    """Check the bootstrap servers of a cluster whose metadata names no broker, as in a new Kafka 0.8 cluster."""
    found = [
        row
        for host, port in servers
        for row in _of_broker(f"broker {host_port(host, port)}", host, port, Dialect.KAFKA, options)
    ]
    if any(
        isinstance(row, ApiVersions) and row.api == JoinGroupRequest.NAME and row.at_broker is None for row in found
    ):
        text = "no topics. The brokers learn their addresses with the first topic: create a topic, then check again"
        yield Finding(where, CheckVerdict.WARN, text)
    else:
        yield Finding(where, CheckVerdict.FAIL, str(error))
    yield from found


def _of_broker(
    subject: str, host: str, port: int, dialect: Dialect, options: ClientOptions
) -> Iterator[Finding | ApiVersions]:
    deadline = time.monotonic() + options.default_api_timeout_ms / 1000
    try:
        with closing(Connection(host, port, options, dialect=dialect)) as connection:
            connection.connect(deadline)
            if dialect is Dialect.KAFKA07:
                connection.send(OffsetsRequest07("streamgroup-doctor", 0, LATEST_TIME, 1))
                connection.receive(deadline)
                seen = "Kafka 0.7: ZooKeeper stores its groups and their offsets, and an offset is a byte position"
                yield Finding(subject, CheckVerdict.OK, f"{host_port(host, port)} runs {seen}")
                return
            versions = connection.versions
    except StreamGroupError as error:
        yield Finding(subject, CheckVerdict.FAIL, str(error))
        return
    yield Finding(subject, *_of_versions(host_port(host, port), versions, options))
    yield from (_api_versions(subject, api, versions) for api in APIS)


def _of_versions(address: str, versions: BrokerVersions, options: ClientOptions) -> tuple[CheckVerdict, str]:
    text = f"{address} runs {release_of(versions)}"
    if versions.supports(JoinGroupRequest, JoinGroupRequest.VERSIONS[0]) or JoinGroupRequest.API_KEY in versions.ranges:
        protocols = ", also of the consumer protocol (KIP-848)" if versions.has_consumer_protocol else ""
        return CheckVerdict.OK, f"{text}: it coordinates groups{protocols}"
    if options.zookeeper is not None:
        return CheckVerdict.OK, f"{text}: ZooKeeper stores its groups"
    return CheckVerdict.WARN, (
        f"{text}, which has no group protocol. Use --zookeeper for this command and 'zookeeper.connect' for queries, "
        "or read without other members (group.mode=commit)"
    )


def release_of(versions: BrokerVersions) -> str:
    """Return Kafka's release, derived from the versions of its APIs."""
    if versions.release:
        return f"Kafka {versions.release}"
    for api_key, name, version, release in _LATER_RELEASES:
        highest = versions.ranges.get(api_key, (0, 0))[1]
        if highest >= version:
            return f"Kafka {release} or later ({name} v{highest})"
    oldest, newest = versions.ranges.get(FetchRequest.API_KEY, (0, 0))
    since = max((fetch for fetch in _RELEASE_OF_FETCH if fetch <= newest), default=None)
    if since is None:
        return "a protocol without a supported version of Fetch"
    if (oldest, newest) == _FETCH_OF_4_0:
        return f"Kafka 4.0 or later (Fetch v{oldest} to v{newest})"
    return f"Kafka {_RELEASE_OF_FETCH[since]} or later (Fetch v{newest})"


def _api_versions(broker: str, api: type[Request[Any]], versions: BrokerVersions) -> ApiVersions:
    at_client = "{}-{}".format(*api.VERSIONS)
    if api.API_KEY not in versions.ranges:
        return ApiVersions(broker, api.NAME, None, at_client, None)
    at_broker = "{}-{}".format(*versions.ranges[api.API_KEY])
    try:
        return ApiVersions(broker, api.NAME, at_broker, at_client, versions.highest(api))
    except StreamGroupError:
        return ApiVersions(broker, api.NAME, at_broker, at_client, None)


# -- groups ------------------------------------------------------------------------------------------------------------


def of_groups(options: ClientOptions, names: Iterable[str]) -> Iterator[Finding]:
    """Check the state, the members and the lag of each group, and where its offsets are stored."""
    wanted = tuple(dict.fromkeys(names))
    if not wanted:
        return
    try:
        with opened_store(options) as store:
            deadline = time.monotonic() + options.default_api_timeout_ms / 1000
            for name in wanted:
                try:
                    yield Finding(f"group {name}", *_of_group(store, name, deadline))
                except AuthorizationError as error:  # the user may have permissions for the other groups
                    yield Finding(f"group {name}", CheckVerdict.FAIL, str(error))
            for note in dict.fromkeys(store.notes):
                yield Finding("groups", CheckVerdict.WARN, note)
    except StreamGroupError as error:
        yield Finding("groups", CheckVerdict.FAIL, str(error))


def _of_group(store: GroupStore, name: str, deadline: float) -> tuple[CheckVerdict, str]:
    group = store.describe([name], deadline)[name]
    if group.state == GroupState.DEAD:
        return CheckVerdict.WARN, "the group does not exist: no member has joined it, and it has no offsets"
    if group.other_kind:
        return CheckVerdict.WARN, f"{group.state}, a {group.other_kind} group: no query of streamgroup can join it"
    commits = store.committed(name, deadline)
    ends = store.log_ends(commits, deadline)
    lag = sum(max(0, ends[tp] - commit.offset) for tp, commit in commits.items() if tp in ends)
    members = "unknown members" if group.member_count is None else counted(group.member_count, "member")
    text = (
        f"{group.state}, {members}{_in_epoch(group)}, commits of {counted(len(commits), 'partition')}, "
        f"lag {lag}, stored at {store.coordinator(name, deadline)}"
    )
    return CheckVerdict.WARN if group.is_rebalancing else CheckVerdict.OK, text


def _in_epoch(group: GroupDescription) -> str:
    """Return the epoch of a group of KIP-848, and how many partitions it moves; "" for other groups."""
    if group.epoch is None:
        return ""
    moving = f", moving {counted(len(group.moving), 'partition')}" if group.moving else ""
    return f", consumer protocol in epoch {group.epoch}{moving}"


# -- the offset table --------------------------------------------------------------------------------------------------

_TABLE = "offset table"
_OLD_STAGING_S = 86_400


def of_offset_table(
    address: StoreAddress, timeout_ms: int, names: Iterable[str], options: ClientOptions | None
) -> Iterator[Finding]:
    """Check the database of offsets: whether a query can use it, staging tables, and the offsets of the groups `names`.

    `options` reach the cluster with the commits of the groups; None without a cluster.
    """
    try:
        with offset_database(address, timeout_ms) as database:
            state = database.state()
            place = f"{state.server} at {database.where}"
            if state.lacking:
                text = f"{place}: the user may not {', '.join(state.lacking)}. Grant it to the user of the query"
                yield Finding(_TABLE, CheckVerdict.FAIL, text)
                return
            if state.lacking_for_rows:
                text = f"the user lacks {' and '.join(state.lacking_for_rows)}, which streamgroup.sql_sink needs"
                yield Finding("staging tables", CheckVerdict.WARN, f"{text}. Grant it, unless all SQL is your own")
            if not state.has_table:
                yield Finding(_TABLE, CheckVerdict.OK, f"{place}: no table yet. The first query creates it")
                return
            text = f"{place}: the table has offsets of {counted(len(database.groups()), 'group')}"
            yield Finding(_TABLE, CheckVerdict.OK, text)
            yield from _of_staging(database)
            for name in dict.fromkeys(names):
                yield Finding(f"offsets of {name}", *_of_offsets(database, name, options))
    except StreamGroupError as error:
        yield Finding(_TABLE, CheckVerdict.FAIL, str(error))


def _of_staging(database: OffsetDatabase) -> Iterator[Finding]:
    old = [table for table in database.staging() if time.time() - table.created.timestamp() > _OLD_STAGING_S]
    if old:
        text = (
            f"{counted(len(old), 'staging table')} older than a day, which failed batches have left: {old[0].name}"
            f"{', ...' if len(old) > 1 else ''}. `streamgroup offsets --staging --execute` drops them"
        )
        yield Finding("staging tables", CheckVerdict.WARN, text)


def _of_offsets(database: OffsetDatabase, name: str, options: ClientOptions | None) -> tuple[CheckVerdict, str]:
    """Compare the offsets of a group in the table with its commits in Kafka."""
    rows = database.rows(name)
    if not rows:
        return CheckVerdict.OK, "none in the table: the first query begins at the commits of the group"
    text = f"{counted(len(rows), 'partition')} in the table"
    if options is None:
        return CheckVerdict.OK, f"{text}. With a cluster this check compares them with the commits of the group"
    with opened_store(options) as store:
        looks = looks_of(name, rows, store, time.monotonic() + options.default_api_timeout_ms / 1000)
    if beyond := passed(looks):
        return CheckVerdict.WARN, (
            f"{text}, which count: the commits of {name_some(beyond)} in Kafka are beyond them, and a query reads "
            "these records again. Either the group was reset in Kafka only, or a member without offsets.store has read "
            "them. `streamgroup offsets --describe` shows both"
        )
    if behind := lagging(looks):
        return CheckVerdict.OK, f"{text}. The commits of {name_some(behind)} in Kafka have not reached them yet"
    return CheckVerdict.OK, f"{text}, the commits in Kafka are the same"


# -- executors ---------------------------------------------------------------------------------------------------------

START_AND_STOP_S = 30.0
"""Seconds added to the timeout of the tasks, for the start of the JVM and the end of the session."""
_SUBJECT = "executors"
_MOST_HOSTS = 5
_PROGRAM = "from streamgroup.jobs.executors import main\n\nmain()\n"
_NOT_VERSIONS = ("host", "parent", "python", "python_version")


def of_executors(master: str, conf: Sequence[str], timeout_s: float) -> Iterator[Finding]:
    """Run a task on each executor that `master` gives an application with the settings `conf` (NAME=VALUE)."""
    try:
        report = _report(master, conf, timeout_s)
    except StreamGroupError as error:
        yield Finding(_SUBJECT, CheckVerdict.FAIL, str(error))
    else:
        yield from findings_of(report, timeout_s)


def findings_of(report: Mapping[str, Any], timeout_s: float) -> Iterator[Finding]:
    """Return the findings of a report: one for each set of versions, and one for each thing that is wrong."""
    looks: list[dict[str, str]] = report.get("found", [])
    alike: dict[str, list[str]] = defaultdict(list)
    for look in looks:
        alike[_versions(look)].append(look["host"])
    for versions, hosts in sorted(alike.items()):
        where = first_of(sorted(set(hosts)), _MOST_HOSTS, "host")
        yield Finding(_SUBJECT, CheckVerdict.OK, f"{counted(len(hosts), 'executor')} on {where}: {versions}")
    if report["problem"] is not None:
        yield Finding(_SUBJECT, CheckVerdict.FAIL, report["problem"])
    idle = report.get("known", 0) - len(looks)
    if idle > 0:
        text = (
            f"{idle} of {counted(report['known'], 'executor')} ran no task within {timeout_s:.0f} s. Check in the "
            "web UI of the application that its cores are free, or raise --executors-timeout"
        )
        yield Finding(_SUBJECT, CheckVerdict.WARN, text)


def _versions(look: Mapping[str, str]) -> str:
    packages = [name if v == "unknown" else f"{name} {v}" for name, v in look.items() if name not in _NOT_VERSIONS]
    return ", ".join([f"Python {look['python_version']} ({look['python']})", *packages])


def _report(master: str, conf: Sequence[str], timeout_s: float) -> dict[str, Any]:
    """Return the report of the program. Raises StreamGroupError if it writes no report."""
    with tempfile.TemporaryDirectory(prefix="streamgroup-doctor-") as home:
        program, report, log = (Path(home, name) for name in ("program.py", "report.json", "log"))
        program.write_text(_PROGRAM)
        settings = [word for each in conf for word in ("--conf", each)]
        command = [spark_submit(), "--master", master, *settings, str(program), str(report), str(timeout_s)]
        # The driver needs this Python, which has the package. PYSPARK_PYTHON, which the executors run, is the user's.
        environment = {**os.environ, "PYSPARK_DRIVER_PYTHON": sys.executable}
        with log.open("wb") as output:
            ended = _run(command, output.fileno(), environment, timeout_s + START_AND_STOP_S)
        if report.is_file():
            found: dict[str, Any] = json.loads(report.read_text())
            return found
        if not ended:
            after = f"within {timeout_s + START_AND_STOP_S:.0f} s"
            cause = f"it has not ended {after}. Check that the master runs and that this machine reaches it"
        else:
            cause = f"{_last_error(log.read_text(errors='replace'))}. Check the master's address and the settings"
        raise StreamGroupError(f"cannot check the executors of {master}: spark-submit failed: {cause}")


def _run(command: Sequence[str], output: int, environment: Mapping[str, str], timeout_s: float) -> bool:
    """Run a command in a new session.

    Return whether it ended within the timeout. Its processes are killed afterwards.
    """
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, start_new_session=True
    )
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return False
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return True


def _last_error(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    first = next((line for line in reversed(lines) if "Error" in line or "Exception" in line), None)
    return (first or (lines[-1] if lines else "it printed nothing"))[:300].rstrip(".")


FINDINGS: tuple[Column[Finding], ...] = (
    Column("CHECK", "check", lambda row: row.subject),
    Column("STATUS", "verdict", lambda row: row.verdict.value),
    Column("RESULT", "found", lambda row: without_prefix(row.text)),
)
API_VERSIONS: tuple[Column[ApiVersions], ...] = (
    Column("BROKER", "broker", lambda row: row.broker),
    Column("API", "api", lambda row: row.api),
    Column("BROKER-VERSIONS", "broker_versions", lambda row: row.at_broker),
    Column("CLIENT-VERSIONS", "client_versions", lambda row: row.at_client),
    Column("USED", "used", lambda row: row.used),
)


@click.command(
    cls=SectionedCommand,
    short_help="Find out why a query cannot run: check this machine, a cluster, groups, a database, executors.",
    examples={
        "streamgroup doctor": "this machine alone",
        "streamgroup doctor -b localhost:9092 --group orders-ingest": "a cluster and a group, too",
        "streamgroup doctor -b localhost:9092 --group shop --store postgresql://db/shop": "a group with its offset "
        "table",
        "streamgroup doctor --master spark://host:7077": "the executors of a Spark cluster, too",
    },
)
@option("Groups", "--group", "names", multiple=True, metavar="GROUP", help="Also check this group; repeatable.")
@option(
    _EXECUTORS,
    "--master",
    metavar="URL",
    help="Also check that the executors can run streamgroup: start an application at this master, such as "
    "spark://host:7077, and run a task on each executor that shows its Python and its packages.",
)
@option(_EXECUTORS, "--conf", multiple=True, metavar="NAME=VALUE", help="Setting of that application; repeatable.")
@option(
    _EXECUTORS,
    "--executors-timeout",
    type=Duration("s", 1),
    default=120,
    show_default=True,
    metavar="SECONDS",
    help=f"How long executors may take to start and to run their tasks. In seconds, {OR_UNITS}.",
)
@store_options
@flag(OUTPUT, "--verbose", help="Show the versions of each API that each broker and this client support.")
@json_option("Print all results as JSON.")
@cluster_options
@timeout_option(10_000, "How long each check may take.")
@click.pass_context
def doctor(
    ctx: click.Context,
    *,
    where: ClusterAddress,
    store: StoreAddress,
    names: tuple[str, ...],
    master: str | None,
    conf: tuple[str, ...],
    executors_timeout: float,
    verbose: bool,
    timeout: int,
    as_json: bool,
) -> None:
    """Check what a query needs: this machine, and if given a cluster, groups, an offset table and Spark's executors.

    This machine: the versions of streamgroup, Python, Java and the packages, and whether streamgroup is tested with
    this PySpark. Cluster: whether each broker answers, and its version. The cluster may run any Kafka from 0.7 on.
    Offset table: whether the user may use the table, and how its offsets differ from the commits of the groups.
    The command changes nothing. Its exit code is 1 if a check is FAIL.
    """
    checks: itertools.chain[Finding | ApiVersions] = itertools.chain(of_this_machine())
    address, options = store.completed(where), None
    if where != ClusterAddress():
        options = client_options(where, "streamgroup-doctor", timeout)
        checks = itertools.chain(checks, of_cluster(options), of_groups(options, names))
    elif names and address.url is None:
        raise click.UsageError(f"--group requires {EITHER}")
    if address != StoreAddress():
        checks = itertools.chain(checks, of_offset_table(address, timeout, names, options))
    if master is not None:
        checks = itertools.chain(checks, of_executors(master, conf, executors_timeout))
    elif conf:
        raise click.UsageError("--conf requires --master")
    results = list(checks)
    findings = [row for row in results if isinstance(row, Finding)]
    api_versions = [row for row in results if isinstance(row, ApiVersions)]
    if as_json:
        document = {"findings": json_rows(FINDINGS, findings), "apis": json_rows(API_VERSIONS, api_versions)}
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo(table(FINDINGS, findings))
        if verbose and api_versions:
            click.echo(f"\n{table(API_VERSIONS, api_versions)}")
    if any(row.verdict is CheckVerdict.FAIL for row in findings):
        ctx.exit(1)
