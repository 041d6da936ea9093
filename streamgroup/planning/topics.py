"""Which partitions a read takes, from its subscription and the cluster's metadata."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from streamgroup.errors import ConfigError
from streamgroup.model import TopicInfo, TopicPartition


def matching(pattern: str, topics: Mapping[str, TopicInfo]) -> tuple[str, ...]:
    """The topics whose whole name matches, sorted; never internal ones."""
    expression = re.compile(pattern)
    return tuple(sorted(n for n, topic in topics.items() if not topic.internal and expression.fullmatch(n)))


def select(
    topics: Mapping[str, TopicInfo],
    *,
    names: Collection[str] = (),
    pattern: str | None = None,
    assign: Collection[TopicPartition] = (),
) -> tuple[TopicPartition, ...]:
    """All partitions of the topics named or matched, and those assigned, sorted.

    Raises ConfigError for a topic or partition that is named and does not exist; a pattern may match nothing.
    """
    wanted = [*names, *(matching(pattern, topics) if pattern is not None else ())]
    existing = {name: {p.partition for p in topics[name].partitions} for name in topics}
    missing = [f"topic {name!r}" for name in wanted if name not in existing]
    missing += [f"partition {tp}" for tp in assign if tp.partition not in existing.get(tp.topic, ())]
    if missing:
        raise ConfigError(
            f"{', '.join(missing)} does not exist on the cluster, or may not be described by this client: check the "
            "name and 'kafka.bootstrap.servers', or create it first (a source never creates topics)"
        )
    return tuple(sorted({*(TopicPartition(name, n) for name in wanted for n in existing[name]), *assign}))
