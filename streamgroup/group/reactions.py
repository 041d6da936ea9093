"""What an error code in an answer of the group's coordinator means for the member: one table."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from streamgroup.errors import BrokerError, ErrorCode, FencedError, StreamGroupError, error_of
from streamgroup.group.exchange import Purpose
from streamgroup.group.timing import MemberConfig


class Reaction(Enum):
    """What to do about an error code."""

    GO_ON = "go on"
    """Nothing: the next request tells."""
    RETRY = "retry"
    """The same again after a backoff."""
    FIND = "find"
    """The coordinator is another broker, or there is none at the moment."""
    REJOIN = "rejoin"
    """The group gathers anew: at the boundary of the batch (R21)."""
    STALE = "stale"
    """The generation is over (22): all partitions are gone; join again as the same member, as the Java client does."""
    UNKNOWN = "unknown"
    """The coordinator does not know the member (25): all partitions are gone; join again, as a new member."""
    NAMED = "named"
    """The coordinator gave the member an id to join with (KIP-394)."""
    FATAL = "fatal"
    """Nothing that this member could do would help."""


_EVERYWHERE: Mapping[int, Reaction] = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.FIND,
    ErrorCode.NOT_COORDINATOR: Reaction.FIND,
    ErrorCode.ILLEGAL_GENERATION: Reaction.STALE,
    ErrorCode.UNKNOWN_MEMBER_ID: Reaction.UNKNOWN,
    ErrorCode.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
    ErrorCode.FENCED_INSTANCE_ID: Reaction.FATAL,
}

_OF: Mapping[Purpose, Mapping[int, Reaction]] = {
    Purpose.FIND: {ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.RETRY, ErrorCode.NOT_COORDINATOR: Reaction.RETRY},
    # While the group gathers there is nothing to rejoin: the same JoinGroup again.
    Purpose.JOIN: {ErrorCode.MEMBER_ID_REQUIRED: Reaction.NAMED, ErrorCode.REBALANCE_IN_PROGRESS: Reaction.RETRY},
    Purpose.SYNC: {},
    Purpose.HEARTBEAT: {},
    Purpose.LEAVE: {},
}


def reaction_to(purpose: Purpose, code: int) -> Reaction:
    """What to do about `code` in an answer to this request. Codes without a row: again, if the table of errors calls
    them retriable; else they are fatal."""
    reaction = _OF[purpose].get(code) or _EVERYWHERE.get(code)
    if reaction is not None:
        return reaction
    return Reaction.RETRY if error_of(code).retriable else Reaction.FATAL


def reaction_to_commit(code: int) -> Reaction:
    """What an error code of the driver's commit means for the membership; the commit itself is the driver's matter."""
    return _EVERYWHERE.get(code, Reaction.GO_ON)


def fatal_error(code: int, doing: str, config: MemberConfig) -> StreamGroupError:
    """The exception for a fatal code: what happened to which group, and what to do next."""
    if code == ErrorCode.FENCED_INSTANCE_ID:
        return FencedError(f"group {config.group_id}: {_FENCED.format(instance=config.instance_id)}")
    advice = _ADVICE.get(code)
    context = f"group {config.group_id}: could not {doing}"
    if advice is not None:
        strategies = ", ".join(config.strategies)
        advice = advice.format(group=config.group_id, strategies=strategies, session=config.session_timeout_ms)
        context = f"{context}: {advice}"
    return BrokerError(code, context)


def offsets_error(code: int, what: str, group: str) -> BrokerError:
    """The same for OffsetCommit and OffsetFetch; `what` could not be done: `commit t-0 at offset 5 in generation 3`."""
    advice = _OFFSETS_ADVICE.get(code)
    context = f"group {group}: could not {what}"
    return BrokerError(code, context if advice is None else f"{context}: {advice.format(group=group)}")


_FENCED = (
    "another member has taken the place of group.instance.id {instance!r} (FENCED_INSTANCE_ID). Most likely two "
    "running queries have this group.instance.id: give each its own, else they fence each other for ever. Rarely it "
    "was this member's own late JoinGroup, sent again after a lost connection: then start the query again"
)

_MAY_NOT_USE = (
    "this user may not use the group; grant it READ, e.g. "
    "kafka-acls.sh --add --allow-principal User:... --operation Read --group {group}"
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
    ErrorCode.GROUP_AUTHORIZATION_FAILED: _MAY_NOT_USE,
    ErrorCode.GROUP_MAX_SIZE_REACHED: (
        "the group has as many members as the broker's group.max.size allows; stop a member or raise group.max.size"
    ),
}

_OFFSETS_ADVICE: Mapping[int, str] = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED: _MAY_NOT_USE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (
        "this user may not read the topic; grant it READ, e.g. "
        "kafka-acls.sh --add --allow-principal User:... --operation Read --topic ..."
    ),
    ErrorCode.OFFSET_METADATA_TOO_LARGE: (
        "a commit of streamgroup tells some 200 bytes about itself; raise the broker's offset.metadata.max.bytes "
        "(4096 unless set)"
    ),
}
