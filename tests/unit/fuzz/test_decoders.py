"""Each decoder of bytes and text from outside, under cases that are almost sound (`tests/fuzz`).

`make check` tries a few cases of each, `make test` as many as find the planted bugs, `make test-fuzz` a million.
"""

from __future__ import annotations

import itertools

import pytest

from tests.fuzz.campaign import Campaign
from tests.fuzz.decoder import Decoder
from tests.fuzz.table import DECODERS

FEW = 100

each_decoder = pytest.mark.parametrize("decoder", DECODERS.values(), ids=DECODERS)
few_or_enough = pytest.mark.parametrize("is_enough", [False, pytest.param(True, marks=pytest.mark.slow)])


@each_decoder
@few_or_enough
def test_mutated_samples_are_decoded_or_refused_soon_and_within_memory(decoder: Decoder, is_enough: bool) -> None:
    cases = decoder.enough if is_enough else FEW
    campaign = Campaign(decoder)
    assert campaign.sound() is None
    found = list(itertools.islice(campaign.findings(cases), 3))
    assert not found, "\n".join(map(str, found))
    # Where nothing is accepted, the cases end at the first check and test little.
    assert campaign.outcome.accepted > cases / 50
