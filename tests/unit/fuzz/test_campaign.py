"""Each decoder of bytes and text from outside, under cases that are almost sound (`tests/fuzz`).

`make check` tries a few cases of each, `make test` as many as find the planted bugs, `make test-fuzz` a million. The
fuzzer can fail: it finds planted bugs, and what takes long, much memory or has no end.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz import campaign as campaigns
from tests.fuzz import processes
from tests.fuzz.campaign import Campaign
from tests.fuzz.decoder import Decoder, Sample
from tests.fuzz.planted import BUGS, PlantedBug
from tests.fuzz.table import DECODERS, named

ROOT = Path(__file__).parents[3]
IN_C = {"records/encoders"}
"""Decoders without Python code of ours. `python -m tests.sanitizers --planted` shows that theirs are found."""

PAIRS = [(bug, decoder) for bug in BUGS for decoder in named(list(bug.decoders))]


def pair_id(value: PlantedBug | Decoder) -> str:
    return value.function.__qualname__ if isinstance(value, PlantedBug) else value.name


@pytest.mark.slow
@pytest.mark.parametrize(("bug", "decoder"), PAIRS, ids=pair_id)
def test_a_planted_bug_is_found(bug: PlantedBug, decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaigns, "ENDLESS_S", 2)
    with bug.planted():
        known = bug.known.get(decoder.name)
        found = None if known is None else next(Campaign(decoder).findings(1, known), None)
        if found is None:  # where a change has moved the known case, all are tried
            found = next(Campaign(decoder).findings(decoder.enough), None)
    assert found is not None, f"{decoder.name} does not find {bug.old!r} changed to {bug.new!r}"
    assert found.case.number < decoder.enough
    assert next(Campaign(decoder).findings(1, found.case.number), None) is None, "without the bug the case is sound"


def test_every_decoder_has_a_planted_bug() -> None:
    assert {decoder.name for _, decoder in PAIRS} == set(DECODERS) - IN_C


def burn(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def decoder_that(does: Callable[[bytes], object]) -> Decoder:
    def decode(_: str, data: bytes) -> None:
        if len(data) != 8:
            does(data)

    return Decoder("test/decoder", lambda: [Sample("kind", b"8 bytes.")], decode)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("does", "what"),
    [
        (lambda data: {}["x"], "KeyError"),
        (lambda data: burn(0.06), "ms of CPU time"),
        (lambda data: bytes(1 << 20), "bytes of memory"),
        (lambda data: burn(60), "no end after 0.2 s of CPU time"),
    ],
)
def test_what_a_case_must_not_do_is_found(
    does: Callable[[bytes], object], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaigns, "ENDLESS_S", 0.2)
    monkeypatch.setattr(campaigns, "MEASURED_EVERY", 3)
    found = next((f for f in Campaign(decoder_that(does)).findings(100) if what in f.what), None)
    assert found is not None
    shown = f"test/decoder, case {found.case.number} of seed 0, 'kind', {len(found.case.data)} bytes"
    assert shown in str(found)


def test_a_sample_that_is_refused_is_found() -> None:
    decoder = Decoder("test/decoder", lambda: [Sample("", b"x")], lambda _, data: {}["x"])
    refused = Campaign(decoder).sound()
    assert refused is not None
    assert "refused: KeyError" in refused.what


def test_a_case_follows_from_its_number() -> None:
    decoder = DECODERS["wire/Fetch"]
    first, again = Campaign(decoder), Campaign(decoder)
    cases = [first.case(number) for number in range(50)]
    assert [again.case(number) for number in reversed(range(50))] == cases[::-1]
    assert Campaign(decoder, seed=1).case(7).data != cases[7].data


@pytest.mark.slow
def test_a_process_that_crashes_names_its_case() -> None:
    def crash(data: bytes) -> None:
        os._exit(77)

    ((_, report),) = processes.run([decoder_that(crash)], 1_000, 0, 1, limits=True)
    (found,) = report.findings
    assert "the process ended with exit code 77 for test/decoder, case " in found


@pytest.mark.slow
def test_the_command_of_a_finding_tries_its_bytes_again() -> None:
    case = Campaign(DECODERS["group/identity"]).case(3)
    found = re.search(r"-m (tests\.fuzz) (--replay) '(.*)' '(.*)' '(.*)'$", str(case))
    assert found is not None
    run = subprocess.run(
        [sys.executable, "-m", *found.groups()], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert run.stdout.startswith("accepted: None\n")


# -- the decoders ------------------------------------------------------------------------------------------------------

FEW = 100

each_decoder = pytest.mark.parametrize("decoder", DECODERS.values(), ids=DECODERS)
few_or_enough = pytest.mark.parametrize("is_enough", [False, pytest.param(True, marks=pytest.mark.slow)])


@each_decoder
@few_or_enough
def test_mutated_samples_are_decoded_or_refused_soon_and_within_memory(decoder: Decoder, is_enough: bool) -> None:
    # The slow test starts after the cases of the fast one, so that `make test` tries each case once.
    first, cases = (FEW, decoder.enough - FEW) if is_enough else (0, FEW)
    campaign = Campaign(decoder)
    assert campaign.sound() is None
    found = list(itertools.islice(campaign.findings(cases, first), 3))
    assert not found, "\n".join(map(str, found))
    # Where nothing is accepted, the cases end at the first check and test little.
    assert campaign.outcome.accepted > cases / 50
