"""The kinds of sentences about options that the driver logs."""


class Caution(str):
    """A sentence about a setting that weakens the connection, or about an unknown option.

    The driver logs it as a warning, other notes as INFO.
    """

    __slots__ = ()
