"""Conversations with another process of this machine, over a Unix socket, of which every wait has a deadline.

`multiprocessing.connection.Client` has none: it waits for ever for a process that is stopped and accepts nobody.
"""

from __future__ import annotations

import math
import socket
import struct
from multiprocessing.connection import Connection
from typing import Any


def connect(path: str, patience: float) -> Connection[Any, Any]:
    """A connection to the socket at `path`. Connecting, each sending and each receiving take `patience` s at most.

    Raises OSError: FileNotFoundError or ConnectionRefusedError where nobody listens, BlockingIOError, here and later,
    where the time is over.
    """
    seconds = max(0.001, patience)  # 0 would mean for ever
    whole = math.floor(seconds)
    limit = struct.pack("ll", whole, int((seconds - whole) * 1_000_000))  # struct timeval
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as opened:
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            opened.setsockopt(socket.SOL_SOCKET, option, limit)
        opened.connect(path)
        return Connection(opened.detach())
