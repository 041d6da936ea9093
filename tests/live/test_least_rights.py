"""Each mode and command with its least rights, and without each of them, at brokers with Kafka's own authorizer.

Every case has a user, a topic and a group of its own, so that no ACL has to be removed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as LibrdkafkaPartition

from streamgroup.advice import RESOURCES
from streamgroup.cli._reset import NotChangedError
from streamgroup.cli.main import main
from streamgroup.cli.ui import PageDataReader
from streamgroup.coordinator.batch_read import plan_batch
from streamgroup.coordinator.coordinator import Coordinator
from streamgroup.coordinator.planning.document import to_value
from streamgroup.errors import AuthorizationError, BrokerError, ProduceError
from streamgroup.executor.read.fetcher import read
from streamgroup.executor.write.sink_writer import write
from streamgroup.jobs.job_file import SparkSettings
from streamgroup.jobs.mirror.clusters import Clusters
from streamgroup.jobs.mirror.config import MirrorConfig, Renaming
from streamgroup.jobs.mirror.plan import MirrorPlan
from streamgroup.model import INITIAL_DOCUMENT, TopicPartition
from streamgroup.options.parse import parse_sink, parse_source
from streamgroup.testing import KafkaServer
from streamgroup.testing.releases import NEWEST, release_of
from tests.conftest import MakeTopic
from tests.fault.harness import Stream
from tests.least_rights import Mode, Needed, read_table
from tests.old_kafka import number
from tests.peers import librdkafka
from tests.waiting import wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(300), pytest.mark.usefixtures("fresh_process")]

RECORDS = 3
AT_ONCE_S = 30.0
"""A refusal that was retried until a deadline would take default.api.timeout.ms or max.block.ms: a minute."""
MODES = read_table()
USERS = [f"u{n}" for n in range(120)]


@dataclass
class Case:
    """A user without rights but those of `allow`, a topic with RECORDS records, and a group that has no commit."""

    server: KafkaServer
    user: str
    topic: str
    group: str
    arguments: Any
    home: Path
    options: dict[str, str] = field(init=False)
    """The options of a query of the user."""

    def __post_init__(self) -> None:
        self.options = dict(self.server.security.client(self.user).options)

    def allow(self, right: str) -> None:
        operation, resource = right.split()
        words = {"DescribeConfigs": "DESCRIBE_CONFIGS", "IdempotentWrite": "IDEMPOTENT_WRITE"}
        where: dict[str, Any] = {
            "topic": {"topic": self.topic},
            "group": {"group": self.group},
            "cluster": {"cluster": True},
        }[resource]
        self.server.security.add_acl(self.user, words.get(operation, operation.upper()), **where)

    def source(self, **options: str) -> dict[str, str]:
        """Return the options of a stream or a batch."""
        given = {"subscribe": self.topic, "startingOffsets": "earliest", **self.options, **options}
        if given.get("group.mode", "off") != "off":
            given["kafka.group.id"] = self.group
        return given

    def command(self, *arguments: str, stdin: str = "") -> str:
        """Return what the command prints. Raises its error."""
        result = self.run(*arguments, stdin=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception.__cause__ or result.exception
        return result.stdout

    def run(self, *arguments: str, stdin: str = "") -> Result:
        """Run the command as the user."""
        config = self.home / f"{self.user}.properties"
        config.write_text(self.server.security.client(self.user).text())
        where = ["--bootstrap-server", self.server.bootstrap_servers, "--command-config", str(config)]
        words = [word.format(topic=self.topic, group=self.group) for word in arguments]
        return CliRunner().invoke(main, [words[0], *where, *words[1:]], input=stdin, standalone_mode=False)


# -- what a user does --------------------------------------------------------------------------------------------------
# Each returns whether the user got everything, and raises the error that the user gets.


def _rows(options: dict[str, str]) -> int:
    parsed = parse_source(options, streaming=False)
    tasks = plan_batch(parsed)
    return sum(len(rows) for task in tasks for rows in read(task, parsed.client, parsed.fetch, group="in process"))


def batch(case: Case) -> bool:
    return _rows(case.source()) == RECORDS


def batch_pattern(case: Case) -> bool:
    options = case.source(subscribePattern=case.topic)
    del options["subscribe"]
    return _rows(options) == RECORDS


def stream(case: Case, **options: str) -> bool:
    given = case.source(**case.arguments, **options)
    if "assign" in given:
        del given["subscribe"]
    query = Stream(case.user, given)
    with query:
        wait_until(lambda: query.error or len(query.rows) == RECORDS, "the query has read everything or failed")
        if query.error is None and given["group.mode"] != "off":
            wait_until(lambda: query.error or committed(case) == RECORDS, "the query has committed or failed")
        error = query.error
    if error is not None:
        raise error
    return True


def stream_assign(case: Case) -> bool:
    return stream(case, assign=f'{{"{case.topic}": [0]}}')


def available_now(case: Case) -> bool:
    parsed = parse_source(case.source(**case.arguments), streaming=True)
    coordinator = Coordinator(parsed)
    try:
        coordinator.prepare_available_now()
        start = to_value(INITIAL_DOCUMENT)
        count = 0
        while (end := coordinator.latest_offset(start, limits=parsed.limits)) != start:
            for task in coordinator.partitions(start, end):
                count += sum(len(rows) for rows in read(task, parsed.client, parsed.fetch, group="in process"))
            start = end
        return count == RECORDS
    finally:
        coordinator.stop()


def sink(case: Case) -> bool:
    options = parse_sink({**case.options, "topic": case.topic, **dict(case.arguments)})
    write([pa.record_batch({"value": pa.array([b"x"] * 2)})], options)
    return log_end(case, case.topic) >= 2


def _mirror(case: Case, source: Mapping[str, str], destination: Mapping[str, str], copied: str, create: bool) -> None:
    """Do as the mirror's job: plan, read by a query, write by the sink."""
    read_from, copy = (case.topic, copied) if destination["who"] == "admin" else (copied, case.topic)
    reads = {**source, "subscribe": read_from, "startingOffsets": "earliest", "kafka.group.id": case.group}
    writes = {name: value for name, value in destination.items() if name != "who"}
    config = MirrorConfig(
        case.home,
        None,
        reads,
        writes,
        "",
        "",
        SparkSettings("m"),
        renaming=Renaming({read_from: copy}),
        create=create,
        replication_factor=1,
    )
    with closing(Clusters(config)) as clusters:
        clusters.plan(MirrorPlan({}), clusters.source())
        clusters.abilities()
    query = Stream("mirror", {**reads, "group.mode": "member"})
    with query:
        wait_until(lambda: query.error or len(query.rows) == RECORDS, "the mirror has read everything or failed")
        error = query.error
    if error is not None:
        raise error
    rows = pa.record_batch({"value": pa.array([row.value.encode() for row in query.rows])})
    write([rows], parse_sink({**writes, "topic": copy}))


