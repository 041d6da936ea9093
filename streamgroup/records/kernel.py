"""Which scan is used: the compiled one where it has been built, else the one in numpy. They are equal."""

from __future__ import annotations

from typing import Literal

from streamgroup.records import scan as _python
from streamgroup.records.fields import Bytes, Fields, HeaderFields, Ints, Regions

Name = Literal["python", "compiled"]


def name() -> Name:
    """The scan that is in use."""
    return "python"


def scan(buffer: Bytes, regions: Regions) -> Fields:
    """Find the fields of all records of `regions` in `buffer`. Raises RecordFault."""
    return _python.scan(buffer, regions)


def headers(buffer: Bytes, start: Ints, count: Ints) -> HeaderFields:
    """Find the headers of scanned records: `start` and `count` are those of `Fields`."""
    return _python.headers(buffer, start, count)
