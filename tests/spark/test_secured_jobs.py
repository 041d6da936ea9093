"""The ingest job on secured brokers, beside Kafka's own consumer in one group with the same credentials."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from streamgroup.testing import KafkaServer
from streamgroup.testing.releases import NEWEST, release_of
from streamgroup.testing.security.client import Stores
from tests.conftest import MakeTopic
from tests.spark.console_consumer import java_consumer
from tests.spark.submitting import SHARED_S, ingest_file, submitted, until, values
from tests.spark.support import Load, committed, log_ends, repeated

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.long, pytest.mark.timeout(900)]

PARTITIONS = 4
START_S = 300.0
"""For a machine that runs much else beside."""
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True)
class Setup:
    """A server to start."""

    version: str
    security: str
    mechanisms: tuple[str, ...] = ()

    @property
    def each(self) -> list[object]:
        """One case for each mechanism, or one for a client certificate."""
        name = f"{self.version}-{self.security}"
        if not self.mechanisms:
            return [pytest.param(self, None, id=f"{name}-mutual")]
        return [pytest.param(self, each, id=f"{name}-{each}") for each in self.mechanisms]


KERBEROS = ("GSSAPI",)
"""A server of its own: it needs a KDC."""
SETUPS = [
    Setup(NEWEST, "SSL"),
    Setup(NEWEST, "SASL_SSL", ("PLAIN", *SCRAM, "OAUTHBEARER")),
    Setup(NEWEST, "SASL_SSL", KERBEROS),
    *(
        Setup(version, security, mechanisms)
        for version in ("1.1.1", "0.10.2.2")
        for security in ("SASL_PLAINTEXT", "SASL_SSL")
        for mechanisms in (("PLAIN", *SCRAM), KERBEROS)
    ),
]


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[KafkaServer]:
    setup: Setup = request.param
    with KafkaServer(
        setup.version,
        security=setup.security,
        mechanisms=setup.mechanisms,
        mutual_tls=not setup.mechanisms,
        acls=True,
    ) as started:
        yield started


@pytest.mark.parametrize(
    ("server", "mechanism"),
    [case for setup in SETUPS for case in setup.each],
    indirect=["server"],
    scope="module",  # else pytest starts a broker for each test
)
def test_the_job_and_a_java_consumer_share_a_group_with_the_same_credentials(
    server: KafkaServer, mechanism: str | None, make_topic: MakeTopic, tmp_path: Path
) -> None:
    # Before 0.11 brokers know no idempotent producer.
    settings = {"enable.idempotence": release_of(server.version).number >= (0, 11)}
    load = Load(server, make_topic(server, PARTITIONS), PARTITIONS, settings)
    server.security.add_acl("client", "READ", topic=load.topic)
    server.security.add_acl("client", "READ", group=load.topic)
    client = server.security.client(mechanism=mechanism)
    load.send(100)
    file = ingest_file(tmp_path, load, client.options)
    with submitted(tmp_path, file, "--member", "a", environment=client.environment, hooks=True) as job:
        until(job, lambda: len(values(tmp_path, "a")) == 100, "the job has read all", START_S)
        # Before 2.7 Java reads no PEM.
        stores: Stores = "PEM" if release_of(server.version).number >= (2, 7) else "PKCS12"
        same = server.security.client(mechanism=mechanism, stores=stores)
        with java_consumer(tmp_path, load, load.topic, "RangeAssignor", same) as java:

            def shared() -> bool:
                assert "Exception" not in java.errors(), java.errors()
                before, there = len(values(tmp_path, "a")), len(java.values())
                load.send(PARTITIONS)
                until(job, lambda: len(all_read()) >= len(load.sent), "all records are read")
                return len(values(tmp_path, "a")) - before == len(java.values()) - there == PARTITIONS // 2

            def all_read() -> list[str]:
                return values(tmp_path, "a") + java.values()

            until(job, shared, "each has two partitions", SHARED_S, java.errors)
            load.send(100)
            until(job, lambda: set(all_read()) == set(load.sent), "together every record")
        load.send(100)
        until(job, lambda: set(all_read()) == set(load.sent), "the job has taken over")
        job.process.terminate()
        assert job.exit_code() == 0, job.log()
    assert "stopped; nothing will be repeated" in "\n".join(job.said())
    assert repeated(all_read()) == {}
    assert committed(server, load.topic, load.topic) == log_ends(server, load.topic, PARTITIONS)
    secret = server.security.files.passwords.read_text()
    assert not [word for word in secret.split('"') if len(word) >= 20 and word in job.log()], "no password in the log"
