"""The member's reaction to each error code of the group coordinator, and the errors for users."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from streamgroup.advice import UNKNOWN, Operation, Requester, refusal
from streamgroup.errors import BrokerError, ErrorCode, FencedError, Refresh, StreamGroupError, error_of, is_unexpected
from streamgroup.group.requests import Purpose
from streamgroup.group.timing import MemberConfig

UNEXPECTED_ATTEMPTS = 10
"""The query fails after this many unexpected errors of the broker in a row: after 7 s with the default backoff."""


class Reaction(Enum):
    """The reaction of a member to an error code."""

    GO_ON = "go on"
    """Do nothing: the answer to the next request decides."""
    RETRY = "retry"
    """Send the same request again after a backoff."""
    FIND = "find"
    """Find the group coordinator: it is another broker, or there is none at the moment."""
    METADATA = "metadata"
    """Refresh the metadata, which is stale, and send the same request again after a backoff."""
    SMALLER = "smaller"
    """Send smaller requests: the broker does not accept one of this size."""
    UNEXPECTED = "unexpected"
    """Send the same request again after a backoff, at most `UNEXPECTED_ATTEMPTS` times: the cause is unknown."""
    REJOIN = "rejoin"
    """Rejoin at the boundary of the batch: the group rebalances (R21)."""
    STALE = "stale"
    """Give up all partitions and rejoin as the same member, as Java's client does: the generation is over (22)."""
    UNKNOWN = "unknown"
    """Give up all partitions and rejoin as a new member: the group coordinator does not know this one (25)."""
    NAMED = "named"
    """Join again with the member id in the answer (KIP-394)."""
    FATAL = "fatal"
    """Fail the query: retrying will not help."""


_EVERYWHERE: Mapping[int, Reaction] = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.FIND,
    ErrorCode.NOT_COORDINATOR: Reaction.FIND,
    ErrorCode.ILLEGAL_GENERATION: Reaction.STALE,
    ErrorCode.UNKNOWN_MEMBER_ID: Reaction.UNKNOWN,
    # A group coordinator that does not know the group does not know the member. Kafka answers OffsetCommit v9 with this
    # code, and earlier versions with ILLEGAL_GENERATION.
    ErrorCode.GROUP_ID_NOT_FOUND: Reaction.UNKNOWN,
    ErrorCode.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
    ErrorCode.FENCED_INSTANCE_ID: Reaction.FATAL,
    # KIP-848's codes for ILLEGAL_GENERATION.
    ErrorCode.FENCED_MEMBER_EPOCH: Reaction.STALE,
    ErrorCode.STALE_MEMBER_EPOCH: Reaction.STALE,
}

_OF: Mapping[Purpose, Mapping[int, Reaction]] = {
    Purpose.FIND: {ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.RETRY, ErrorCode.NOT_COORDINATOR: Reaction.RETRY},
    # JoinGroup already rejoins, so the member sends the same request again.
    Purpose.JOIN: {ErrorCode.MEMBER_ID_REQUIRED: Reaction.NAMED, ErrorCode.REBALANCE_IN_PROGRESS: Reaction.RETRY},
    Purpose.SYNC: {},
    Purpose.DESCRIBE: {},
    Purpose.HEARTBEAT: {},
    # The member leaves after any answer. If the group coordinator did not remove it, its session expires.
    Purpose.LEAVE: {},
    Purpose.CONSUMER_JOIN: {
        ErrorCode.UNKNOWN_MEMBER_ID: Reaction.RETRY,
        # A running member or an ended process: only time shows which (R39).
        ErrorCode.UNRELEASED_INSTANCE_ID: Reaction.RETRY,
        ErrorCode.FENCED_MEMBER_EPOCH: Reaction.RETRY,
        # The group has members of the classic protocol and is not converted, or it is of another kind.
        ErrorCode.GROUP_ID_NOT_FOUND: Reaction.FATAL,
    },
    Purpose.CONSUMER_HEARTBEAT: {},
    Purpose.CONSUMER_LEAVE: {},
    Purpose.CONSUMER_DESCRIBE: {},
}

