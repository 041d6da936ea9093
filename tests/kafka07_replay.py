"""The captured samples of Kafka 0.7.2, played to an emulated broker in their order."""

from __future__ import annotations

from streamgroup.kafka.wire.kafka07 import ProduceRequest07, message07
from tests.kafka07_samples import Sample, samples
from tests.unit.testing.kafka07.brokers import connect, is_open, read

PROPERTIES = {"num.partitions": 3, "log.flush.interval": 1, "log.file.size": 200}
"""Of the broker that was captured."""

SEGMENTED = [ProduceRequest07("segtopic", 0, message07(b"%050d" % n)) for n in range(12)]
"""720 bytes in messages of 60: three segments of 240, since the next one begins beyond 200."""

LEFT_OUT = {
    "FETCH g1/0 @0": [ProduceRequest07("g1", 0, message07(b"plain"))],
    "OFFSETS t1/0 -1 max 1": [ProduceRequest07("t1", 0, message07(b"") + message07(b"", magic=0))],
    "OFFSETS segtopic/0 time=-1 max=10": SEGMENTED,
}
"""The messages written before a sample was taken that are not samples themselves."""


def replay(address: str) -> list[str]:
    """Play all samples to a fresh broker, each on a connection of its own; what came otherwise than captured."""
    wrong = []
    for sample in samples():
        for request in LEFT_OUT.get(sample.name, []):
            with connect(address) as connection:
                connection.sendall(request.encode())
                assert is_open(connection)
        found, closed = play(address, sample)
        if (found, closed) != (sample.got, sample.closed):
            wrong.append(f"{sample}: {found.hex()} closed={closed}, not {sample.got.hex()} closed={sample.closed}")
    return wrong


def play(address: str, sample: Sample) -> tuple[bytes, bool]:
    """The answer to a sample, and whether the connection is closed then."""
    with connect(address) as connection:
        connection.sendall(sample.sent)
        if not sample.closed:
            found = read(connection, len(sample.got))
            return found, not is_open(connection)
        # One byte more than captured shows an answer that is too long; at the end of the stream it does not come.
        found = read(connection, len(sample.got) + 1)
        return found, len(found) <= len(sample.got)
