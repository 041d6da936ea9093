"""The servers themselves, with other clients than ours: librdkafka, kazoo and Kafka's own tools."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from streamgroup.cli.main import main
from streamgroup.errors import ConfigError
from streamgroup.sql.database import open_engine, url_of
from streamgroup.testing import (
    KafkaServer,
    MariaDbServer,
    PostgresServer,
    ServerStartError,
    ZooKeeperServer,
    archive_classes,
    create_topic,
    java_tool,
    mariadb,
    postgres,
)
from streamgroup.testing.ports import LOOPBACK, free_ports
from streamgroup.testing.probe import accepts, brokers_known_to
from streamgroup.testing.releases import NEWEST
from tests.conftest import MakeTopic
from tests.old_kafka import CODECS, Record, Stored, java_consume, java_produce, stored
from tests.read_back import consumed
from tests.servers import each_of
from tests.waiting import wait_until

pytestmark = pytest.mark.live

DEADLINE_S = 30


kafka = each_of("kafka4", "kafka39")


@pytest.fixture
def zookeeper() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


def produce(
    server: KafkaServer, topic: str, values: list[bytes], timeout_ms: int = DEADLINE_S * 1000
) -> list[KafkaError]:
    """Send all; returns the errors of those that did not arrive within `timeout_ms`."""
    errors: list[KafkaError | None] = []
    producer = Producer(
        {"bootstrap.servers": server.bootstrap_servers, "message.timeout.ms": timeout_ms, "log_level": 0}
    )
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(DEADLINE_S) == 0
    return [error for error in errors if error is not None]


def test_what_is_produced_is_consumed(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka)
    values = [b"%d" % i for i in range(100)]
    assert produce(kafka, topic, values) == []
    assert consumed({"bootstrap.servers": kafka.bootstrap_servers}, topic, 100) == values


def test_what_was_produced_survives_a_crash_on_the_same_port(kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka4)
    values = [b"%d" % i for i in range(100)]
    assert produce(kafka4, topic, values) == []
    broker, before, pid = kafka4.brokers[0], kafka4.bootstrap_servers, kafka4.brokers[0].pid
    broker.kill()
    assert brokers_known_to(LOOPBACK, broker.port or 0) == frozenset()
    broker.restart()
    assert kafka4.bootstrap_servers == before
    assert broker.pid != pid
    assert consumed({"bootstrap.servers": kafka4.bootstrap_servers}, topic, 100) == values


def test_a_paused_broker_answers_nobody_and_goes_on_when_resumed(kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka4)
    broker = kafka4.brokers[0]
    broker.pause()
    try:
        assert broker.alive
        (error,) = produce(kafka4, topic, [b"lost"], timeout_ms=1_000)
        assert error.code() == KafkaError._MSG_TIMED_OUT
    finally:
        broker.resume()
    wait_until(lambda: brokers_known_to(LOOPBACK, broker.port or 0) == {0}, "the broker knows itself")
    assert produce(kafka4, topic, [b"found"]) == []


def test_a_topic_that_is_asked_for_is_not_made(kafka4: KafkaServer) -> None:
    admin = AdminClient({"bootstrap.servers": kafka4.bootstrap_servers, "log_level": 0})
    asked = admin.list_topics("misspelt", timeout=DEADLINE_S).topics["misspelt"]
    assert asked.error is not None
    assert asked.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert "misspelt" not in admin.list_topics(timeout=DEADLINE_S).topics


def test_kafkas_own_tools_run_against_the_broker(kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka4)
    assert produce(kafka4, topic, [b"one", b"two"]) == []
    arguments = ("--bootstrap-server", kafka4.bootstrap_servers, "--topic", topic, "--from-beginning")
    argv = java_tool(
        NEWEST, "org.apache.kafka.tools.consumer.ConsoleConsumer", *arguments, "--max-messages=2", "--timeout-ms=20000"
    )
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert ran.stdout.split() == ["one", "two"], ran.stderr


def test_a_start_that_fails_shows_the_brokers_own_words_and_keeps_its_log(tmp_path: Path) -> None:
    server = KafkaServer(config={"log.segment.bytes": "none"}, data_dir=tmp_path)
    with pytest.raises(ServerStartError, match="Invalid value none for configuration") as raised:
        server.start()
    assert "broker-0 ended with exit code 1" in str(raised.value)
    log = tmp_path / "broker-0" / "server.log"
    assert str(log) in str(raised.value)
    assert "log.segment.bytes" in log.read_text()


def test_a_start_beyond_its_deadline_is_an_error_and_leaves_no_process() -> None:
    server = KafkaServer(start_timeout_s=0.3)
    with pytest.raises(ServerStartError, match="did not serve within"):
        server.start()
    assert not any(node.alive for node in server.nodes)
    server.stop()


def test_a_fixed_port_that_is_taken_is_an_error_and_not_another_port(kafka4: KafkaServer, tmp_path: Path) -> None:
    port = kafka4.brokers[0].port
    with pytest.raises(ServerStartError, match="Address already in use"):
        KafkaServer(port=port, data_dir=tmp_path).start()
    assert kafka4.brokers[0].alive


@pytest.mark.long
def test_one_of_three_brokers_dies_and_the_others_lead_on(make_topic: MakeTopic) -> None:
    with KafkaServer(brokers=3) as kafka:
        assert [broker.node_id for broker in kafka.brokers] == [0, 1, 2]
        topic = make_topic(kafka, replication=3, config={"min.insync.replicas": "2"})
        assert produce(kafka, topic, [b"before"]) == []
        kafka.brokers[1].kill()
        assert [node.alive for node in kafka.nodes] == [True, True, False, True]
        assert produce(kafka, topic, [b"while one is down"]) == []
        kafka.brokers[1].restart()
        wait_until(
            lambda: brokers_known_to(LOOPBACK, kafka.brokers[0].port or 0) == {0, 1, 2}, "the brokers know each other"
        )
        assert consumed({"bootstrap.servers": kafka.bootstrap_servers}, topic, 2) == [b"before", b"while one is down"]


def test_zookeeper_keeps_its_data_and_port_over_a_crash(zookeeper: ZooKeeperServer) -> None:
    client = KazooClient(zookeeper.connect_string, timeout=4)
    client.start(DEADLINE_S)
    client.create("/a/b", b"kept", makepath=True)
    zookeeper.kill()
    zookeeper.restart()
    assert client.retry(client.get, "/a/b")[0] == b"kept"
    client.stop()
    client.close()


HOLDER = """
import sys, time
from kazoo.client import KazooClient
client = KazooClient(sys.argv[1], timeout=2)
client.start(30)
client.create("/here", b"", ephemeral=True)
print("held", flush=True)
time.sleep(60)
"""


def test_a_session_ends_when_its_client_is_silent_for_longer_than_its_timeout(zookeeper: ZooKeeperServer) -> None:
    watcher = KazooClient(zookeeper.connect_string, timeout=4)
    watcher.start(DEADLINE_S)
    gone = threading.Event()
    argv = [sys.executable, "-c", HOLDER, zookeeper.connect_string]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert watcher.exists("/here", watch=lambda _: gone.set())
        holder.kill()
    assert gone.wait(DEADLINE_S)
    watcher.stop()
    watcher.close()


MAGIC = {"0.8.2.2": 0, "0.9.0.1": 0, "0.10.2.2": 1, "1.1.1": 2}


old_kafka = each_of("kafka08", long=("kafka09", "kafka010", "kafka11"))


def test_an_old_brokers_own_producer_and_consumer_agree_across_a_crash(
    old_kafka: KafkaServer, make_topic: MakeTopic
) -> None:
    topic = make_topic(old_kafka, 2)
    records: list[Record] = [(None if n % 2 else f"k{n}", f"value {n} ä") for n in range(40)]
    java_produce(old_kafka, topic, records, "lz4")
    # The very first message: whichever of the two partitions has one.
    logs = [stored(old_kafka, topic, p) for p in range(2)]
    assert Stored(MAGIC[old_kafka.version], CODECS["lz4"]) in logs
    before, pid = old_kafka.bootstrap_servers, old_kafka.brokers[0].pid
    old_kafka.brokers[0].kill()
    old_kafka.brokers[0].restart()
    assert (old_kafka.bootstrap_servers, old_kafka.brokers[0].pid == pid) == (before, False)
    assert sorted(java_consume(old_kafka, topic, 40)) == sorted(value for _, value in records)


@pytest.mark.parametrize(
    "version", ["0.8.2.2", *(pytest.param(each, marks=pytest.mark.long) for each in ("0.9.0.1", "0.10.2.2", "1.1.1"))]
)
def test_old_brokers_behind_proxies_in_a_chroot_of_a_zookeeper_that_others_use(
    zookeeper: ZooKeeperServer, version: str
) -> None:
    connect = f"{zookeeper.connect_string}/old/{version}"
    with KafkaServer(version, 2, proxied=True, zookeeper=connect) as kafka:
        assert (kafka.zookeeper, kafka.zookeeper_connect) == (None, connect)
        create_topic(kafka, "t", 4, replication=2)
        assert {broker.node_id for broker in kafka.brokers} == {0, 1}
        assert kafka.controller in kafka.brokers
        with pytest.raises(ConfigError, match="cannot create topic t: it exists"):
            create_topic(kafka, "t")
        kafka.controller.kill()
        wait_until(lambda: kafka_has_a_live_controller(kafka), "another broker is elected")
    client = KazooClient(connect)
    client.start(DEADLINE_S)
    wait_until(lambda: client.get_children("/brokers/ids") == [], "no broker is registered any more")
    client.stop()
    client.close()


def kafka_has_a_live_controller(kafka: KafkaServer) -> bool:
    try:
        return kafka.controller.alive
    except ConfigError:
        return False  # there is none at this moment


def test_emulated_brokers_register_and_come_back(tmp_path: Path) -> None:
    with KafkaServer("0.7", 2, {"num.partitions": 3}, data_dir=tmp_path) as kafka:
        client = KazooClient(kafka.zookeeper_connect)
        client.start(DEADLINE_S)
        broker = kafka.brokers[1]
        found = client.get("/brokers/ids/1")[0].decode()
        assert found.endswith(f":{LOOPBACK}:{broker.port}")
        broker.kill()
        broker.restart()
        again = client.get("/brokers/ids/1")[0].decode()
        assert (again != found, again.rpartition(":")[2]) == (True, str(broker.port))
        client.stop()
        client.close()


def test_a_zookeeper_of_the_old_days_serves_and_drops_transactions() -> None:
    with ZooKeeperServer(version="3.3.6") as zookeeper:
        client = KazooClient(zookeeper.connect_string, timeout=4)
        client.start(DEADLINE_S)
        assert client.server_version() == (3, 3, 6)
        client.create("/a", b"plain")
        assert client.get("/a")[0] == b"plain"
        transaction = client.transaction()
        transaction.create("/b")
        never = transaction.commit_async()
        wait_until(lambda: "Dropping packet at server of type 14" in zookeeper.log.read_text(), "it is dropped")
        # And nothing is answered. The next answer of this session would be one too many for kazoo: its end comes first.
        assert not never.ready()
        zookeeper.kill()
        client.stop()
        client.close()


def registered_port(data: bytes) -> int:
    """Of a broker: 0.7 writes `creator:host:port`, 0.8 JSON."""
    return int(json.loads(data)["port"] if data.startswith(b"{") else data.rpartition(b":")[2])


@pytest.mark.parametrize("version", ["0.7", "0.8.2.2"])
def test_the_command_starts_an_old_one_and_tells_its_zookeeper(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMGROUP_STATE", str(tmp_path))
    (zookeeper_port,) = free_ports(1)
    connect = f"{LOOPBACK}:{zookeeper_port}"
    run = CliRunner().invoke
    try:
        up = run(main, ["kafka", "up", "--version", version, "--zookeeper-port", str(zookeeper_port)])
        assert up.exit_code == 0, up.output
        client = KazooClient(connect)
        client.start(DEADLINE_S)
        port = registered_port(client.get("/brokers/ids/0")[0])
        client.stop()
        client.close()
        # Consumers of 0.7 find its brokers only those in ZooKeeper.
        ways = [*([] if version == "0.7" else [f"{LOOPBACK}:{port}"]), f"zookeeper.connect={connect}"]
        assert up.stdout.splitlines() == ways
        status = run(main, ["kafka", "status"])
        first, *nodes = status.output.splitlines()
        assert first.startswith(f"Kafka {version} at {', '.join(ways)}, data in ")
        states = [(line.split()[0], line.split()[-1]) for line in nodes]
        assert states == [("zookeeper", "alive"), ("broker-0", "alive")]
        assert (status.exit_code, accepts(LOOPBACK, port)) == (0, True)
    finally:
        down = run(main, ["kafka", "down"])
    assert down.exit_code == 0, down.output
    assert not any(accepts(LOOPBACK, each) for each in (port, zookeeper_port))
    assert run(main, ["kafka", "status"]).exit_code == 3
    assert not (tmp_path / "kafka-data").exists()


def test_the_command_starts_one_in_the_background_and_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMGROUP_STATE", str(tmp_path))
    (port,) = free_ports(1)
    run = CliRunner().invoke
    try:
        up = run(main, ["kafka", "up", "--port", str(port), "--config", "num.partitions=3"])
        assert (up.exit_code, up.stdout) == (0, f"{LOOPBACK}:{port}\n"), up.output
        assert "broker-0  pid" in run(main, ["kafka", "status"]).output
        assert brokers_known_to(LOOPBACK, port) == {0}
        properties = (tmp_path / "kafka-data" / "broker-0" / "server.properties").read_text()
        assert "num.partitions=3\n" in properties
    finally:
        down = run(main, ["kafka", "down"])
    assert down.exit_code == 0, down.output
    assert brokers_known_to(LOOPBACK, port) == frozenset()
    assert run(main, ["kafka", "status"]).exit_code == 3


def test_broker_and_zookeeper_map_the_archives_of_their_classes() -> None:
    archive_classes()
    with ZooKeeperServer() as zookeeper, KafkaServer() as kafka:
        for pid, log in ((zookeeper.pid, zookeeper.log), (kafka.brokers[0].pid, kafka.brokers[0].log)):
            mapped = Path(f"/proc/{pid}/maps").read_text()
            assert re.search(r"/classes/[0-9a-f]{16}\.jsa$", mapped, re.MULTILINE), log.read_text()


@pytest.fixture
def kept() -> Iterator[Path]:
    """A directory that the user of PostgreSQL can reach, as a test's own cannot be for root."""
    made = Path(tempfile.mkdtemp(prefix="streamgroup-kept-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.mark.parametrize("kind", [PostgresServer, MariaDbServer])
def test_a_database_keeps_its_data_and_port_over_a_crash(
    kind: type[PostgresServer] | type[MariaDbServer], kept: Path
) -> None:
    def rows(server: PostgresServer | MariaDbServer) -> list[str]:
        with open_engine(url_of(server.url)).begin() as connection:
            connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS t (value text)")
            connection.exec_driver_sql("INSERT INTO t VALUES ('one')")
            return [value for (value,) in connection.exec_driver_sql("SELECT value FROM t")]

    with kind(data_dir=kept) as server:
        assert (rows(server), server.alive) == (["one"], True)
        url = server.url
        server.kill()
        assert not server.alive
        with pytest.raises(sa.exc.OperationalError, match="refused"):
            rows(server)
        server.restart()
        assert (rows(server), server.url) == (["one"] * 2, url)
    with kind(data_dir=kept) as server:
        assert rows(server) == ["one"] * 3


def test_postgres_starts_again_after_a_kill_in_the_middle_of_a_statement() -> None:
    with PostgresServer() as server, ThreadPoolExecutor(1) as pool:
        engine = open_engine(url_of(server.url))

        def count() -> None:
            with engine.connect() as connection:
                connection.exec_driver_sql(
                    "SELECT count(*) FROM generate_series(1, 100000) AS a, generate_series(1, 100000)"
                )

        def runs() -> bool:
            with engine.connect() as connection:
                text = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT count(*) FROM gen%%'"
                return bool(connection.exec_driver_sql(text).scalar_one())

        counting = pool.submit(count)
        wait_until(runs, "the statement runs")
        server.kill()
        server.restart()
        with pytest.raises(sa.exc.DBAPIError):
            counting.result(30)
        engine.dispose()


def test_postgres_that_is_not_installed_is_an_error_with_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_DEBIAN", Path("/nowhere"))
    monkeypatch.setattr(postgres, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match=r"not installed\. On Debian: apt-get install postgresql"):
        PostgresServer().start()
    with pytest.raises(ConfigError, match="is not started"):
        print(PostgresServer().url)


def test_mariadb_that_is_not_installed_is_an_error_with_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mariadb, "_SYSTEM", "/nowhere")
    monkeypatch.setenv("PATH", "/nowhere")
    packages = "mariadb-server-core mariadb-client-core"
    with pytest.raises(ConfigError, match=rf"not installed\. On Debian: apt-get install {packages}\."):
        MariaDbServer().start()
    with pytest.raises(ConfigError, match="this MariaDbServer is not started"):
        print(MariaDbServer().url)


def test_mariadb_whose_installer_fails_is_an_error_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installer = tmp_path / "mariadb-install-db"
    installer.write_text("#!/bin/sh\necho FATAL ERROR: Could not find /usr/bin/my_print_defaults\nexit 1\n")
    installer.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(
        ServerStartError, match=r"cannot make a database of MariaDB in .*: FATAL ERROR: Could not find /usr"
    ):
        MariaDbServer().start()


def test_mariadb_lets_nobody_in_without_the_password(streamgroup_mariadb: MariaDbServer) -> None:
    url = url_of(streamgroup_mariadb.url)
    for user in ("streamgroup", "root", "mysql", ""):
        with pytest.raises(sa.exc.OperationalError, match="Access denied"):
            open_engine(url.set(username=user, password="", database="mysql")).connect()
    with open_engine(url).connect() as connection, pytest.raises(sa.exc.OperationalError, match="denied"):
        connection.exec_driver_sql("SELECT * FROM mysql.global_priv")
