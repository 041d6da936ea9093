from typing import Any

import numpy.typing as npt

_Array = npt.NDArray[Any]

def scan(
    buffer: _Array,
    begin: _Array,
    end: _Array,
    count: _Array,
    base_offset: _Array,
    last_offset_delta: _Array,
    timestamp: _Array,
    append_time: _Array,
    /,
    *fields: _Array,
) -> tuple[int, int] | None: ...
def headers(buffer: _Array, start: _Array, count: _Array, /, *fields: _Array) -> bool: ...
def gather(buffer: _Array, start: _Array, length: _Array, offsets: Any, data: Any, /) -> None: ...
