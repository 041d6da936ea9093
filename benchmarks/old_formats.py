"""Cost of decoding the formats before record batches, compared with record batches v2, in one run.

    python -m benchmarks.old_formats [--fetch BYTES] [--batch BYTES] [--size BYTES] [--rounds N] [--kernel NAME]

Each format has the same values: record batches v2, messages of magic 1 and 0, and messages of Kafka 0.7. A fetch has
about `--fetch` uncompressed bytes, plain or in batches (wrappers) of `--batch` bytes. One thread walks its frames and
decodes it into Arrow record batches, checksums included. The formats take turns, so that other load on the machine
affects all of them. The output is the best round of each, and its rate as a share of that of v2.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import struct
import time
import zlib
from collections.abc import Callable
from typing import NamedTuple

import cramjam

from benchmarks.decode import batch, record
from benchmarks.kernels import KERNELS, each_kernel, texts
from streamgroup.kafka.records.batches import Frames
from streamgroup.kafka.records.codecs import xxh32
from streamgroup.kafka.records.decode import DecodeOptions, decode, record_batches
from streamgroup.kafka.records.messages07 import Frames07, decode07

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3}
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "snappy": lambda data: bytes(cramjam.snappy.compress_raw(data)),
    "lz4": lambda data: bytes(cramjam.lz4.compress(data)),
}
END = 2**62
OPTIONS = DecodeOptions()


class Format(NamedTuple):
    """A format: the writer of a fetch and its reader."""

    name: str
    codecs: tuple[str, ...]
    write: Callable[[list[list[bytes]], str], bytes]
    read: Callable[[bytes], int]


def message(magic: int, offset: int, value: bytes, codec: str = "none") -> bytes:
    covered = struct.pack(">bb", magic, CODECS[codec]) + (struct.pack(">q", 1_700_000_000_000) if magic else b"")
    covered += struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, len(covered) + 4, zlib.crc32(covered)) + covered


def message07(value: bytes, codec: str = "none") -> bytes:
    return struct.pack(">ibbI", len(value) + 6, 1, CODECS[codec], zlib.crc32(value)) + value


def write_v2(batches: list[list[bytes]], codec: str) -> bytes:
    out, base = [], 0
    for values in batches:
        out.append(batch(base, [record(delta, None, value, 0) for delta, value in enumerate(values)], codec))
        base += len(values)
    return b"".join(out)


def write_messages(magic: int) -> Callable[[list[list[bytes]], str], bytes]:
    def write(batches: list[list[bytes]], codec: str) -> bytes:
        out, base = [], 0
        for values in batches:
            first = base if magic == 0 or codec == "none" else 0
            inner = b"".join(message(magic, first + index, value) for index, value in enumerate(values))
            base += len(values)
            if codec == "none":
                out.append(inner)
                continue
            compressed = COMPRESS[codec](inner)
            if codec == "lz4" and magic == 0:
                compressed = broken_lz4(compressed)
            out.append(message(magic, base - 1, compressed, codec))
        return b"".join(out)

    return write


def broken_lz4(frame: bytes) -> bytes:
    """Return `frame` with the header checksum that clients wrote before 0.10 (KIP-57)."""
    at = 6 + (8 if frame[4] & 8 else 0)
    return frame[:at] + bytes([xxh32(frame[:at]) >> 8 & 0xFF]) + frame[at + 1 :]


def write_07(batches: list[list[bytes]], codec: str) -> bytes:
    sets = (b"".join(map(message07, values)) for values in batches)
    return b"".join(one if codec == "none" else message07(COMPRESS[codec](one), codec) for one in sets)


def read_kafka(data: bytes) -> int:
    return sum(found.num_rows for found in record_batches(decode(Frames(data, 0, END), 0, OPTIONS), "orders", 0))


def read_07(data: bytes) -> int:
    return sum(found.num_rows for found in record_batches(decode07(Frames07(data, 0, END), 0, OPTIONS), "orders", 0))


FORMATS = (
    Format("v2", ("none", "gzip", "snappy", "lz4"), write_v2, read_kafka),
    Format("v1", ("none", "gzip", "snappy", "lz4"), write_messages(1), read_kafka),
    Format("v0", ("none", "gzip", "snappy", "lz4"), write_messages(0), read_kafka),
    Format("0.7", ("none", "gzip", "snappy"), write_07, read_07),
)


def values(fetch: int, batch_bytes: int, size: int) -> list[list[bytes]]:
    """Return values of `size` bytes in batches, of words that compress as well as text."""
    each, of = max(1, batch_bytes // size), texts(size)
    return [list(itertools.islice(of, each)) for _ in range(max(1, fetch // (each * size)))]


def best_rounds(codec: str, batches: list[list[bytes]], rounds: int) -> dict[str, float]:
    """Return the least CPU seconds that each format took."""
    rows = sum(map(len, batches))
    formats = [f for f in FORMATS if codec in f.codecs]
    written = [(f, f.write(batches, codec)) for f in formats]
    least = dict.fromkeys((f.name for f in formats), float("inf"))
    for _ in range(rounds):
        for one, data in written:
            began = time.thread_time()
            found = one.read(data)
            least[one.name] = min(least[one.name], time.thread_time() - began)
            if found != rows:
                raise AssertionError(f"{one.name}, {codec}: {found} rows of {rows}")
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fetch", type=int, default=4 << 20, help="uncompressed bytes of a fetch")
    parser.add_argument("--batch", type=int, default=16 << 10, help="uncompressed bytes of a batch or a wrapper")
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--rounds", type=int, default=50, help="of each format")
    parser.add_argument("--kernel", choices=KERNELS, action="append", help="which kernels (both)")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each kernel and codec")
    arguments = parser.parse_args()
    batches = values(arguments.fetch, arguments.batch, arguments.size)
    rows = sum(map(len, batches))
    for name in each_kernel(arguments.kernel or KERNELS):
        for codec in CODECS:
            least = best_rounds(codec, batches, arguments.rounds)
            shares = {form: least["v2"] / seconds for form, seconds in least.items()}
            if arguments.json:
                print(json.dumps({"kernel": name, "codec": codec, "seconds": least, "share_of_v2": shares}))
                continue
            line = "   ".join(f"{f} {s / rows * 1e9:5.0f} ns ({shares[f]:4.2f})" for f, s in least.items())
            print(f"{name:<9}{codec:<7} {arguments.size} bytes, per record and share of v2's rate: {line}")


if __name__ == "__main__":
    main()
