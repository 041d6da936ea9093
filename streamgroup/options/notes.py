"""The kinds of notes about options that the driver logs."""


class Caution(str):
    """A note about a setting that weakens the connection, or about an unknown option.

    The driver logs it as a warning, other notes as INFO.
    """

    __slots__ = ()
