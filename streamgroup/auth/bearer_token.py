"""Reads the claims of a bearer token that is a JWT (RFC 7519). The signature is for the broker to check."""

from __future__ import annotations

import base64
import binascii
import json


def end_of(token: str) -> float | None:
    """Return the claim `exp` in seconds since 1970; None if the token has none or is not a JWT."""
    try:
        end = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))["exp"]
    except (ValueError, RecursionError, IndexError, KeyError, TypeError, binascii.Error):
        return None
    return float(end) if isinstance(end, int | float) and not isinstance(end, bool) else None
