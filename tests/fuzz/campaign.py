"""A run of many cases against one decoder. Each case follows from the decoder's name, a seed and the case's number."""

from __future__ import annotations

import gc
import signal
import time
import tracemalloc
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Protocol

from tests.fuzz.decoder import Decoder, Sample

MEMORY_FACTOR = 4
MEMORY_CONSTANT = 256 << 10
"""Bytes beyond the factor: objects of Python, and the text of an error."""
MEASURED_EVERY = 50
"""One case in so many has its memory measured: tracemalloc makes a case several times slower."""
_ATTEMPTS = 3
"""A busy machine makes a case slow once, not three times in a row."""


SLOWEST_S = 0.05
"""CPU seconds that a case may take."""
ENDLESS_S = 20
"""CPU seconds after which a case is given up."""
_COLLECTED_EVERY = 1_000


class Progress(Protocol):
    """Takes the number of each case before the case is tried: after a crash it tells which one it was."""

    value: int


class _Endless(BaseException):
    """A case does not end. Not an Exception, since decoders may catch those."""


@contextmanager
def _uncollected() -> Iterator[None]:
    """Collect no garbage in the block: a collection of all that the process holds would count as time of one case.

    A collection within the block ignores all objects from before it, because it would walk every one of them.
    """
    collects, is_frozen = gc.isenabled(), gc.get_freeze_count() > 0
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        if not is_frozen:  # what the caller has frozen, such as pytest's modules, stays frozen
            gc.unfreeze()
        if collects:
            gc.enable()


@contextmanager
def _ending() -> Iterator[None]:
    """Raise _Endless from the block when its timer of CPU time ends. pytest's timeouts use the timer of real time."""

    def end(signum: int, frame: object) -> None:
        raise _Endless

    before = signal.signal(signal.SIGVTALRM, end)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@dataclass(frozen=True, slots=True)
class Case:
    """One case: the kind of its sample, and the bytes."""

    decoder: Decoder
    seed: int
    number: int
    kind: str
    data: bytes

    def __str__(self) -> str:
        return (
            f"{self.decoder.name}, case {self.number} of seed {self.seed}, {self.kind!r}, {len(self.data)} bytes. "
            f"Replay: .venv/bin/python -m tests.fuzz --replay '{self.decoder.name}' '{self.kind}' '{self.data.hex()}'"
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """A case that has shown a defect."""

    case: Case
    what: str

    def __str__(self) -> str:
        return f"{self.what} for {self.case}"


@dataclass(slots=True)
class Outcome:
    """The counts of one run. `accepted` are the cases that were decoded, `slowest_s` is CPU time."""

    cases: int = 0
    accepted: int = 0
    slowest_s: float = 0.0
    most_memory: int = 0
    """Bytes that the case with the most memory took, of those that were measured."""


class Campaign:
    """The cases of one decoder from one seed. `limits` off: neither time nor memory is held against its limit."""

    def __init__(self, decoder: Decoder, seed: int = 0, *, limits: bool = True) -> None:
        self._decoder = decoder
        self._seed = seed
        self._limits = limits
        self._samples: Sequence[Sample] = decoder.samples()
        self._by_kind: dict[str, list[bytes]] = {}
        for sample in self._samples:
            self._by_kind.setdefault(sample.kind, []).append(sample.data)
        self._base = (zlib.crc32(decoder.name.encode()) << 32 | seed) << 40
        self.outcome = Outcome()

    def case(self, number: int) -> Case:
        """Return the case of this number."""
        chance = Random(self._base | number)
        sample = self._samples[int(chance.random() * len(self._samples))]
        data = self._decoder.mutate(sample.data, sample.marks, self._by_kind[sample.kind], chance)
        if self._decoder.mend is not None:
            data = self._decoder.mend(sample.kind, data, chance)
        return Case(self._decoder, self._seed, number, sample.kind, data)

    def sound(self) -> Finding | None:
        """Decode each sample as it is. A sample that is refused is a finding: its cases would test little."""
        for number, sample in enumerate(self._samples):
            try:
                self._decoder.decode(sample.kind, sample.data)
            except Exception as error:
                return Finding(
                    Case(self._decoder, self._seed, -1 - number, sample.kind, sample.data), f"refused: {error!r}"
                )
        return None

    def findings(self, cases: int, first: int = 0, progress: Progress | None = None) -> Iterator[Finding]:
        """Try the cases from `first` on, and yield those that show a defect. `progress` gets each case's number."""
        with _uncollected(), _ending():
            for number in range(first, first + cases):
                if progress is not None:
                    progress.value = number
                case = self.case(number)
                what = self._judged(case, measured=self._limits and number % MEASURED_EVERY == 0)
                if what is not None:
                    yield Finding(case, what)
                if number % _COLLECTED_EVERY == 0:
                    gc.collect()

    def judge(self, case: Case, *, measured: bool) -> str | None:
        """Decode one case. Return the defect that it shows, or None; of its memory only where that is `measured`."""
        with _uncollected(), _ending():
            return self._judged(case, measured=measured)

    def _judged(self, case: Case, *, measured: bool) -> str | None:
        self.outcome.cases += 1
        if measured:
            return self._measured(case)
        what, seconds = self._timed(case)
        for _ in range(_ATTEMPTS - 1):
            if what is not None or not self._limits or seconds <= SLOWEST_S:
                break
            what, again = self._timed(case)
            seconds = min(seconds, again)
        self.outcome.slowest_s = max(self.outcome.slowest_s, seconds)
        if what is None and self._limits and seconds > SLOWEST_S:
            return f"{seconds * 1000:.0f} ms of CPU time"
        return what

    def _timed(self, case: Case) -> tuple[str | None, float]:
        began = time.thread_time()
        what = self._defect(case)
        return what, time.thread_time() - began

    def _measured(self, case: Case) -> str | None:
        tracemalloc.start()
        try:
            what = self._defect(case)
            taken = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        self.outcome.most_memory = max(self.outcome.most_memory, taken)
        if what is None and taken > MEMORY_FACTOR * len(case.data) + MEMORY_CONSTANT + self._decoder.cap:
            return f"{taken} bytes of memory"
        return what

    def _defect(self, case: Case) -> str | None:
        signal.setitimer(signal.ITIMER_VIRTUAL, ENDLESS_S)
        try:
            self._decoder.decode(case.kind, case.data)
        except self._decoder.refuses:
            return None
        except _Endless:
            return f"no end after {ENDLESS_S} s of CPU time"
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:500]
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        self.outcome.accepted += 1
        return None
