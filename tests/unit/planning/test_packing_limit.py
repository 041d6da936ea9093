from __future__ import annotations

from collections.abc import Callable

import pytest

from streamgroup.model import Broker, FetchRange, FetchTask, OffsetRange, TopicPartition
from streamgroup.planning.packing import pack
from streamgroup.planning.packing_limit import FIXED_S, TASK_S, PackingLimit

LEADER = Broker(1, "b1", 9092)


def ranges(partitions: int, records: int) -> list[FetchRange]:
    return [FetchRange(OffsetRange(TopicPartition("t", n), 0, records), LEADER, "id", 3) for n in range(partitions)]


class Application:
    """Batches of one run on `cores` cores. A record takes `record_s`; a task, its start included, `TASK_S` more."""

    def __init__(self, *, cores: int, record_s: float) -> None:
        self.limit = PackingLimit()
        self.cores = cores
        self.record_s = record_s
        self.now = 0.0

    def batch(self, partitions: int, records: int) -> list[FetchTask]:
        """Run a batch; return its tasks."""
        tasks = pack(ranges(partitions, records), packed_offsets=self.limit.offsets)
        self.limit.begin(tasks, self.now)
        self.now += self.duration(tasks)
        self.limit.end(self.now)
        return tasks

    def duration(self, tasks: list[FetchTask]) -> float:
        """Return how long the tasks take, each on the core that is free first."""
        free = [0.0] * self.cores
        for task in tasks:
            core = min(range(self.cores), key=free.__getitem__)
            free[core] += len(task) * self.record_s + TASK_S
        return FIXED_S / 2 + max(free)


def tasks_of(application: Application, batches: int, partitions: int, records: int) -> list[int]:
    return [len(application.batch(partitions, records)) for _ in range(batches)]


def test_the_first_batch_has_a_task_for_each_partition() -> None:
    assert tasks_of(Application(cores=8, record_s=0.1), 1, partitions=8, records=20) == [8]


@pytest.mark.parametrize("cores", [1, 2, 8, 64])
def test_expensive_records_keep_a_task_for_each_partition(cores: int) -> None:
    application = Application(cores=cores, record_s=0.1)
    assert tasks_of(application, 50, partitions=8, records=20) == [8] * 50


@pytest.mark.parametrize("cores", [1, 2, 8, 64])
@pytest.mark.parametrize("partitions", [2, 8, 40])
def test_cheap_records_soon_share_one_task(cores: int, partitions: int) -> None:
    application = Application(cores=cores, record_s=1e-6)
    assert tasks_of(application, 10, partitions, records=1)[-1] == 1


def test_a_large_batch_shows_at_once_that_records_are_cheap() -> None:
    application = Application(cores=2, record_s=1e-6)
    application.batch(4, 1_000_000)
    assert application.limit.offsets > 10_000
    assert len(application.batch(8, 100)) == 1


def test_a_trickle_of_expensive_records_is_packed_seldom() -> None:
    application = Application(cores=8, record_s=0.1)
    counts = tasks_of(application, 500, partitions=8, records=1)
    assert sum(count < 8 for count in counts) < 50, counts


def test_records_that_become_expensive_have_tasks_of_their_own_again() -> None:
    application = Application(cores=8, record_s=1e-6)
    assert tasks_of(application, 10, partitions=8, records=20)[-1] == 1
    application.record_s = 0.1
    assert tasks_of(application, 5, partitions=8, records=20) == [1, 8, 8, 8, 8]


@pytest.mark.slow
def test_many_partitions_with_few_records_end_in_one_task() -> None:
    application = Application(cores=2, record_s=1e-6)
    counts = tasks_of(application, 20, partitions=2_000, records=1)
    assert counts[0] > 100
    assert counts[-1] == 1


@pytest.mark.parametrize("end", [lambda limit: limit.end(9.0), lambda limit: None])
def test_without_a_batch_in_flight_nothing_is_learned(end: Callable[[PackingLimit], None]) -> None:
    limit = PackingLimit()
    limit.begin([], 0.0)
    end(limit)
    limit.end(10.0)
    assert limit.offsets == 0


def test_a_batch_counts_once() -> None:
    limit = PackingLimit()
    tasks = pack(ranges(2, 10))
    limit.begin(tasks, 0.0)
    limit.end(0.1)
    learned = limit.offsets
    limit.end(60.0)
    assert limit.offsets == learned == 20
