"""The API that gives producers their ids: InitProducerId."""

from __future__ import annotations

from streamgroup.wire.fields import boolean, int16, int32, int64, message, string
from streamgroup.wire.schema import Message, Request

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
"""The values of a batch whose producer is not idempotent."""


@message
class InitProducerIdResponse(Message, versions="0-6", flexible=2, latest_unstable=True):
    """A producer id and its epoch. The fields of v6 describe a prepared transaction (KIP-939)."""

    throttle_time_ms: int = int32("0+", ignorable=True)
    error_code: int = int16("0+")
    producer_id: int = int64("0+", default=NO_PRODUCER_ID)
    producer_epoch: int = int16("0+")
    ongoing_txn_producer_id: int = int64("6+", default=NO_PRODUCER_ID)
    ongoing_txn_producer_epoch: int = int16("6+", default=NO_PRODUCER_EPOCH)


@message
class InitProducerIdRequest(
    Request[InitProducerIdResponse], api_key=22, versions="0-6", flexible=2, latest_unstable=True
):
    """Without a transactional id any broker answers it, always with a new id at epoch 0.

    With a transactional id its coordinator answers and bumps the epoch, from v3 on if `producer_id` and
    `producer_epoch` are the current ones (KIP-360).
    """

    transactional_id: str | None = string("0+", nullable="0+")
    transaction_timeout_ms: int = int32("0+")
    producer_id: int = int64("3+", default=NO_PRODUCER_ID)
    producer_epoch: int = int16("3+", default=NO_PRODUCER_EPOCH)
    enable2_pc: bool = boolean("6+")
    keep_prepared_txn: bool = boolean("6+")
