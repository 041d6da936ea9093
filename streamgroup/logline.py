"""Log lines that people read and programs parse: plain words, then ` | `, then `key=value` pairs.

    group orders: generation 4 is lost (session over), 3 partitions: rejoining | event=fence group=orders generation=4

A value is bare where it holds nothing but letters, digits and `_.:/+@-`; anything else is a JSON string. `event` comes
first and is one of rebalance, fence, replay, skip, repeat, data_loss. The other keys, each only where it is known:

| key | is |
|---|---|
| `group`, `run`, `member`, `generation` | whose event it is |
| `count` | how many partitions (rebalance, fence) or offsets (the others) it is about; absent: nobody knows |
| `unit` | `bytes` where the offsets are positions of Kafka 0.7: `count` and `of` are bytes, not records |
| `of` | replay: how many offsets the document has |
| `kept` | rebalance: how many of the partitions were held before, without a gap |
| `partition`, `from`, `to` | data_loss: where reading stood, where it goes on |
| `document` | replay, skip, repeat: the number of the document |
| `failed` | `true` where the query ends with it |
| `reason` | in a few words of ours |

A leaf: imports nothing of ours, since the driver and the tasks, which share no other room, both write such lines.
"""

from __future__ import annotations

import json
import re
from typing import Any

_MARK = " | event="
_BARE = re.compile(r"[A-Za-z0-9_.:/+@-]+")
_PAIR = re.compile(r'([a-z_]+)=("(?:[^"\\]|\\.)*"|[A-Za-z0-9_.:/+@-]+)(?: |$)')


def render(words: str, event: str, **fields: Any) -> str:
    """Return one line: `words` and the fields that are not None, in the order given."""
    told = {"event": event, **{key: value for key, value in fields.items() if value is not None}}
    pairs = " ".join(f"{key}={_value(value)}" for key, value in told.items())
    plain = " ".join(words.split()).replace(_MARK, " / event=")
    return f"{plain} | {pairs}"


def parse(line: str) -> dict[str, str]:
    """Return the fields of a line that `render` made, values as text; empty for any other line."""
    _, mark, pairs = line.rstrip().partition(_MARK)
    if not mark:
        return {}
    return {
        key: json.loads(value) if value.startswith('"') else value for key, value in _PAIR.findall(f"event={pairs}")
    }


def message_of(line: str) -> str:
    """Return the line without its fields."""
    return line.partition(_MARK)[0]


def _value(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if _BARE.fullmatch(text) else json.dumps(text)
