"""The exceptions of streamgroup.

    StreamGroupError
    +-- ConfigError                 an option, a file or a combination that cannot work; never retried
    +-- TransportError              a connection failed or a deadline passed; the caller may retry
    +-- DecodeError                 invalid bytes; never decoded into wrong rows
    |   +-- Truncated               the bytes end before the value does
    |   +-- ChecksumMismatch
    |   +-- TooLarge                a size exceeds its limit
    |   +-- UnsupportedCodec
    |   +-- UnsupportedMagic        an unsupported format of records
    +-- EncodeError                 a value that the protocol cannot carry
    |   +-- UnknownPartition        a row for a partition that its topic does not have
    +-- BrokerError                 an error code in a response
    |   +-- BrokerAuthorizationError    the user lacks a permission (an AuthorizationError, too)
    +-- UnsupportedVersionError     broker and client share no version of an API
    +-- FencedError                 another member has taken this one's place
    +-- DrainedError                a drain has ended the query on request
    +-- ProduceError                records were not written, or it is unknown whether they were
    |   +-- DeliveryTimeoutError    no acknowledgement came within delivery.timeout.ms
    |   +-- RecordTooLargeError     one record exceeds a limit of the broker or of the producer
    |   +-- UnknownTopicError       the topic or the partition did not appear within max.block.ms
    |   +-- NoBrokerError           no broker answered within max.block.ms (a TransportError, too)
    |   +-- ProduceAuthorizationError   the user lacks a permission (an AuthorizationError, too)
    +-- DataLossError               records have been lost
    +-- DeadLetterError             more records of a batch than the limit allows cannot be parsed
    +-- AuthError                   client and server do not accept each other; never retried
    |   +-- TlsError                the TLS handshake failed, and retrying will not help
    |   +-- AuthenticationError     an exchange of SASL failed, on either side
    +-- AuthorizationError          Kafka's authorizer refuses the user; never retried
    +-- OffsetStoreError

The table of Kafka's error codes gives, for each code, its meaning, whether a retry may succeed, and the data to refresh
before that. A leaf module: it imports nothing of this package but `frozen`.
"""

from __future__ import annotations

from enum import Enum, IntEnum

from streamgroup.frozen import frozen


class StreamGroupError(Exception):
    """The base class of all errors. A message names what failed, for which object, and the next step."""


class ConfigError(StreamGroupError):
    """An option, a file or a combination of them is invalid. Retrying will not help."""


class SkippedBatchError(ConfigError):
    """The sink has skipped a batch: Spark reports it as done, but no task has read its data (R17)."""


class TransportError(StreamGroupError):
    """A connection could not be made, was lost, or did not answer before its deadline."""


class NoBrokersYetError(TransportError):
    """A broker has answered, but its metadata list no broker.

    A broker of 0.8 lists brokers after the first topic exists.
    """


class DecodeError(StreamGroupError):
    """Received bytes are invalid.

    If they are a record batch, `base_offset` is the batch's first offset and `next_offset` is the offset after the
    batch. Each is None if it is unknown.
    """

    base_offset: int | None = None
    next_offset: int | None = None


class Truncated(DecodeError):
    """The bytes end before the value does."""


class ChecksumMismatch(DecodeError):
    """A checksum does not match: the bytes are damaged."""


class TooLarge(DecodeError):
    """A declared or actual size exceeds its limit."""


class UnsupportedCodec(DecodeError):
    """A compression codec that streamgroup does not support."""


class UnsupportedMagic(DecodeError):
    """A record format (magic number) that streamgroup does not support."""


class EncodeError(StreamGroupError):
    """A value does not fit its field: a number is too large, a string has more than 32 767 bytes, or it is null."""


class UnknownPartition(EncodeError):
    """A row names a partition that `topic` does not have. The topic may have it after a refresh of the metadata.

    `row` is the number of the row in the task, from 0. `partitions` is a text: the partitions that the topic has.
    """

    def __init__(self, row: int, topic: str, partition: int, partitions: str) -> None:
        self.row, self.topic, self.partition, self.partitions = row, topic, partition, partitions
        super().__init__(
            f"cannot write row {row} of the task to partition {partition} of topic {topic}: the topic has "
            f"{partitions}. Correct the column 'partition', or add partitions to the topic"
        )

    def __reduce__(self) -> tuple[type[UnknownPartition], tuple[int, str, int, str]]:
        return type(self), (self.row, self.topic, self.partition, self.partitions)


