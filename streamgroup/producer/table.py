"""The states of a producer and the transitions between them, as a table.

The states are about the producer's identity. Batches and partitions have states of their own (`batch.py`,
`partition.py`). A transactional producer has more states (initializing, in a transaction, committing, aborting): their
rows belong in this table.
"""

from __future__ import annotations

from enum import Enum

from streamgroup.group.state_machine import Transition, TransitionTable


class ProducerState(Enum):
    """The states of a producer."""

    NO_ID = "no id"
    """Idempotent, and without records so far."""
    ASKING_ID = "asking for an id"
    """InitProducerId is pending or waits for its backoff. No partition without an identity sends a batch."""
    READY = "ready"
    """Has an identity; sequences are whole in every partition."""
    BUMPING = "bumping"
    """In some partition a sequence is broken. It sends no new batch until every batch that it has sent is resolved or
    rejected; then its sequences start again at 0 under a higher epoch. Other partitions go on."""
    WITHOUT_ID = "without id"
    """Not idempotent."""
    FAILED = "failed"
    """Every batch fails, those of later appends, too."""


class ProducerCue(Enum):
    """The causes of transitions."""

    RECORDS = "records to write"
    ID_GIVEN = "id given"
    UNSUPPORTED = "broker without ids"
    BROKEN = "sequence broken"
    BUMPED = "epoch raised"
    ID_SPENT = "epochs used up, or id fenced"
    FATAL = "fatal error"


_NO_ID, _ASKING, _READY = ProducerState.NO_ID, ProducerState.ASKING_ID, ProducerState.READY
_BUMPING, _WITHOUT, _FAILED = ProducerState.BUMPING, ProducerState.WITHOUT_ID, ProducerState.FAILED

TABLE = TransitionTable(
    "producer",
    {ProducerState.NO_ID: "idempotent", ProducerState.WITHOUT_ID: "not idempotent"},
    (
        Transition(_NO_ID, ProducerCue.RECORDS, _ASKING),
        Transition(_ASKING, ProducerCue.ID_GIVEN, _READY),
        Transition(_ASKING, ProducerCue.UNSUPPORTED, _WITHOUT),
        Transition(_ASKING, ProducerCue.FATAL, _FAILED),
        Transition(_READY, ProducerCue.BROKEN, _BUMPING),
        Transition(_READY, ProducerCue.FATAL, _FAILED),
        Transition(_BUMPING, ProducerCue.BUMPED, _READY),
        Transition(_BUMPING, ProducerCue.ID_SPENT, _ASKING),
        Transition(_BUMPING, ProducerCue.FATAL, _FAILED),
        Transition(_WITHOUT, ProducerCue.FATAL, _FAILED),
    ),
)
