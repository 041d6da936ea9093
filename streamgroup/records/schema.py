"""The Arrow schema of the rows: name for name and type for type that of Spark's own Kafka source.

Spark compares the first record batch with `to_arrow_schema` of the declared schema: order, types and nullability.
"""

from __future__ import annotations

from functools import cache

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS = pa.list_(pa.field("element", HEADER))

SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP),
        pa.field("timestampType", pa.int32()),
    ]
)
INNER = pa.field("inner", pa.int32())


@cache
def schema(include_headers: bool, include_inner_index: bool = False) -> pa.Schema:
    """Return the schema of the record batches, with or without the columns `headers` and `inner`.

    `inner` tells apart the messages of one wrapper of Kafka 0.7, which share its offset.
    """
    fields = [*SCHEMA]
    if include_headers:
        fields.append(pa.field("headers", HEADERS))
    if include_inner_index:
        fields.append(INNER)
    return pa.schema(fields)
