"""The common parts of the benchmarks of the kernels: their records, the kernels in turn, and the measurement."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator

from streamgroup.errors import ConfigError
from streamgroup.kafka.records import kernel
from streamgroup.kafka.records.kernel import Name

KERNELS: tuple[Name, ...] = ("python", "compiled")


def each_kernel(names: Iterable[Name] = KERNELS) -> Iterator[Name]:
    """Use each kernel in turn. One that has not been built is left out, which is printed."""
    for name in names:
        try:
            kernel.use(name)
        except ConfigError as error:
            print(error)
            continue
        yield name


def texts(size: int) -> Iterator[bytes]:
    """Yield values of `size` bytes without an end, of words that compress as well as text."""
    rng = random.Random(size)
    words = [rng.randbytes(rng.randrange(3, 9)).hex().encode() for _ in range(400)]
    while True:
        yield b" ".join(rng.choices(words, k=size // 6 + 1))[:size]


def best(step: Callable[[], object], seconds: float) -> float:
    """Repeat `step` for so many seconds, and return the least CPU seconds that it took."""
    times, end = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        began = time.thread_time()
        step()
        times.append(time.thread_time() - began)
    return min(times)