class BrokerError(StreamGroupError):
    """A broker has answered with an error code.

    `error` is the code, or its `KafkaError`. `context` says what failed, and for which object.
    """

    def __init__(self, error: int | KafkaError, context: str) -> None:
        self.error = error_of(error) if isinstance(error, int) else error
        self.context = context
        super().__init__(f"{context}: {self.error.name} ({self.error.code}): {self.error.text}")

    def __reduce__(self) -> tuple[type[BrokerError], tuple[KafkaError, str]]:
        return type(self), (self.error, self.context)

    @property
    def code(self) -> int:
        return self.error.code

    @property
    def name(self) -> str:
        return self.error.name

    @property
    def retriable(self) -> bool:
        """True if a retry of the same request may succeed."""
        return self.error.retriable

    @property
    def refresh(self) -> Refresh:
        return self.error.refresh


class AuthorizationError(StreamGroupError):
    """Kafka's authorizer has refused a request: the user lacks a permission. Never retried."""


class BrokerAuthorizationError(BrokerError, AuthorizationError):
    """A broker has answered with an authorization error code.

    `missing` says which user lacks which permission, and how to grant it.
    """

    def __init__(self, error: int | KafkaError, context: str, missing: str) -> None:
        super().__init__(error, context)
        self.missing = missing
        self.args = (f"{context}: {self.error.name} ({self.error.code}): {missing}",)

    def __reduce__(self) -> tuple[type[BrokerAuthorizationError], tuple[KafkaError, str, str]]:  # type: ignore[override]
        return type(self), (self.error, self.context, self.missing)


class UnsupportedVersionError(StreamGroupError):
    """The broker and streamgroup support no common version of an API."""


class FencedError(StreamGroupError):
    """Another member has taken the place of this member: the group rejects its commits."""


class ClaimLostError(FencedError):
    """Another run has claimed a partition in the offset table, or an operator has reset its offset."""


class TransactionAbortedError(StreamGroupError):
    """A transaction cannot be committed, and nothing of it is visible. The same records can be written in another."""


class DrainedError(StreamGroupError):
    """A drain that another process requested has ended the query. This is not a failure."""


class ProduceError(StreamGroupError):
    """A producer could not write records.

    `code` is the broker's last error code, 0 if there is none. `maybe_written` is true if the broker may have the
    records: a request with them was not answered, or the answer does not show whether they were written.
    """

    def __init__(self, message: str, code: int = 0, maybe_written: bool = False) -> None:
        self.message = message
        self.code = code
        self.maybe_written = maybe_written
        super().__init__(message)

    def __reduce__(self) -> tuple[type[ProduceError], tuple[str, int, bool]]:
        return type(self), (self.message, self.code, self.maybe_written)


class DeliveryTimeoutError(ProduceError):
    """No acknowledgement came within delivery.timeout.ms."""


class RecordTooLargeError(ProduceError):
    """One record exceeds max.request.size of the producer or the limit of the broker or the topic."""


class UnknownTopicError(ProduceError):
    """The topic or the partition did not appear in the metadata within max.block.ms."""


class NoBrokerError(ProduceError, TransportError):
    """No broker returned the metadata of a topic within max.block.ms."""


class ProduceAuthorizationError(ProduceError, AuthorizationError):
    """The user lacks the permission to write a topic, or to write with an idempotent producer."""


class DataLossError(StreamGroupError):
    """Records have been lost before they were read."""


class DeadLetterError(StreamGroupError):
    """More records of a batch than the limit allows cannot be parsed. Nothing of the batch is written or committed."""


class AuthError(StreamGroupError):
    """Client and server do not accept each other. Retrying will not help."""


class TlsError(AuthError):
    """The TLS handshake failed: client and broker do not trust each other, or share no version or cipher suite."""


class AuthenticationError(AuthError):
    """A SASL exchange failed: the broker rejected the client, or the client does not trust the broker.

    Never retried: a broker may lock an account after several attempts with the same credentials.
    """


class OffsetStoreError(StreamGroupError):
    """A system that stores offsets could not store or find an offset, or a database could not store rows with them."""


