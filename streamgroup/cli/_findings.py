"""The findings of `streamgroup doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class CheckVerdict(Enum):
    """The verdict of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: its subject, the verdict, and a text with the next step unless the verdict is OK."""

    subject: str
    verdict: CheckVerdict
    text: str
