"""Drives a producer step by step, with the test's own clock."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, TypeVar

from streamgroup.kafka.producer import events as ev
from streamgroup.kafka.producer.batch import ProducerBatch
from streamgroup.kafka.producer.config import ProducerConfig
from streamgroup.kafka.producer.machine import Producer
from streamgroup.kafka.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from streamgroup.model import PartitionInfo, TopicInfo, TopicPartition
from tests.unit.kafka.producer.world import Records

A = TypeVar("A")
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Driver:
    """A producer with the topic `t` of two partitions, led by the brokers 0 and 1."""

    def __init__(self, **config: Any) -> None:
        config = {"linger_ms": 0, "batch_size": 1, **config}  # each append is a batch
        self.producer = Producer(ProducerConfig(**config), random.Random(1))
        self.now = 10.0
        self.actions: list[ev.Action] = []
        self.seen: list[ev.Action] = []
        self.sent: dict[int, ev.Send] = {}

    def step(self, event: ev.Event) -> list[ev.Action]:
        self.actions = self.producer.step(event, self.now)
        self.seen += self.actions
        self.sent |= {action.token: action for action in self.actions if isinstance(action, ev.Send)}
        return self.actions

    def later(self, seconds: float) -> list[ev.Action]:
        """Time goes on, and the producer wakes up whenever it wants to."""
        until = self.now + seconds
        actions = []
        while (wake := self.wake_at) is not None and wake <= until:
            self.now = wake
            actions += self.step(ev.Tick())
        self.now = until
        return actions + self.step(ev.Tick())

    @property
    def wake_at(self) -> float | None:
        return next((a.time for a in self.actions if isinstance(a, ev.WakeAt)), None)

    def all(self, kind: type[A]) -> list[A]:
        """The actions of this kind in the last step."""
        return [action for action in self.actions if isinstance(action, kind)]

    def only(self, kind: type[A]) -> A:
        (action,) = self.all(kind)
        return action

    def metadata(
        self, *leaders: int, epoch: int = 0, topic_id: str = "", errors: Mapping[str, int] | None = None
    ) -> None:
        infos = tuple(PartitionInfo(number, leader, epoch) for number, leader in enumerate(leaders))
        topics = {"t": TopicInfo("t", infos, topic_id)} if infos else {}
        self.step(ev.MetadataRead(topics, frozenset({"t"}), errors or {}))

    def ready(self) -> Driver:
        """Has metadata, and an id where it asks for one."""
        self.step(ev.FindTopics(("t",)))
        if self.all(ev.GetProducerId):
            self.step(ev.ProducerIdGiven(7, 0))
        self.metadata(0, 1)
        return self

    def append(self, *counts: int, to: TopicPartition = P0) -> list[ev.Action]:
        """Append one payload for each of `counts`."""
        return self.step(ev.Append([(to, Records(tuple(range(count)))) for count in counts]))

    def confirmed(self) -> Driver:
        """One batch is acknowledged, so that several may be in flight."""
        self.append(1)
        self.answer(0)
        return self

    def answer(
        self,
        code: int,
        token: int | None = None,
        version: int = 12,
        throttle_ms: int = 0,
        first_offset: int = 40,
        **more: Any,
    ) -> None:
        """The same answer to every batch of a request, by default of the oldest. Sequence 0 is at `first_offset`."""
        send = self.sent.pop(min(self.sent) if token is None else token)
        rows: dict[str, list[PartitionProduceResponse]] = {}
        for batch in send.batches:
            offset = first_offset + max(batch.base_sequence, 0)
            row = PartitionProduceResponse(index=batch.partition.partition, error_code=code, base_offset=offset, **more)
            rows.setdefault(batch.partition.topic, []).append(row)
        topics = tuple(TopicProduceResponse(name=name, partition_responses=tuple(r)) for name, r in rows.items())
        self.step(ev.Answered(send.token, ProduceResponse(responses=topics, throttle_time_ms=throttle_ms), version))

    def cut(self, node: int = 0, written: bool = True) -> None:
        """The connection to a broker breaks."""
        self.sent = {token: send for token, send in self.sent.items() if send.node != node}
        self.step(ev.Disconnected(node, "reset by peer", written))

    def numbers(self) -> list[tuple[int, int, int]]:
        """Producer id, epoch and sequence of the batches that the last step sent."""
        return [(*batch.identity, batch.base_sequence) for send in self.all(ev.Send) for batch in send.batches]


def batches_of(actions: list[ev.Action]) -> list[ProducerBatch]:
    """The batches that these actions send."""
    return [batch for action in actions if isinstance(action, ev.Send) for batch in action.batches]
