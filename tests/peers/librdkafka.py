"""What tests do with librdkafka's clients."""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.waiting import soon


def commit(consumer: Consumer, offsets: Sequence[TopicPartition]) -> None:
    """Commit offsets of the consumer's group.

    Unlike Java's consumer, librdkafka tells its caller that a broker has yet to become, or to load, the group
    coordinator. So this function repeats the commit until it is accepted, or fails after 30 s.
    """
    deadline = soon()
    while True:
        try:
            committed = consumer.commit(offsets=[*offsets], asynchronous=False)
        except KafkaException as error:
            refusal = str(error)
        else:
            refusal = "; ".join(str(tp.error) for tp in committed or () if tp.error)
            if committed and not refusal:
                return
        assert time.monotonic() < deadline, f"the commit is refused: {refusal}"
        time.sleep(0.1)
