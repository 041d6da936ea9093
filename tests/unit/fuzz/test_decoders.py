"""Each decoder of bytes and text from outside, under cases that are almost sound (`tests/fuzz`).

`make check` tries a few cases of each, `make test` 10 000, `make test-fuzz` a million.
"""

from __future__ import annotations

import itertools

import pytest

from tests.fuzz.campaign import Campaign
from tests.fuzz.decoder import Decoder
from tests.fuzz.table import DECODERS

FEW, MANY = 100, 10_000

each_decoder = pytest.mark.parametrize("decoder", DECODERS.values(), ids=DECODERS)
cases = pytest.mark.parametrize("cases", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])


@each_decoder
@cases
def test_mutated_samples_are_decoded_or_refused_soon_and_within_memory(decoder: Decoder, cases: int) -> None:
    campaign = Campaign(decoder)
    assert campaign.sound() is None
    found = list(itertools.islice(campaign.findings(cases), 3))
    assert not found, "\n".join(map(str, found))
    # Where nothing is accepted, the cases end at the first check and test little.
    assert campaign.outcome.accepted > cases / 50