_ANYWAY = {
    # The next heartbeat follows anyway, until the session times out.
    *(Purpose.HEARTBEAT, Purpose.CONSUMER_HEARTBEAT),
    # Kafka 4.0 cannot convert a classic group that gathers. Once and AvailableNow fail after group.joinTimeout, other
    # queries warn and try again.
    Purpose.CONSUMER_JOIN,
}

_OF_COMMIT: Mapping[int, Reaction] = {
    # The group coordinator appends all partitions of one OffsetCommit as one batch to __consumer_offsets. If the batch
    # exceeds max.message.bytes, Kafka 4 answers UNKNOWN_SERVER_ERROR, earlier releases 28.
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: Reaction.SMALLER,
    ErrorCode.MESSAGE_TOO_LARGE: Reaction.SMALLER,
    ErrorCode.RECORD_LIST_TOO_LARGE: Reaction.SMALLER,
}

_OF_FETCH: Mapping[int, Reaction] = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.FIND,
    ErrorCode.NOT_COORDINATOR: Reaction.FIND,
    # A group without commits has an empty answer. This code means that the group is being removed.
    ErrorCode.GROUP_ID_NOT_FOUND: Reaction.UNEXPECTED,
}


def reaction_to(purpose: Purpose, code: int) -> Reaction:
    """Return the reaction to `code` in a response to this request.

    A code without a row is retried if the table of errors says that it is retriable; otherwise it is fatal.
    """
    reaction = _OF[purpose].get(code) or _EVERYWHERE.get(code) or _by_the_table(code)
    if reaction is Reaction.METADATA:  # membership needs no metadata
        return Reaction.RETRY
    if reaction is Reaction.UNEXPECTED and purpose in _ANYWAY:
        return Reaction.RETRY
    return reaction


def reaction_to_commit(code: int) -> Reaction:
    """Return the reaction to `code` in an OffsetCommit response.

    `commit_verdict` turns it into a verdict on each partition. `Member` follows the verdict: it retries the commit or
    gives it up, and tells `Membership`, which joins the group again if the code concerns the membership.
    """
    return _OF_COMMIT.get(code) or _EVERYWHERE.get(code) or _by_the_table(code)


def reaction_to_fetch(code: int) -> Reaction:
    """Return the reaction to `code` in an OffsetFetch response. The request names no member."""
    return _OF_FETCH.get(code) or _by_the_table(code)


_JOINS_AGAIN = {Reaction.REJOIN, Reaction.STALE, Reaction.UNKNOWN}


def is_of_membership(code: int) -> bool:
    """Return whether this code of OffsetCommit concerns the membership, not the commit."""
    return reaction_to_commit(code) in _JOINS_AGAIN or code == ErrorCode.FENCED_INSTANCE_ID


def _by_the_table(code: int) -> Reaction:
    if is_unexpected(code):
        return Reaction.UNEXPECTED
    error = error_of(code)
    if not error.retriable:
        return Reaction.FATAL
    return Reaction.METADATA if error.refresh is Refresh.METADATA else Reaction.RETRY


def fatal_error(code: int, doing: str, config: MemberConfig, message: str | None = None) -> StreamGroupError:
    """Return the exception for a fatal code; `doing` is what failed, for example `join`.

    `message` is the broker's own under the consumer protocol, perhaps empty; None under the classic protocol.
    """
    if code == ErrorCode.FENCED_INSTANCE_ID:
        return FencedError(f"group {config.group_id}: {_FENCED.format(instance=config.instance_id)}")
    what = f"{doing} ({message.rstrip('.')})" if message else doing
    context = f"group {config.group_id}: cannot {what}"
    if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return refusal(code, context, Operation.READ, config.group_id, config.requester)
    advice = _advice(_ADVICE if message is None else {**_ADVICE, **_ADVICE_OF_CONSUMERS}, code)
    if advice is not None:
        strategies = ", ".join(config.strategies)
        advice = advice.format(
            group=config.group_id,
            strategies=strategies,
            session=config.session_timeout_ms,
            instance=config.instance_id,
            assignor=config.remote_assignor,
        )
        context = f"{context}: {advice}"
    return BrokerError(code, context)


