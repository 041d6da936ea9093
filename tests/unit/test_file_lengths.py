"""A module is one idea that a newcomer looks up by name: neither a heap of ideas nor a part of its only importer.

`python -m tools.metrics --list` names the modules with one importer. `python -m tools.move MODULE IMPORTER` merges one.
"""

from __future__ import annotations

import functools
from pathlib import Path

from tools.metrics import FEWEST_LINES, Checkout

ROOT = Path(__file__).parents[2]
ROOMS = (
    "streamgroup",
    "pyspark_streamgroup",
    "pyspark_streamgroup_sql",
    "jobs",
    "tests",
    "tools",
    "benchmarks",
    "examples",
)
MOST_LINES = 800
MOST_WITH_ONE_IMPORTER = 50

REASONS = {
    "cli/ui.py": "a command of its own, which `kafka` runs for its cluster, too",
    "coordinator/control/claims.py": "locked files, without Kafka: the claim outlives a run",
    "coordinator/planning/log_read_schedule.py": "the pure half of the log watcher",
    "coordinator/process.py": "the entry point of the coordinator's process",
    "coordinator/run/spark_calls.py": "with the machine it would have more than 800 lines",
    "coordinator/threads/group_thread.py": "a thread of its own",
    "coordinator/threads/log_checks.py": "the checks of KIP-320, which the run asks for and a thread carries out",
    "coordinator/threads/table_thread.py": "a thread of its own, whose library is an extra",
    "coordinator/threads/registry_thread.py": "a thread of its own, for groups in ZooKeeper",
    "executor/read/kafka.py": "the reader of Kafka 0.8 and later; Kafka 0.7 has another one",
    "executor/read/kafka07.py": "legacy: the reader of Kafka 0.7",
    "executor/read/read_replicas.py": "the choice of a replica (KIP-392), without connections",
    "executor/write/produce_links.py": "the connections of a producer, apart from its records",
    "group/assignment.py": "the work of the group's leader, apart from a member's",
    "group/consumer_membership.py": "the consumer protocol as a pure machine",
    "group/lanes.py": "the pure half of the group's thread",
    "group/membership.py": "the protocol of a group as a pure machine",
    "group/offsets/zookeeper.py": "one of the stores of offsets",
    "group/registry/membership.py": "the group in ZooKeeper as a pure machine",
    "group/registry/patterns.py": "bounded matching of patterns that other consumers wrote",
    "group/registry/registration.py": "with the machine it would have more than 800 lines",
    "group/registry/work.py": "the pure half of the registry's thread",
    "group/standalone.py": "the membership of the modes `commit` and `off`",
    "jobs/mirror/report.py": "the comparison of `--verify`, apart from the copy",
    "kafka/net/local.py": "Unix sockets of this user's processes, without Kafka",
    "kafka/net/protocol07.py": "legacy: the protocol of Kafka 0.7",
    "kafka/net/sasl/credentials.py": "imported only if a connection authenticates, so that tasks start fast",
    "kafka/net/sasl/kerberos.py": "a mechanism whose library is an extra",
    "kafka/net/sasl/tokens.py": "the sources of bearer tokens and their cache",
    "kafka/net/tls/transport.py": "TLS on one socket, apart from the protocols over it",
    "kafka/producer/bookkeeping.py": "with the machine it would have more than 800 lines",
    "kafka/producer/kafka07_machine.py": "legacy: the producer of Kafka 0.7 as a pure machine",
    "kafka/producer/machine.py": "the producer as a pure machine",
    "kafka/producer/partition_queue.py": "with the machine it would have more than 800 lines",
    "kafka/records/damage.py": "the rules by which damaged batches are set aside",
    "kafka/records/encode_numpy.py": "the encoders in numpy, if there is no compiled kernel",
    "kafka/records/scan.py": "the scan in numpy, if there is no compiled kernel",
    "monitoring/page/history/views.py": "the JSON of the page, without a server",
    "monitoring/page/server.py": "the server of the page, apart from the command that starts it",
    "spark/progress.py": "a public function of the package",
    "spark/schema_registry.py": "a client whose library is an extra",
    "spark/sink.py": "Spark's interface of a writer",
    "spark/source.py": "Spark's interface of a data source, by its name",
    "sql/copy_binary.py": "a binary format of rows, without a database",
    "testing/background.py": "the processes that outlive a command",
    "testing/kafka07/cluster.py": "a public class of `streamgroup.testing`",
    "testing/kafka07/producer.py": "a public class of `streamgroup.testing`",
    "testing/security/admin.py": "users and ACLs in KRaft mode",
    "testing/security/server.py": "the security of one cluster, apart from its processes",
}
"""Why modules with one importer are not a part of it."""
SMALL = {"kafka/net/sasl/credentials.py"}
"""Modules with a reason that are small, too."""


def test_no_file_has_more_than_800_lines() -> None:
    files = [path for room in ROOMS for kind in ("*.py", "*.c", "*.h") for path in (ROOT / room).rglob(kind)]
    assert len(files) > 500, "the rooms have moved"
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in files}
    assert {name: length for name, length in lengths.items() if length > MOST_LINES} == {}


@functools.cache
def with_one_importer() -> dict[str, bool]:
    """Whether each module with one importer is small, by its path below the package."""
    modules = Checkout(ROOT).modules.values()
    return {one.path.removeprefix("streamgroup/"): one.is_small for one in modules if len(one.importers) == 1}


def test_a_module_with_one_importer_has_a_reason() -> None:
    found = with_one_importer().keys()
    assert found - REASONS.keys() == set(), "merge it into its importer, or give a reason"
    assert REASONS.keys() - found == set(), "it is gone, or has other importers: take it out of the table"
    assert len(REASONS) <= MOST_WITH_ONE_IMPORTER


def test_a_small_module_with_one_importer_is_an_exception() -> None:
    small = {path for path, is_small in with_one_importer().items() if is_small}
    assert small == SMALL, f"under {FEWEST_LINES} lines: merge it into its importer, or say in SMALL that it may stay"
