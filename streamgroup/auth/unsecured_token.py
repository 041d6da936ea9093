"""An unsecured token for OAUTHBEARER: a JWT without a signature (RFC 7515, "alg": "none"), for brokers of tests.

Java's client makes one if `unsecuredLoginStringClaim_sub` is set, and only a broker without a validator of its own
accepts it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping


def unsecured_token(claims: Mapping[str, str], now_s: float, lifetime_s: int) -> str:
    """Return a token with these claims, issued at `now_s` (seconds since 1970), which expires after `lifetime_s`."""
    times = {"exp": int(now_s) + lifetime_s, "iat": int(now_s)}
    return f"{_part({'alg': 'none'})}.{_part({**claims, **times})}."


def _part(values: Mapping[str, str | int]) -> str:
    return base64.urlsafe_b64encode(json.dumps(values, separators=(",", ":")).encode()).decode().rstrip("=")
