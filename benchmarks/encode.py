"""Nanoseconds per record to encode Arrow columns into record batches, by kernel, value size and codec.

    python benchmarks/encode.py [--batch BYTES] [--records N] [--seconds S] [--keys] [--headers N] [--format NAME]

One thread encodes `--records` records repeatedly, in batches of about `--batch` uncompressed bytes, and seals each. The
output is the least CPU time of many runs: slower runs measure other load on the machine. `sizes` is the time to compute
the size of each record, with which a producer cuts batches.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa

from benchmarks.kernels import best, each_kernel, texts
from streamgroup.kafka.records.encode import Encoder, RecordColumns, RecordFormat


def columns(arguments: argparse.Namespace, size: int) -> RecordColumns:
    """Return records whose values of `size` bytes are words, as compressible as text."""
    rows = arguments.records
    values = list(itertools.islice(texts(size), rows))
    keys = pa.array([b"key-%d" % index for index in range(rows)]) if arguments.keys else None
    headers = None
    if arguments.headers:
        kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        headers = pa.array([[{"key": "trace", "value": b"x" * 16}] * arguments.headers] * rows, kind)
    return RecordColumns(keys, pa.array(values), 1_700_000_000_000 + np.arange(rows) // 100, headers)


def encode(encoder: Encoder, records: RecordColumns, each: int) -> None:
    """Encode all records in batches of `each`."""
    for start in range(0, len(records), each):
        encoder.encode(records, start, min(start + each, len(records))).sealed(7, 0, start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=16 << 10, help="uncompressed bytes of a batch")
    parser.add_argument("--records", type=int, default=20_000, help="records in the columns")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each line")
    parser.add_argument("--keys", action="store_true", help="records have keys")
    parser.add_argument("--headers", type=int, default=0, help="headers per record")
    parser.add_argument("--format", choices=[each.name for each in RecordFormat], default="V2", help="of the records")
    arguments = parser.parse_args()
    record_format = RecordFormat[arguments.format]
    print(f"{'kernel':<10}{'value':>7}  {'codec':<8}{'in batch':>9}{'ns/record':>11}{'M records/s':>13}{'MB/s':>8}")
    for name in each_kernel():
        for size in (100, 1000):
            records = columns(arguments, size)
            each = max(1, arguments.batch * len(records) // int(Encoder(record_format).sizes(records).sum()))
            steps: dict[str, Callable[[], object]] = {
                codec: partial(encode, Encoder(record_format, codec), records, each) for codec in record_format.codecs
            }
            steps["sizes"] = partial(Encoder(record_format).sizes, records)
            for codec, step in steps.items():
                taken = best(step, arguments.seconds)
                print(
                    f"{name:<10}{size:>7}  {codec:<8}{each:>9}{taken / len(records) * 1e9:>11.0f}"
                    f"{len(records) / taken / 1e6:>13.2f}{len(records) * size / taken / 1e6:>8.0f}"
                )


if __name__ == "__main__":
    main()
