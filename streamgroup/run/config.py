"""The options of a run as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamgroup.model import ConfiguredOffsets
from streamgroup.remediation import OffsetLocation

if TYPE_CHECKING:
    from streamgroup.options.types import Subscription


@dataclass(frozen=True, slots=True)
class RunConfig:
    """The options of a run. Times are seconds."""

    group_id: str
    """Empty if the run has no group."""
    is_member: bool
    location: OffsetLocation
    subscription: Subscription
    starting: ConfiguredOffsets
    join_timeout_s: float
    session_timeout_s: float
    max_poll_s: float
    """`max.poll.interval.ms`: silence of Spark for longer than this is logged (R27)."""
    max_silence_s: float | None = None
    """`group.maxSilence`: the member leaves after this silence of Spark (R27). None means never."""
    api_timeout_s: float = 60.0
    fetch_timeout_s: float = 120.0
    """`kafkaConsumer.pollTimeoutMs`: how long a replay waits for the brokers of its partitions."""
    fail_on_data_loss: bool = True
    target_batch_s: float | None = None
    """`group.targetBatchDuration`: how long a batch is to last. None sizes no batch by its duration."""
    start_retries: int = 3
    """`fetchOffset.numRetries`: how often the lookup of starting offsets is repeated."""
    start_retry_interval_s: float = 1.0