def offsets_error(code: int, what: str, group: str, topic: str = "", requester: Requester = UNKNOWN) -> BrokerError:
    """Return the exception for OffsetCommit and OffsetFetch; `what` failed: `commit t-0 at offset 5 in generation 3`.

    `topic` is the topic of the refused partition, empty if the code is about the group.
    """
    if code in (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
        name = group if code == ErrorCode.GROUP_AUTHORIZATION_FAILED else topic
        return refusal(code, f"group {group}: cannot {what}", Operation.READ, name, requester)
    advice = _advice(_OFFSETS_ADVICE, code)
    context = f"group {group}: cannot {what}"
    return BrokerError(code, context if advice is None else f"{context}: {advice.format(group=group)}")


def _advice(table: Mapping[int, str], code: int) -> str | None:
    return _BROKER_FAILS if is_unexpected(code) else table.get(code)


_BROKER_FAILS = (
    f"the broker has failed {UNEXPECTED_ATTEMPTS} times in a row; check the log of the group coordinator, then "
    "start the query again"
)

_FENCED = (
    "another member has taken the place of group.instance.id {instance!r} (FENCED_INSTANCE_ID). Most likely two "
    "running queries have this group.instance.id: give each its own, or they end each other again and again. "
    "Rarely it was this member's own late request to join, sent again after a lost connection: then start the query "
    "again"
)

_OTHER_KIND = (
    "the broker has a group of another kind under this id, such as a share group; choose another kafka.group.id"
)

_ADVICE: Mapping[int, str] = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "the other members support none of the assignment strategies of this query: "
        "{strategies}. Choose one that all members support (kafka.partition.assignment.strategy), or use another "
        "kafka.group.id: this one may not belong to consumers"
    ),
    ErrorCode.INVALID_GROUP_ID: "the broker does not accept this group id; choose another kafka.group.id",
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "session.timeout.ms={session} is not between the broker's group.min.session.timeout.ms and "
        "group.max.session.timeout.ms; set kafka.session.timeout.ms within these bounds"
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: (
        "the group has as many members as the broker's group.max.size allows; stop a member or raise group.max.size"
    ),
    ErrorCode.GROUP_ID_NOT_FOUND: _OTHER_KIND,
}

_ADVICE_OF_CONSUMERS: Mapping[int, str] = {
    ErrorCode.GROUP_ID_NOT_FOUND: (
        "the group has members of the classic protocol and the broker does not convert it: see "
        "group.consumer.migration.policy and group.consumer.max.size, and look for members of streamgroup 0.1. Or the "
        "group is of another kind, such as a share group. Stop its members, or set the policy to 'bidirectional', or "
        "use kafka.group.protocol=classic, or choose another kafka.group.id"
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: (
        "the group has as many members as the broker's group.consumer.max.size allows; stop a member or raise it"
    ),
    ErrorCode.UNRELEASED_INSTANCE_ID: (
        "another running member has group.instance.id {instance!r}: give each query its own. If none runs, the session "
        "of an ended process has not expired: wait for group.consumer.session.timeout.ms of the broker. If that is "
        "above kafka.session.timeout.ms={session}, set the option to the same value"
    ),
    ErrorCode.UNSUPPORTED_ASSIGNOR: (
        "the broker does not have the assignor {assignor!r}; set kafka.group.remote.assignor to one of "
        "group.consumer.assignors of the broker, or leave it out"
    ),
    ErrorCode.UNSUPPORTED_VERSION: (
        "the broker has the consumer protocol switched off: see the feature group.version (kafka-features.sh) and "
        "group.coordinator.rebalance.protocols of the broker, or use kafka.group.protocol=classic"
    ),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (
        "the user of this query may not describe a topic of the group; grant it DESCRIBE for all subscribed topics"
    ),
}

_TOO_LARGE = (
    "the broker does not accept even the commit of this one partition, which is below 1 KiB; raise max.message.bytes "
    "of the topic __consumer_offsets"
)

_OFFSETS_ADVICE: Mapping[int, str] = {
    ErrorCode.GROUP_ID_NOT_FOUND: _OTHER_KIND,
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: _TOO_LARGE,
    ErrorCode.MESSAGE_TOO_LARGE: _TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE: _TOO_LARGE,
    ErrorCode.OFFSET_METADATA_TOO_LARGE: (
        "a commit of streamgroup has some 200 bytes of metadata; raise the broker's offset.metadata.max.bytes "
        "(4096 unless set)"
    ),
}
