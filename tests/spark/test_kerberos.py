"""A job that authenticates by Kerberos: the coordinator process, the tasks of reads and those of the sink."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.spark.submitting import submitted
from tests.spark.support import Load, committed
from tests.waiting import TIMEOUT_S, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.long, pytest.mark.timeout(300)]

START_S = 120.0
SETTINGS = """\
[source]
kafka.group.id = "kerberized"
subscribe = "{topic}"
startingOffsets = "earliest"
maxOffsetsPerTrigger = 20
{client}

[sink]
format = "streamgroup"
checkpoint = "checkpoint"
columns = ["value"]

[sink.options]
topic = "{copy}"
{client}

[spark.conf]
spark.ui.enabled = "false"
"""


def test_a_job_shares_a_group_and_writes_while_its_sessions_end(tmp_path: Path, make_topic: MakeTopic) -> None:
    config = {"connections.max.reauth.ms": "3000"}
    with KafkaServer(security="SASL_SSL", mechanisms=["GSSAPI"], acls=True, config=config) as server:
        topic, copy = make_topic(server, 2), make_topic(server)
        for operation, name in (("READ", topic), ("WRITE", copy)):
            server.security.add_acl("client", operation, topic=name)
        server.security.add_acl("client", "READ", group="kerberized")
        client = server.security.client()
        load = Load(server, topic, 2, {"bootstrap.servers": server.direct_servers})
        load.send(100)
        admin = AdminClient({"bootstrap.servers": server.direct_servers})  # without Kerberos
        file = tmp_path / "job.toml"
        options = "\n".join(f"{name} = {json.dumps(value)}" for name, value in client.options.items())
        file.write_text(SETTINGS.format(topic=topic, copy=copy, client=options))
        with submitted(tmp_path, file, environment=client.environment) as job:

            def there(condition: Callable[[], bool], what: str, timeout: float = TIMEOUT_S) -> None:
                wait_until(lambda: condition() or job.process.poll() is not None, what, timeout)
                assert job.process.poll() is None, job.log()

            there(lambda: written(admin, copy) == 100, "the first records", START_S)
            begun = logins(server)
            there(lambda: logins(server) >= begun + 4, "sessions that begin anew")
            load.send(100)
            there(lambda: written(admin, copy) == 200, "the other records")
            there(lambda: sum(committed(server, "kerberized", topic).values()) == 200, "the commits")
            assert "rejected" not in job.log()


def logins(server: KafkaServer) -> int:
    return server.brokers[0].log.read_text().count("authenticationID=client@")


def written(admin: AdminClient, topic: str) -> int:
    partition = TopicPartition(topic, 0)
    return int(admin.list_offsets({partition: OffsetSpec.latest()})[partition].result(20).offset)
