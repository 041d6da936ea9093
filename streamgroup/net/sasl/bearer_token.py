"""Reads the claims of a bearer token that is a JWT (RFC 7519). The signature is for the broker to check."""

from __future__ import annotations

import base64
import binascii
import json
import math
from datetime import UTC, datetime


def end_of(token: str) -> float | None:
    """Return the claim `exp` in seconds since 1970; None if the token has none or is not a JWT."""
    try:
        end = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))["exp"]
        if not isinstance(end, int | float) or isinstance(end, bool):
            return None
        seconds = float(end)
    except (ValueError, RecursionError, IndexError, KeyError, TypeError, OverflowError, binascii.Error):
        return None
    return seconds if math.isfinite(seconds) else None


def described_end(token: str) -> str:
    """Return the end of a JWT for people, such as `2026-01-31 12:00:00 UTC`; empty if the token does not tell it."""
    end = end_of(token)
    try:
        return "" if end is None else f"{datetime.fromtimestamp(end, UTC):%F %T} UTC"
    except (OverflowError, ValueError, OSError):  # a year that the calendar does not have
        return ""
