"""The default of `group.mode` for all streams of an application: the environment variable STREAMGROUP_GROUP_MODE."""

from __future__ import annotations

from collections.abc import Mapping

from streamgroup.errors import ConfigError
from streamgroup.options import kinds
from streamgroup.options.types import GroupMode

MODE_VARIABLE = "STREAMGROUP_GROUP_MODE"
"""The name of the variable. Spark starts every process of a source with the environment of the driver's JVM."""
_MODE = "group.mode"
_GROUP = "kafka.group.id"


def with_default_mode(options: Mapping[str, str], default: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the options of a stream with the mode that `default` names, and a note for the log if that changes them.

    It changes the mode of a stream that has a group id and does not set `group.mode`. An empty `default` changes
    nothing. Raises ConfigError for a word that is not a mode.
    """
    if not default.strip():
        return dict(options), ()
    try:
        mode: GroupMode = kinds.MODE.parse(default)
    except ValueError as error:
        raise ConfigError(
            f"invalid value {default!r} for the environment variable {MODE_VARIABLE}: {error}. Correct it where the "
            "driver is started, or remove it"
        ) from None
    given = {name.lower() for name in options}
    if mode is GroupMode.MEMBER or _MODE in given or _GROUP not in given:
        return dict(options), ()
    return {**options, _MODE: mode.value}, (f"group.mode is {mode.value}: {MODE_VARIABLE} sets it",)
