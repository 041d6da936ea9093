"""Where the jobs of one test meet: a topic under load, a group, and the applications that run its members."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.fault.applications import SESSION_S, Application, Group, Job
from tests.fault.jobs_checker import Checker, InFlight, Outcome
from tests.fault.pool import Pool
from tests.spark.support import Load
from tests.waiting import repeatedly

TAKEOVER_S = SESSION_S + 5
"""After a kill -9 the other has the partitions within the session and this."""
LEAVING_S = 3.0
"""After a stop that says good-bye."""


class Arena:
    """A topic, a group, and who is in it."""

    def __init__(
        self,
        pool: Pool,
        load: Load,
        group: str,
        home: Path,
        report: Callable[[str], None],
        *,
        send_every_s: float = 0.6,
    ) -> None:
        self.pool = pool
        self.load = load
        self.home = home
        self.group = Group(load.server, group, load.partitions)
        self.report = report
        self._send_every_s = send_every_s
        self._checker = Checker(load, home)
        self._used: list[Application] = []

    def job(self, name: str, batch: int = 60, **options: str) -> Job:
        """A member by this name; `__` in an option's name is a dot."""
        named = {option.replace("__", "."): value for option, value in options.items()}
        return Job(name, self.load, self.group.name, self.home, batch, named)

    def take(self) -> Application:
        """A warm application for this arena."""
        return self.use(self.pool.take())

    def use(self, application: Application) -> Application:
        """Have the application's commits checked too."""
        if application not in self._used:
            self._used.append(application)
        return application

    @contextmanager
    def under_load(self, count: int = 60) -> Iterator[None]:
        """`count` records every `send_every_s`, from a thread that ends with the block; fails where one did not arrive.

        Each time costs every member a batch.
        """
        with repeatedly(lambda: self.load.send(count), self._send_every_s):
            yield

    def pause_until(self, at: float) -> None:
        """Let the world go on until `at` (of time.monotonic)."""
        time.sleep(max(0.0, at - time.monotonic()))

    def delivered(self) -> set[str]:
        """The values that the sinks have."""
        return set(self._checker.deliveries())

    def await_all_committed(self) -> None:
        """Wait until the group has committed all that was sent."""
        self._checker.await_all_committed(self.group.name)

    def outcome(self, struck: Sequence[InFlight] = ()) -> Outcome:
        """Wait until the group has committed all that was sent; then check everything."""
        self.await_all_committed()
        return self._checker.check(self._used, struck)

    def close(self) -> None:
        """Let go of the brokers; print how the applications' logs end, which pytest shows where the test has failed."""
        self.group.close()
        for application in self._used:
            print(f"--- {application.log}\n{application.log_end()}")
