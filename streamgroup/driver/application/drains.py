"""Drains all coordinators of a query as one (R30): a query has a coordinator for each of its sources."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from streamgroup.driver.application import control
from streamgroup.errors import StreamGroupError

log = logging.getLogger("streamgroup")

ANSWER_GRACE_S = 5.0
"""How long after its deadline a drain's answer may arrive."""
POLL_S = 0.05
_NO_ANSWER = "its coordinator has not answered"


def drain_together(
    pid: int,
    runs: Sequence[str],
    timeout: float,
    *,
    ends: bool = False,
    meanwhile: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Drain the coordinators `runs` of the driver `pid` at once; return their answers, in that order.

    None of them plans while another waits for its last batch. A coordinator that refuses or has ended counts as not
    drained, and `why` gives the reason. `ends`: afterwards Spark's next call of any of them ends the query. `meanwhile`
    is called every POLL_S.
    """
    answers: list[dict[str, Any]] = [{"drained": False, "why": _NO_ANSWER} for _ in runs]

    def drain(number: int) -> None:
        try:
            answers[number] = control.ask(
                pid, runs[number], "drain", answer_timeout=timeout + ANSWER_GRACE_S, timeout=timeout, ends=ends
            )
        except StreamGroupError as error:
            answers[number]["why"] = str(error)

    threads = [
        threading.Thread(target=drain, args=(n,), name="streamgroup-drain", daemon=True) for n in range(len(runs))
    ]
    for thread in threads:
        thread.start()
    began: float | None = None
    while any(thread.is_alive() for thread in threads):
        now = time.monotonic()
        began = now if began is None else began
        if now - began >= timeout + ANSWER_GRACE_S + POLL_S:
            break
        meanwhile()
        threads[0].join(POLL_S) if threads[0].is_alive() else time.sleep(POLL_S)
    if ends:
        _end(pid, runs)
    return list(answers)


def _end(pid: int, runs: Sequence[str]) -> None:
    for run in runs:
        try:
            control.ask(pid, run, "end")
        except StreamGroupError as error:  # the query has already ended
            log.debug("%s", error)
