"""What the classes of errors mean and what to do about each, and errors whose texts come from elsewhere."""

from __future__ import annotations

from typing import NamedTuple


class Advice(NamedTuple):
    """`means` and `do` for a class of errors; its subclasses share it where they have none of their own."""

    means: str
    do: str


ADVICE = {
    "StreamGroupError": Advice(
        "another failure; the base class of all", "Read the cause in the message and in the log."
    ),
    "ConfigError": Advice(
        "an option, a file or a combination cannot work; never retried",
        "Correct what the message names, and start again.",
    ),
    "TransportError": Advice(
        "a connection failed or a deadline passed",
        "Check that the server runs and can be reached. A retry may succeed.",
    ),
    "DecodeError": Advice(
        "bytes or nodes are invalid; never decoded into wrong rows",
        "Find out who wrote them: another protocol at the port, a damaged log, a foreign node.",
    ),
    "ChecksumMismatch": Advice(
        "the bytes are not those that were written",
        "Step over the batch by the command in the message, or set damaged batches aside: "
        "[dead-letters.md](dead-letters.md#damaged-batches).",
    ),
    "EncodeError": Advice("a value that Kafka's protocol cannot carry", "Correct the value in the query."),
    "BrokerError": Advice(
        "the broker answered with an error code", "[error-codes.md](error-codes.md) explains the code."
    ),
    "AuthorizationError": Advice(
        "Kafka's authorizer refuses the user; never retried",
        "Run the command that the message shows: [least-rights.md](least-rights.md).",
    ),
    "UnsupportedVersionError": Advice(
        "broker and client share no version of an API", "Use a newer broker, or do without what the message names."
    ),
    "FencedError": Advice(
        "another member has taken this one's place", "Look for a second query with the same identity."
    ),
    "DrainedError": Advice("a drain ended the query as requested; not a failure", "Catch it: [drain.md](drain.md)."),
    "ProduceError": Advice(
        "records were not written, or nobody knows whether they were", "Write them again: [write.md](write.md)."
    ),
    "DataLossError": Advice(
        "records were gone before they were read",
        "Decide how to go on: [recover-from-data-loss.md](recover-from-data-loss.md).",
    ),
    "DeadLetterError": Advice(
        "more records than the limit allows cannot be parsed",
        "Correct the parser or raise the limit: [dead-letters.md](dead-letters.md).",
    ),
    "AuthError": Advice(
        "client and server do not accept each other; never retried",
        "[security-errors.md](security-errors.md) has cause and remedy.",
    ),
    "OffsetStoreError": Advice("offsets could not be stored or found", "Check the store that the message names."),
    "UsageError": Advice("the command line is not valid", "Run the command with `--help`."),
    "ClickException": Advice("a command could not do what it was asked to", "Read the cause in the message."),
    "ServerStartError": Advice("a test server did not start", "Read the end of its log in the message."),
}
"""By class. `UsageError` and `ClickException` are click's."""

_PASSED_ON = "the text of an error from below, unchanged"
_COLLECTED = "the problems that are listed in these tables, all in one error"
ELSEWHERE = {
    "kafka/net/sasl/kerberos.py": "the words of the Kerberos library",
    "cli/_change_options.py": _PASSED_ON,
    "cli/groups.py": "the errors of several groups, joined",
    "cli/offsets.py": "the errors of several staging tables, joined",
    "cli/main.py": _PASSED_ON,
    "kafka/cluster/admin.py": "what the caller was doing, then the broker's code",
    "kafka/cluster/changes.py": "what the caller was doing, then the broker's code",
    "kafka/cluster/kafka.py": "the causes of all bootstrap brokers, joined",
    "kafka/cluster/requests.py": "what the caller was doing, then the broker's code",
    "coordinator/control/channel.py": "the error of the coordinator process, sent to the caller",
    "coordinator/coordinator.py": "an unexpected exception of Python, a defect",
    "coordinator/threads/log_watcher.py": "an unexpected exception of Python, a defect",
    "errors.py": "the class puts the text together from its arguments",
    "executor/read/fetcher.py": _PASSED_ON,
    "group/offsets/zookeeper.py": "a refusal of ZooKeeper: docs/zookeeper-security.md",
    "group/reactions.py": "what the member was doing, then the broker's code",
    "group/registry/membership.py": "a refusal of ZooKeeper: docs/zookeeper-security.md",
    "jobs/job_file.py": _COLLECTED,
    "jobs/session.py": "what the executors lack, found by a task",
    "kafka/net/sasl/tokens.py": "what the caller was doing, then the cause",
    "options/database.py": _COLLECTED,
    "options/parse.py": _COLLECTED,
    "options/settings_reader.py": "an unknown name, with the most similar known one",
    "spark/parsing/parser.py": _COLLECTED,
    "coordinator/planning/loss.py": "each lost range, then the ways to go on",
    "kafka/records/decode.py": "the fault of a record: kafka/records/scan.py",
    "kafka/records/kernel.py": "the words of the compiled kernel",
    "kafka/records/messages.py": "the fault of a message: kafka/records/scan.py",
    "kafka/records/messages07.py": "the fault of a message: kafka/records/scan.py",
    "kafka/records/transactions.py": "the fault of a record: kafka/records/scan.py",
    "testing/kafka07/log.py": "the fault of a file of the emulated broker",
}
"""Files with an error whose text is not in the place where it is made, and where it comes from."""