class Refresh(Enum):
    """The data to refresh before a request is sent again."""

    NONE = "nothing"
    METADATA = "metadata"
    COORDINATOR = "coordinator"


@frozen
class KafkaError:
    """One error code of Kafka. `retriable` is as in Kafka's own clients: true if the same request may succeed later."""

    code: int
    name: str
    retriable: bool
    refresh: Refresh
    text: str


class ErrorCode(IntEnum):
    """The error codes that this package refers to by name. The table of `error_of` has all codes."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    TRANSACTION_ABORTABLE = 120
    REBOOTSTRAP_REQUIRED = 129


_FINAL = (False, Refresh.NONE)
_RETRY = (True, Refresh.NONE)
_METADATA = (True, Refresh.METADATA)
_COORDINATOR = (True, Refresh.COORDINATOR)

_ROWS: tuple[tuple[int, str, tuple[bool, Refresh], str], ...] = (
    (-1, "UNKNOWN_SERVER_ERROR", _FINAL, "the broker failed unexpectedly; see the broker's log"),
    (0, "NONE", _FINAL, "no error"),
    (1, "OFFSET_OUT_OF_RANGE", _FINAL, "the log does not hold this offset"),
    (2, "CORRUPT_MESSAGE", _RETRY, "a record is damaged, too large or lacks the key that compaction needs"),
    (3, "UNKNOWN_TOPIC_OR_PARTITION", _METADATA, "the broker does not hold the partition, or there is none"),
    (4, "INVALID_FETCH_SIZE", _FINAL, "the fetch size is not valid"),
    (5, "LEADER_NOT_AVAILABLE", _METADATA, "the partition has no leader at the moment"),
    (6, "NOT_LEADER_OR_FOLLOWER", _METADATA, "the broker no longer leads or replicates the partition"),
    (7, "REQUEST_TIMED_OUT", _RETRY, "the broker did not finish in time"),
    (8, "BROKER_NOT_AVAILABLE", _FINAL, "the broker is not available"),
    (9, "REPLICA_NOT_AVAILABLE", _METADATA, "the broker has no replica of the partition yet"),
    (10, "MESSAGE_TOO_LARGE", _FINAL, "a message is larger than the broker accepts"),
    (11, "STALE_CONTROLLER_EPOCH", _FINAL, "another controller has taken over"),
    (12, "OFFSET_METADATA_TOO_LARGE", _FINAL, "the metadata of a commit is longer than offset.metadata.max.bytes"),
    (13, "NETWORK_EXCEPTION", _METADATA, "the connection ended before the response arrived"),
    (14, "COORDINATOR_LOAD_IN_PROGRESS", _RETRY, "the group coordinator is still loading the group"),
    (15, "COORDINATOR_NOT_AVAILABLE", _COORDINATOR, "there is no group coordinator at the moment"),
    (16, "NOT_COORDINATOR", _COORDINATOR, "the group has moved to another group coordinator"),
    (17, "INVALID_TOPIC_EXCEPTION", _FINAL, "the topic's name is not valid"),
    (18, "RECORD_LIST_TOO_LARGE", _FINAL, "a batch is larger than a log segment"),
    (19, "NOT_ENOUGH_REPLICAS", _RETRY, "too few replicas are in sync to accept writes"),
    (20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", _RETRY, "written, but to fewer in-sync replicas than required"),
    (21, "INVALID_REQUIRED_ACKS", _FINAL, "the required acks are not valid"),
    (22, "ILLEGAL_GENERATION", _FINAL, "the group has a newer generation"),
    (23, "INCONSISTENT_GROUP_PROTOCOL", _FINAL, "the other members share no protocol or strategy with this one"),
    (24, "INVALID_GROUP_ID", _FINAL, "the group id is not valid"),
    (25, "UNKNOWN_MEMBER_ID", _FINAL, "the group has no such member"),
    (26, "INVALID_SESSION_TIMEOUT", _FINAL, "the session timeout is outside of group.min/max.session.timeout.ms"),
    (27, "REBALANCE_IN_PROGRESS", _FINAL, "the group is rebalancing; join again"),
    (28, "INVALID_COMMIT_OFFSET_SIZE", _FINAL, "the commit is larger than the broker accepts"),
    (29, "TOPIC_AUTHORIZATION_FAILED", _FINAL, "no permission on the topic"),
    (30, "GROUP_AUTHORIZATION_FAILED", _FINAL, "no permission on the group"),
    (31, "CLUSTER_AUTHORIZATION_FAILED", _FINAL, "no permission on the cluster"),
    (32, "INVALID_TIMESTAMP", _FINAL, "a timestamp is out of the accepted range"),
    (33, "UNSUPPORTED_SASL_MECHANISM", _FINAL, "the broker does not have this SASL mechanism"),
    (34, "ILLEGAL_SASL_STATE", _FINAL, "the request does not fit the state of authentication"),
    (35, "UNSUPPORTED_VERSION", _FINAL, "the broker does not support this version of the API"),
    (36, "TOPIC_ALREADY_EXISTS", _FINAL, "a topic of this name exists"),
    (37, "INVALID_PARTITIONS", _FINAL, "the number of partitions is not valid"),
    (38, "INVALID_REPLICATION_FACTOR", _FINAL, "the replication factor is below 1 or above the number of brokers"),
    (39, "INVALID_REPLICA_ASSIGNMENT", _FINAL, "the assignment of replicas is not valid"),
    (40, "INVALID_CONFIG", _FINAL, "a configuration is not valid"),
    (41, "NOT_CONTROLLER", _METADATA, "the broker is not the controller"),
    (42, "INVALID_REQUEST", _FINAL, "the broker could not parse the request; see the broker's log"),
    (43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", _FINAL, "the topic's message format does not support the request"),
    (44, "POLICY_VIOLATION", _FINAL, "a policy of the broker forbids the request"),
    (45, "OUT_OF_ORDER_SEQUENCE_NUMBER", _FINAL, "a producer's sequence has a gap"),
    (46, "DUPLICATE_SEQUENCE_NUMBER", _FINAL, "a producer's sequence was seen before"),
    (47, "INVALID_PRODUCER_EPOCH", _FINAL, "a producer's epoch is old"),
    (48, "INVALID_TXN_STATE", _FINAL, "the transaction's state does not allow the request"),
    (49, "INVALID_PRODUCER_ID_MAPPING", _FINAL, "the producer id does not belong to the transactional id"),
    (50, "INVALID_TRANSACTION_TIMEOUT", _FINAL, "the transaction timeout is above transaction.max.timeout.ms"),
    (51, "CONCURRENT_TRANSACTIONS", _RETRY, "another change of the transaction is under way"),
    (52, "TRANSACTION_COORDINATOR_FENCED", _FINAL, "another transaction coordinator has taken over"),
    (53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", _FINAL, "no permission on the transactional id"),
    (54, "SECURITY_DISABLED", _FINAL, "security is not enabled on the broker"),
    (55, "OPERATION_NOT_ATTEMPTED", _FINAL, "not attempted, because another part of the request failed"),
    (56, "KAFKA_STORAGE_ERROR", _METADATA, "the broker's disk failed"),
    (57, "LOG_DIR_NOT_FOUND", _FINAL, "the broker does not have this log directory"),
    (58, "SASL_AUTHENTICATION_FAILED", _FINAL, "the credentials were not accepted"),
    (59, "UNKNOWN_PRODUCER_ID", _FINAL, "the broker has no records of the producer any more"),
    (60, "REASSIGNMENT_IN_PROGRESS", _FINAL, "the partition is being reassigned"),
    (61, "DELEGATION_TOKEN_AUTH_DISABLED", _FINAL, "delegation tokens are disabled"),
    (62, "DELEGATION_TOKEN_NOT_FOUND", _FINAL, "unknown delegation token"),
    (63, "DELEGATION_TOKEN_OWNER_MISMATCH", _FINAL, "the delegation token is owned or renewed by another principal"),
    (64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", _FINAL, "delegation tokens are not allowed on this connection"),
    (65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED", _FINAL, "no permission on the delegation token"),
    (66, "DELEGATION_TOKEN_EXPIRED", _FINAL, "the delegation token has expired"),
    (67, "INVALID_PRINCIPAL_TYPE", _FINAL, "the kind of principal is not supported"),
    (68, "NON_EMPTY_GROUP", _FINAL, "the group has members"),
    (69, "GROUP_ID_NOT_FOUND", _FINAL, "the group does not exist"),
    (70, "FETCH_SESSION_ID_NOT_FOUND", _RETRY, "the fetch session is gone"),
    (71, "INVALID_FETCH_SESSION_EPOCH", _RETRY, "the fetch session is at another epoch"),
    (72, "LISTENER_NOT_FOUND", _METADATA, "the leader does not have the listener of the request"),
    (73, "TOPIC_DELETION_DISABLED", _FINAL, "deletion of topics is disabled"),
    (74, "FENCED_LEADER_EPOCH", _METADATA, "the broker has a newer leader epoch"),
    (75, "UNKNOWN_LEADER_EPOCH", _RETRY, "the leader epoch is newer than the broker's"),
    (76, "UNSUPPORTED_COMPRESSION_TYPE", _FINAL, "the records' compression needs a newer version of the API"),
    (77, "STALE_BROKER_EPOCH", _FINAL, "the broker has registered again"),
    (78, "OFFSET_NOT_AVAILABLE", _RETRY, "the new leader has no high watermark yet"),
    (79, "MEMBER_ID_REQUIRED", _FINAL, "join again with the member id in the response"),
    (80, "PREFERRED_LEADER_NOT_AVAILABLE", _METADATA, "the preferred leader is not available"),
    (81, "GROUP_MAX_SIZE_REACHED", _FINAL, "the group is full: group.max.size of the broker"),
    (82, "FENCED_INSTANCE_ID", _FINAL, "another member with the same group.instance.id has taken this one's place"),
    (83, "ELIGIBLE_LEADERS_NOT_AVAILABLE", _METADATA, "no replica is available that may become the leader"),
    (84, "ELECTION_NOT_NEEDED", _METADATA, "the preferred replica is already the leader"),
    (85, "NO_REASSIGNMENT_IN_PROGRESS", _FINAL, "the partition is not being reassigned"),
    (86, "GROUP_SUBSCRIBED_TO_TOPIC", _FINAL, "the group still subscribes to the topic"),
    (87, "INVALID_RECORD", _FINAL, "the broker does not accept a record"),
    (88, "UNSTABLE_OFFSET_COMMIT", _RETRY, "a transaction with offsets of the group is still open"),
    (89, "THROTTLING_QUOTA_EXCEEDED", _RETRY, "the quota is used up; wait"),
    (90, "PRODUCER_FENCED", _FINAL, "another producer with the same transactional id has taken over"),
    (91, "RESOURCE_NOT_FOUND", _FINAL, "the resource in the request does not exist"),
    (92, "DUPLICATE_RESOURCE", _FINAL, "the request contains a resource twice"),
    (93, "UNACCEPTABLE_CREDENTIAL", _FINAL, "the credential does not meet the broker's criteria"),
    (94, "INCONSISTENT_VOTER_SET", _FINAL, "sender or receiver is not among the voters"),
    (95, "INVALID_UPDATE_VERSION", _FINAL, "the version to update to is not valid"),
    (96, "FEATURE_UPDATE_FAILED", _FINAL, "the finalized features could not be updated"),
    (97, "PRINCIPAL_DESERIALIZATION_FAILURE", _FINAL, "a forwarded principal could not be read"),
    (98, "SNAPSHOT_NOT_FOUND", _FINAL, "the snapshot does not exist"),
    (99, "POSITION_OUT_OF_RANGE", _FINAL, "the position is outside of the snapshot"),
    (100, "UNKNOWN_TOPIC_ID", _METADATA, "the broker does not hold the topic of this id, or there is none"),
    (101, "DUPLICATE_BROKER_REGISTRATION", _FINAL, "the broker id is in use"),
    (102, "BROKER_ID_NOT_REGISTERED", _FINAL, "no broker of this id has registered"),
    (103, "INCONSISTENT_TOPIC_ID", _METADATA, "the log belongs to another topic id"),
    (104, "INCONSISTENT_CLUSTER_ID", _FINAL, "this is another cluster"),
    (105, "TRANSACTIONAL_ID_NOT_FOUND", _FINAL, "unknown transactional id"),
    (106, "FETCH_SESSION_TOPIC_ID_ERROR", _METADATA, "the fetch session mixes topic names and topic ids"),
    (107, "INELIGIBLE_REPLICA", _FINAL, "a replica may not be in sync"),
    (108, "NEW_LEADER_ELECTED", _FINAL, "the change led to another leader"),
    (109, "OFFSET_MOVED_TO_TIERED_STORAGE", _FINAL, "the offset is in tiered storage"),
    (110, "FENCED_MEMBER_EPOCH", _FINAL, "the member's epoch is fenced; give up all partitions and join again"),
    (111, "UNRELEASED_INSTANCE_ID", _FINAL, "another member still holds the group.instance.id"),
    (112, "UNSUPPORTED_ASSIGNOR", _FINAL, "the group does not have this assignor"),
    (113, "STALE_MEMBER_EPOCH", _FINAL, "the member's epoch is old; wait for the new one"),
    (114, "MISMATCHED_ENDPOINT_TYPE", _FINAL, "the request belongs to another kind of endpoint"),
    (115, "UNSUPPORTED_ENDPOINT_TYPE", _FINAL, "the kind of endpoint is not supported"),
    (116, "UNKNOWN_CONTROLLER_ID", _FINAL, "unknown controller id"),
    (117, "UNKNOWN_SUBSCRIPTION_ID", _FINAL, "the telemetry subscription is unknown or out of date"),
    (118, "TELEMETRY_TOO_LARGE", _FINAL, "the telemetry is larger than the broker accepts"),
    (119, "INVALID_REGISTRATION", _FINAL, "the controller does not accept the broker's registration"),
    (120, "TRANSACTION_ABORTABLE", _FINAL, "the transaction has failed and has to be aborted"),
    (121, "INVALID_RECORD_STATE", _FINAL, "the record's state does not allow the acknowledgement"),
    (122, "SHARE_SESSION_NOT_FOUND", _RETRY, "the share session is gone"),
    (123, "INVALID_SHARE_SESSION_EPOCH", _RETRY, "the share session is at another epoch"),
    (124, "FENCED_STATE_EPOCH", _FINAL, "the share group's state is at another epoch"),
    (125, "INVALID_VOTER_KEY", _FINAL, "the voter's key is not the replica's"),
    (126, "DUPLICATE_VOTER", _FINAL, "the voter is in the set already"),
    (127, "VOTER_NOT_FOUND", _FINAL, "the voter is not in the set"),
    (128, "INVALID_REGULAR_EXPRESSION", _FINAL, "the regular expression is not valid"),
    (129, "REBOOTSTRAP_REQUIRED", _FINAL, "the metadata is out of date; start again from the bootstrap servers"),
    (130, "STREAMS_INVALID_TOPOLOGY", _FINAL, "the topology is not valid"),
    (131, "STREAMS_INVALID_TOPOLOGY_EPOCH", _FINAL, "the topology's epoch is not valid"),
    (132, "STREAMS_TOPOLOGY_FENCED", _FINAL, "the topology's epoch is old"),
    (133, "SHARE_SESSION_LIMIT_REACHED", _RETRY, "no more share sessions are possible"),
)

KAFKA_ERRORS: dict[int, KafkaError] = {
    code: KafkaError(code, name, retriable, refresh, text) for code, name, (retriable, refresh), text in _ROWS
}
"""Every code of Kafka 4.3 by its number."""


def error_of(code: int) -> KafkaError:
    """Return the `KafkaError` of `code`. A code that the table lacks is UNKNOWN_<code>, which is not retriable."""
    known = KAFKA_ERRORS.get(code)
    if known is not None:
        return known
    return KafkaError(code, f"UNKNOWN_{code}", False, Refresh.NONE, "a code of a newer broker; see Kafka's own table")


def is_unexpected(code: int) -> bool:
    """Return whether `code` leaves open if a retry may succeed: an unknown code, or an unexpected failure.

    Java's clients also treat an unknown code of a newer broker as UNKNOWN_SERVER_ERROR.
    """
    return code in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.BROKER_NOT_AVAILABLE) or code not in KAFKA_ERRORS


def may_succeed_later(code: int) -> bool:
    """Return whether a retry of the same request may succeed after `code`."""
    return is_unexpected(code) or error_of(code).retriable