def mirror_source(case: Case, *, create: bool = False) -> bool:
    copied, admin = f"copy-of-{case.topic}", dict(case.server.security.client("admin").options)
    if not create:
        write([pa.record_batch({"value": pa.array([b"x"])})], parse_sink({**admin, "topic": copied}))
    _mirror(case, case.options, {**admin, "who": "admin"}, copied, create)
    return log_end(case, copied) == RECORDS + (not create)


def mirror_source_create(case: Case) -> bool:
    return mirror_source(case, create=True)


def mirror_destination(case: Case, *, create: bool = False) -> bool:
    other = f"source-of-{case.topic}"
    admin = dict(case.server.security.client("admin").options)
    write([pa.record_batch({"value": pa.array([b"x"] * RECORDS)})], parse_sink({**admin, "topic": other}))
    before = 0 if create else log_end(case, case.topic)
    _mirror(case, admin, {**case.options, "who": "user"}, other, create)
    return log_end(case, case.topic) == before + RECORDS


def mirror_create(case: Case) -> bool:
    return mirror_destination(case, create=True)


def consume(case: Case) -> bool:
    return len(case.command("consume", *case.arguments).split()) == RECORDS


def consume_stored(case: Case) -> bool:
    commit(case, 1)
    return len(case.command("consume", *case.arguments).split()) == RECORDS - 1


def produce(case: Case) -> bool:
    before = 0 if "--create" in case.arguments else log_end(case, case.topic)
    case.command("produce", *case.arguments, stdin="one\ntwo\n")
    return log_end(case, case.topic) == before + 2


def topics(case: Case) -> bool:
    return case.topic in case.command("topics", *case.arguments).split()


def topics_alter(case: Case) -> bool:
    return "3 partitions" in case.command("topics", *case.arguments)


