"""The error that ends a query."""

from __future__ import annotations

from streamgroup.errors import StreamGroupError


class Failure:
    """The first error that no retry ends. Spark's next call raises it."""

    def __init__(self) -> None:
        self.error: StreamGroupError | None = None
        """None while the query can go on."""

    def set(self, error: StreamGroupError) -> None:
        """End the query with `error`, unless it has failed before."""
        self.error = self.error or error

    def raise_it(self) -> None:
        """Raise the error, if there is one."""
        if self.error is not None:
            raise self.error
