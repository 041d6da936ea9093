"""Log lines for people and programs: a text, then ` | `, then `key=value` pairs.

    group orders: generation 4 is lost (session over), 3 partitions: rejoining | event=fence group=orders generation=4

A value of letters, digits and `_.:/+@-` is written bare; any other value is a JSON string. `event` comes first and is
one of rebalance, fence, replay, skip, repeat, data_loss, damaged_batch; or batch in the output of a job (docs/jobs.md),
or progress or dead_letters in the driver's own log, or operator_skip in the output of `streamgroup skip`
(docs/log-events.md). The other keys are present only if their value is known:

| key | meaning |
|---|---|
| `group`, `run`, `member`, `generation` | the group, run, member and generation of the event |
| `count` | number of partitions (rebalance, fence) or offsets (other events); absent if unknown |
| `unit` | `bytes` where the offsets are positions of Kafka 0.7: `count` and `of` are bytes, not records |
| `of` | replay: number of offsets in the document |
| `kept` | rebalance: number of partitions that the member has held since the rebalance before |
| `partition`, `from`, `to` | data_loss: the position before and after the lost records; damaged_batch: the batch |
| `document` | replay, skip, repeat: the number of the document |
| `failed` | `true` if the event ends the query |
| `reason` | the cause in a few words |

A leaf module: the coordinator and the tasks both use it.
"""

from __future__ import annotations

import json
import re
from typing import Any

_MARK = " | event="
_BARE = re.compile(r"[A-Za-z0-9_.:/+@-]+")
_PAIR = re.compile(r'([a-z_]+)=("(?:[^"\\]|\\.)*"|[A-Za-z0-9_.:/+@-]+)(?: |$)')


def render(message: str, event: str, **fields: Any) -> str:
    """Return the log line of `message`, `event` and the fields that are not None, in the given order."""
    present = {"event": event, **{key: value for key, value in fields.items() if value is not None}}
    pairs = " ".join(f"{key}={_value(value)}" for key, value in present.items())
    plain = " ".join(message.split()).replace(_MARK, " / event=")
    return f"{plain} | {pairs}"


def parse(line: str) -> dict[str, str]:
    """Return the fields of a line from `render`, with values as text; empty for any other line."""
    _, mark, pairs = line.rstrip().partition(_MARK)
    if not mark:
        return {}
    try:
        return {
            key: json.loads(value) if value.startswith('"') else value for key, value in _PAIR.findall(f"event={pairs}")
        }
    except ValueError:  # an escape that JSON lacks, or a control character: `render` writes neither
        return {}


def snake_case(name: str) -> str:
    """Return a name of Spark in snake_case: `max_offsets_behind_latest` for `maxOffsetsBehindLatest`."""
    return re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", name)


def message_of(line: str) -> str:
    return line.partition(_MARK)[0]


def _value(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if _BARE.fullmatch(text) else json.dumps(text)
