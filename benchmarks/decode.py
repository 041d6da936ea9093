"""Nanoseconds per record to decode fetched record batches into Arrow record batches, by kernel, value size and codec.

    python benchmarks/decode.py [--fetch BYTES] [--batch BYTES] [--seconds S] [--keys] [--headers N]

One thread decodes a fetch of about `--fetch` uncompressed bytes, in batches of `--batch` bytes, repeatedly and with
checksums. The output is the least CPU time of many runs: slower runs measure other load on the machine.
"""

from __future__ import annotations

import argparse
import struct
from collections.abc import Callable
from functools import partial

import cramjam
import google_crc32c

from benchmarks.kernels import best, each_kernel, texts
from streamgroup.kafka.records.batches import Frames
from streamgroup.kafka.records.decode import DecodeOptions, decode, record_batches

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": lambda data: bytes(cramjam.gzip.compress(data)),
    "snappy": lambda data: bytes(cramjam.snappy.compress_raw(data)),
    "lz4": lambda data: bytes(cramjam.lz4.compress(data)),
    "zstd": lambda data: bytes(cramjam.zstd.compress(data)),
}


def varint(value: int) -> bytes:
    value = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def record(delta: int, key: bytes | None, value: bytes, headers: int) -> bytes:
    body = b"\0" + varint(delta) + varint(delta) + (varint(-1) if key is None else varint(len(key)) + key)
    body += varint(len(value)) + value + varint(headers) + (varint(5) + b"trace" + varint(16) + b"x" * 16) * headers
    return varint(len(body)) + body


def batch(base: int, records: list[bytes], codec: str) -> bytes:
    body = COMPRESS[codec](b"".join(records))
    fields = (CODECS.index(codec), len(records) - 1, 1_700_000_000_000, 1_700_000_000_000, -1, -1, -1, len(records))
    covered = struct.pack(">hiqqqhii", *fields) + body
    head = struct.pack(">qiibI", base, len(covered) + 9, 0, 2, google_crc32c.value(covered))
    return head + covered


def fetch(arguments: argparse.Namespace, size: int, codec: str) -> tuple[bytes, int]:
    """Return the record batches of one partition in a fetch, and their number of records."""
    values = texts(size)
    batches, base, filled = [], 0, 0
    while filled < arguments.fetch:
        records: list[bytes] = []
        bytes_left = arguments.batch
        while bytes_left > 0:
            key = b"key-%d" % (base + len(records)) if arguments.keys else None
            records.append(record(len(records), key, next(values), arguments.headers))
            bytes_left -= len(records[-1])
        batches.append(batch(base, records, codec))
        base += len(records)
        filled += arguments.batch
    return b"".join(batches), base


def read(data: bytes, options: DecodeOptions) -> None:
    """Decode all records of one fetch."""
    for _ in record_batches(decode(Frames(data, 0, 2**62), 0, options), "orders", 0):
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fetch", type=int, default=1 << 20, help="uncompressed bytes of a fetch")
    parser.add_argument("--batch", type=int, default=16 << 10, help="uncompressed bytes of a record batch")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each line")
    parser.add_argument("--keys", action="store_true", help="records have keys")
    parser.add_argument("--headers", type=int, default=0, help="headers per record, decoded too")
    arguments = parser.parse_args()
    options = DecodeOptions(include_headers=arguments.headers > 0)
    print(f"{'kernel':<10}{'value':>7}  {'codec':<8}{'records':>8}{'ns/record':>11}{'M records/s':>13}{'MB/s':>8}")
    for name in each_kernel():
        for size in (100, 1000):
            for codec in CODECS:
                data, records = fetch(arguments, size, codec)
                taken = best(partial(read, data, options), arguments.seconds)
                print(
                    f"{name:<10}{size:>7}  {codec:<8}{records:>8}{taken / records * 1e9:>11.0f}"
                    f"{records / taken / 1e6:>13.2f}{records * size / taken / 1e6:>8.0f}"
                )


if __name__ == "__main__":
    main()
