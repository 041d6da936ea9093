"""All decoders under the fuzzer, by name."""

from __future__ import annotations

from tests.fuzz import records, sasl, text, values, wire
from tests.fuzz.decoder import Decoder

DECODERS: dict[str, Decoder] = {
    decoder.name: decoder for room in (wire, records, text, sasl, values) for decoder in room.decoders()
}


def named(prefixes: list[str]) -> list[Decoder]:
    """Return the decoders whose names begin with one of `prefixes`, all without any. Raises ValueError for none."""
    found = [decoder for name, decoder in DECODERS.items() if not prefixes or name.startswith(tuple(prefixes))]
    if not found:
        raise ValueError(f"no decoder is called {' or '.join(prefixes)}: expected one of {', '.join(DECODERS)}")
    return found