def topics_delete(case: Case) -> bool:
    return f"Deleted topic {case.topic}" in case.command("topics", *case.arguments)


def groups(case: Case) -> bool:
    commit(case, 1)
    return case.group in case.command("groups", *case.arguments).split()


def groups_lag(case: Case) -> bool:
    commit(case, 1)
    return case.topic in case.command("groups", *case.arguments).split()


def groups_reset(case: Case) -> bool:
    commit(case, 1)
    case.command("groups", *case.arguments)
    return committed(case) == RECORDS


def groups_export(case: Case) -> bool:
    commit(case, 1)
    try:
        return case.command("groups", *case.arguments) == f"{case.topic},0,1\n"
    except NotChangedError:  # brokers leave out the offsets of a hidden topic
        return False


def groups_delete(case: Case) -> bool:
    commit(case, 1)
    case.command("groups", *case.arguments)
    return committed(case) < 0


def doctor(case: Case) -> bool:
    commit(case, 1)
    printed = case.command("doctor", *case.arguments)
    if "AUTHORIZATION_FAILED" in printed:
        raise _Printed(printed)
    return "--group" not in case.arguments or "lag 2" in printed


def ui(case: Case) -> bool:
    commit(case, 1)
    options = parse_source(case.source(), streaming=False).client
    with PageDataReader(options, (), 20_000).opened() as read_cluster:
        reading = read_cluster()
    for note in reading.notes:
        if note.startswith("there may be further groups"):
            raise _Printed(note)
    shown = {group.name for group in reading.groups}
    return case.group in shown and TopicPartition(case.topic, 0) in reading.log_ends


class _Printed(AuthorizationError):
    """A refusal that the doctor or the page shows, and goes on with what it may."""


SCENARIOS: Mapping[str, Callable[[Case], bool]] = {
    "batch": batch,
    "batch-pattern": batch_pattern,
    "stream": stream,
    "stream-assign": stream_assign,
    "available-now": available_now,
    "sink": sink,
    "sink-new-topic": sink,
    "mirror-source": mirror_source,
    "mirror-source-create": mirror_source_create,
    "mirror-destination": mirror_destination,
    "mirror-create": mirror_create,
    "consume": consume,
    "consume-stored": consume_stored,
    "produce": produce,
    "produce-new-topic": produce,
    "topics": topics,
    "topics-alter": topics_alter,
    "topics-delete": topics_delete,
    "groups": groups,
    "groups-lag": groups_lag,
    "groups-reset": groups_reset,
    "groups-export": groups_export,
    "groups-delete": groups_delete,
    "groups-delete-offsets": groups_delete,
    "doctor": doctor,
    "ui": ui,
}
NEW_TOPIC = {"sink-new-topic", "produce-new-topic", "mirror-create"}


# -- what the test itself does, past the authorizer --------------------------------------------------------------------


def _direct(case: Case) -> Consumer:
    return Consumer({"bootstrap.servers": case.server.direct_servers, "group.id": case.group, "log_level": 0})


def commit(case: Case, offset: int) -> None:
    with closing(_direct(case)) as consumer:
        librdkafka.commit(consumer, [LibrdkafkaPartition(case.topic, 0, offset)])


def committed(case: Case) -> int:
    with closing(_direct(case)) as consumer:
        return int(consumer.committed([LibrdkafkaPartition(case.topic, 0)], timeout=10)[0].offset)


def log_end(case: Case, topic: str) -> int:
    with closing(_direct(case)) as consumer:
        return int(consumer.get_watermark_offsets(LibrdkafkaPartition(topic, 0), timeout=10)[1])


# -- the servers and the cases -----------------------------------------------------------------------------------------


RELEASES = (NEWEST, "3.9.1", "1.1.1")
"""The releases of the servers. Short tests run at the first one alone."""


def marks(release: str, mode: Mode) -> tuple[pytest.MarkDecorator, ...]:
    return (pytest.mark.long,) if mode.long or release != RELEASES[0] else ()


@pytest.fixture(
    scope="module", params=[RELEASES[0], *(pytest.param(each, marks=pytest.mark.long) for each in RELEASES[1:])]
)
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaServer]:
    arguments: dict[str, Any] = {"security": "SASL_PLAINTEXT", "mechanisms": ["PLAIN"], "acls": True, "users": USERS}
    with KafkaServer(request.param, config={"auto.create.topics.enable": "true"}, **arguments) as server:
        yield server


