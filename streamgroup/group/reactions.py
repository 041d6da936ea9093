"""The member's reaction to each error code of the group's coordinator: one table."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from streamgroup.advice import UNKNOWN, Operation, Requester, refusal
from streamgroup.errors import BrokerError, ErrorCode, FencedError, Refresh, StreamGroupError, error_of, is_unexpected
from streamgroup.group.requests import Purpose
from streamgroup.group.timing import MemberConfig

UNEXPECTED_ATTEMPTS = 10
"""After so many unexpected failures of the broker in a row the member gives up: after 7 s with the default backoff."""


class Reaction(Enum):
    """The reaction to an error code."""

    GO_ON = "go on"
    """Do nothing: the answer to the next request decides."""
    RETRY = "retry"
    """Send the same request again after a backoff."""
    FIND = "find"
    """Find the coordinator: it is another broker, or there is none at the moment."""
    METADATA = "metadata"
    """Refresh the metadata, which the answer contradicts, and send the same request again after a backoff."""
    SMALLER = "smaller"
    """Send the same in smaller parts: the broker does not accept so large a request."""
    UNEXPECTED = "unexpected"
    """Send the same again after a backoff, `UNEXPECTED_ATTEMPTS` times at most: the broker failed for unknown
    reasons."""
    REJOIN = "rejoin"
    """Rejoin at the boundary of the batch: the group rebalances (R21)."""
    STALE = "stale"
    """Give up all partitions and join again as the same member, as the Java client does: the generation is over
    (22)."""
    UNKNOWN = "unknown"
    """Give up all partitions and join again as a new member: the coordinator does not know this one (25)."""
    NAMED = "named"
    """Join again with the id that the coordinator gave (KIP-394)."""
    FATAL = "fatal"
    """Fail the query: nothing that this member could do would help."""


_EVERYWHERE: Mapping[int, Reaction] = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.FIND,
    ErrorCode.NOT_COORDINATOR: Reaction.FIND,
    ErrorCode.ILLEGAL_GENERATION: Reaction.STALE,
    ErrorCode.UNKNOWN_MEMBER_ID: Reaction.UNKNOWN,
    # A coordinator that does not know the group knows no member of it either. Kafka answers OffsetCommit v9 with this
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
    # While the group rebalances there is nothing to rejoin, so the member sends the same JoinGroup again.
    Purpose.JOIN: {ErrorCode.MEMBER_ID_REQUIRED: Reaction.NAMED, ErrorCode.REBALANCE_IN_PROGRESS: Reaction.RETRY},
    Purpose.SYNC: {},
    Purpose.HEARTBEAT: {},
    # The member leaves whatever the answer is. Where the coordinator did not remove it, its session expires.
    Purpose.LEAVE: {},
}

_OF_COMMIT: Mapping[int, Reaction] = {
    # The coordinator appends all partitions of one OffsetCommit as one batch to __consumer_offsets. The coordinator of
    # Kafka 4 answers a batch beyond max.message.bytes with UNKNOWN_SERVER_ERROR, those before with 28.
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: Reaction.SMALLER,
    ErrorCode.MESSAGE_TOO_LARGE: Reaction.SMALLER,
    ErrorCode.RECORD_LIST_TOO_LARGE: Reaction.SMALLER,
}

_OF_FETCH: Mapping[int, Reaction] = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.FIND,
    ErrorCode.NOT_COORDINATOR: Reaction.FIND,
    # A group without commits has an empty answer. This code is of a group that is being removed.
    ErrorCode.GROUP_ID_NOT_FOUND: Reaction.UNEXPECTED,
}


def reaction_to(purpose: Purpose, code: int) -> Reaction:
    """Return the reaction to `code` in an answer to this request.

    A code without a row is retried where the table of errors calls it retriable, and is fatal otherwise.
    """
    reaction = _OF[purpose].get(code) or _EVERYWHERE.get(code) or _by_the_table(code)
    if reaction is Reaction.METADATA:  # membership needs no metadata
        return Reaction.RETRY
    if reaction is Reaction.UNEXPECTED and purpose is Purpose.HEARTBEAT:
        return Reaction.RETRY  # the next heartbeat asks again anyway, and the session timeout bounds for how long
    return reaction


def reaction_to_commit(code: int) -> Reaction:
    """Return the reaction to `code` in an answer to OffsetCommit."""
    return _OF_COMMIT.get(code) or _EVERYWHERE.get(code) or _by_the_table(code)


def reaction_to_fetch(code: int) -> Reaction:
    """Return the reaction to `code` in an answer to OffsetFetch, which names no member, so that no code is about
    one."""
    return _OF_FETCH.get(code) or _by_the_table(code)


_JOINS_AGAIN = {Reaction.REJOIN, Reaction.STALE, Reaction.UNKNOWN}


def is_of_membership(code: int) -> bool:
    """Return whether this code of OffsetCommit is about the member rather than about the commit."""
    return reaction_to_commit(code) in _JOINS_AGAIN or code == ErrorCode.FENCED_INSTANCE_ID


def _by_the_table(code: int) -> Reaction:
    if is_unexpected(code):
        return Reaction.UNEXPECTED
    error = error_of(code)
    if not error.retriable:
        return Reaction.FATAL
    return Reaction.METADATA if error.refresh is Refresh.METADATA else Reaction.RETRY


def fatal_error(code: int, doing: str, config: MemberConfig) -> StreamGroupError:
    """Return the exception for a fatal code: what failed for which group, and what to do next."""
    if code == ErrorCode.FENCED_INSTANCE_ID:
        return FencedError(f"group {config.group_id}: {_FENCED.format(instance=config.instance_id)}")
    context = f"group {config.group_id}: could not {doing}"
    if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return refusal(code, context, Operation.READ, config.group_id, config.requester)
    advice = _advice(_ADVICE, code)
    if advice is not None:
        strategies = ", ".join(config.strategies)
        advice = advice.format(group=config.group_id, strategies=strategies, session=config.session_timeout_ms)
        context = f"{context}: {advice}"
    return BrokerError(code, context)


def offsets_error(code: int, what: str, group: str, topic: str = "", requester: Requester = UNKNOWN) -> BrokerError:
    """Return the exception for OffsetCommit and OffsetFetch; `what` failed: `commit t-0 at offset 5 in generation
    3`. `topic` is that of the refused partition, empty if the code is about the group."""
    if code in (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
        name = group if code == ErrorCode.GROUP_AUTHORIZATION_FAILED else topic
        return refusal(code, f"group {group}: could not {what}", Operation.READ, name, requester)
    advice = _advice(_OFFSETS_ADVICE, code)
    context = f"group {group}: could not {what}"
    return BrokerError(code, context if advice is None else f"{context}: {advice.format(group=group)}")


def _advice(table: Mapping[int, str], code: int) -> str | None:
    return _BROKER_FAILS if is_unexpected(code) else table.get(code)


_BROKER_FAILS = (
    f"the broker has failed {UNEXPECTED_ATTEMPTS} times in a row; look into the log of the group's coordinator, then "
    "start the query again"
)

_FENCED = (
    "another member has taken the place of group.instance.id {instance!r} (FENCED_INSTANCE_ID). Most likely two "
    "running queries have this group.instance.id: give each its own, else they fence each other for ever. Rarely it "
    "was this member's own late JoinGroup, sent again after a lost connection: then start the query again"
)

_OTHER_KIND = (
    "the broker has a group of another kind under this id, such as a share group; choose another kafka.group.id"
)

_ADVICE: Mapping[int, str] = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "the members that are there and this one know no assignment strategy in common; this query offers "
        "{strategies}. Offer one that all members know (kafka.partition.assignment.strategy), or use another "
        "kafka.group.id: this one may also belong to something else than consumers"
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
        "a commit of streamgroup tells some 200 bytes about itself; raise the broker's offset.metadata.max.bytes "
        "(4096 unless set)"
    ),
}
