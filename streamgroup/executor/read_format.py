"""How tasks read a log: the part of a `LogFormat` that needs requests, connections and decoders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from streamgroup.executor.cursor import Cursor
from streamgroup.executor.exchange import Exchange
from streamgroup.executor.lookup import LogLookup
from streamgroup.executor.pipeline import Portion
from streamgroup.logformat import LogFormat
from streamgroup.model import Dialect
from streamgroup.net.connection import Connection
from streamgroup.options.types import ClientOptions, FetchOptions
from streamgroup.records.decode import Decoded, DecodeOptions


class ReadFormat(ABC):
    """What `Reader`, `Pipeline` and `Recovery` ask where the generations of Kafka differ.

    It has no state of its own. `exchange` makes what belongs to one connection, `lookup` what belongs to one task.
    """

    dialect: ClassVar[Dialect]
    frame_noun: ClassVar[str]
    """What a damaged piece of the log is called, which can be stepped over as a whole."""
    next_frame_unknown: ClassVar[str]
    """What to tell where a damaged frame does not show where the next one begins."""

    @property
    def log_format(self) -> LogFormat:
        """What an offset is, and what a partition is called."""
        return self.dialect.log_format

    @abstractmethod
    def exchange(self, connection: Connection, cursors: Sequence[Cursor], options: FetchOptions) -> Exchange:
        """Return what asks for `cursors` over `connection` and reads the answers."""

    @abstractmethod
    def lookup(self, client: ClientOptions, fetch: FetchOptions, clock: Callable[[], float]) -> LogLookup:
        """Return what finds the leaders of cursors again and what their logs hold. Connects when first asked."""

    @abstractmethod
    def decode(self, portion: Portion, position: int, options: DecodeOptions) -> Decoded:
        """Decode the records of `portion` from `position` on. Raises DecodeError."""
