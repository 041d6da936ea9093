"""Make a failing plan small: leave out whatever is not needed for a violation under the same word."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.sim.runs import Plan, Result, run

MOST_RUNS = 400


def shrunk(plan: Plan, word: str, *, most: int = MOST_RUNS, on_run: Callable[[], None] = lambda: None) -> Result:
    """The smallest failing plan that was found within `most` runs, run with its trace.

    Delta debugging: halves of the faults, then smaller parts, then single ones; then the time, then queries from the
    end, then real consumers, brokers, partitions.
    """
    runs = 0

    def fails(candidate: Plan) -> bool:
        nonlocal runs
        runs += 1
        on_run()
        violation = run(candidate).violation
        return violation is not None and violation.word == word

    changed = True
    while changed and runs < most:
        changed = False
        for candidate in _smaller(plan):
            if runs >= most:
                break
            if fails(candidate):
                plan, changed = candidate, True
                break
    return run(plan, tracing=True)


def _smaller(plan: Plan) -> Iterator[Plan]:
    faults = plan.faults
    size = len(faults)
    while size:
        for start in range(0, len(faults), size):
            yield replace(plan, faults=faults[:start] + faults[start + size :])
        size //= 2
    settings = plan.settings
    for shorter in (plan.seconds / 2, plan.seconds - 2.0):
        if shorter >= 2.0:
            yield replace(plan, seconds=shorter, faults=tuple(f for f in faults if f.at < shorter))
    if len(settings.queries) > 1:
        yield replace(plan, settings=replace(settings, queries=settings.queries[:-1]))
    registry = settings.registry
    if registry is not None and registry.consumers:
        fewer_consumers = replace(registry, consumers=registry.consumers[:-1])
        yield replace(plan, settings=replace(settings, registry=fewer_consumers))
    if registry is not None and registry.brokers > 1:
        yield replace(plan, settings=replace(settings, registry=replace(registry, brokers=registry.brokers - 1)))
    for topic, count in settings.topics.items():
        if len(settings.topics) > 1 and registry is None:
            rest = {name: n for name, n in settings.topics.items() if name != topic}
            yield replace(plan, settings=replace(settings, topics=rest))
        if count > 1:
            fewer = dict(settings.topics) | {topic: count - 1}
            yield replace(plan, settings=replace(settings, topics=fewer))