@pytest.fixture(scope="module")
def numbers(kafka: KafkaServer) -> Iterator[int]:
    """Number the users of one server."""
    return iter(range(len(kafka.security.settings.users)))


class MakeCase(Protocol):
    def __call__(self, mode: Mode, rights: Iterable[str]) -> Case: ...


@pytest.fixture
def make_case(kafka: KafkaServer, numbers: Iterator[int], make_topic: MakeTopic, tmp_path: Path) -> MakeCase:
    """Make a case of a mode whose user has these rights and no others."""

    def make(mode: Mode, rights: Iterable[str]) -> Case:
        serial = next(numbers)
        topic = f"t{serial}-of-{kafka.version}"
        if mode.does not in NEW_TOPIC:
            make_topic(kafka, name=topic)
            producer = Producer({"bootstrap.servers": kafka.direct_servers})
            for value in range(RECORDS):
                producer.produce(topic, b"%d" % value, partition=0)
            assert producer.flush(30) == 0
        case = Case(kafka, USERS[serial], topic, f"g{serial}", mode.arguments, tmp_path)
        for right in rights:
            case.allow(right)
        return case

    return make


ROWS = [(release, mode) for release in RELEASES for mode in MODES if mode.since <= release_of(release).number]
"""The modes that the brokers of each release have."""


@pytest.mark.parametrize(
    ("kafka", "mode"),
    [pytest.param(*row, id=f"{row[0]}-{row[1].name}", marks=marks(*row)) for row in ROWS],
    indirect=["kafka"],
    scope="module",  # else pytest starts a broker for each test
)
def test_the_least_rights_suffice(kafka: KafkaServer, mode: Mode, make_case: MakeCase) -> None:
    assert SCENARIOS[mode.does](make_case(mode, mode.least(number(kafka))))


@pytest.mark.parametrize(
    ("kafka", "mode", "lacking"),
    [
        pytest.param(
            *(release, mode, each),
            id=f"{release}-{mode.name}-{each.right}{each.instead and f'-but-{each.instead}'}",
            marks=marks(release, mode),
        )
        for release, mode in ROWS
        for each in mode.rights
        if each.applies_to(release_of(release).number)
    ],
    indirect=["kafka"],
    scope="module",
)
def test_without_one_right_the_user_learns_which(
    kafka: KafkaServer, mode: Mode, lacking: Needed, make_case: MakeCase
) -> None:
    others = [right for right in mode.least(number(kafka)) if right != lacking.right]
    case = make_case(mode, [*others, lacking.instead] if lacking.instead else others)
    if lacking.degrades:
        assert not SCENARIOS[mode.does](case)
        return
    began = time.monotonic()
    with pytest.raises(AuthorizationError) as raised:
        SCENARIOS[mode.does](case)
    assert time.monotonic() - began < AT_ONCE_S
    told = str(raised.value)
    operation, kind = lacking.fails.split()
    name = {"topic": f" {case.topic}", "group": f" {case.group}", "cluster": ""}[kind]
    line = f"kafka-acls.sh --bootstrap-server {case.server.bootstrap_servers} --add --allow-principal"
    assert f"{line} User:{case.user} --operation {operation} --{kind}{name}`" in told
    if isinstance(raised.value, BrokerError | ProduceError):
        assert raised.value.code in RESOURCES


def test_a_group_whose_members_hold_a_hidden_topic_is_described_without_its_lag(
    kafka: KafkaServer, make_case: MakeCase
) -> None:
    (mode,) = (mode for mode in MODES if mode.does == "groups-lag")
    case = make_case(mode, [right for right in mode.least(number(kafka)) if right != "Describe topic"])
    admin = {**kafka.security.client("admin").options, "kafka.group.id": case.group, "subscribe": case.topic}
    with Stream("member", admin) as query:
        wait_until(lambda: query.error or query.held, "the member holds its partition")
        result = case.run("groups", *mode.arguments)
    assert result.exit_code == 0, result.output
    (row,) = (line.split() for line in result.stdout.splitlines() if line.startswith(case.group))
    assert row[1:6] == [case.topic, "0", "-", "-", "-"]
    assert "Warning: no lag for topics that this user is not authorized to describe" in result.stderr
    assert f"--operation Describe --topic {case.topic}" in result.stderr
