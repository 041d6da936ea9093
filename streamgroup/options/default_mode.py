"""The default of `group.mode` for all streams of an application or a session, if a user has set it to `off`."""

from __future__ import annotations

from collections.abc import Mapping

from streamgroup.errors import ConfigError
from streamgroup.options import kinds
from streamgroup.options.types import GroupMode

MODE_VARIABLE = "STREAMGROUP_GROUP_MODE"
"""The environment variable. Spark starts every process of a source with the environment of the driver's JVM."""
MODE_FUNCTION = "streamgroup.default_mode"
_MODE = "group.mode"
_GROUP = "kafka.group.id"
_KIND = kinds.choice({mode.value: mode for mode in (GroupMode.OFF, GroupMode.MEMBER)})


def parse_default_mode(text: str, where: str) -> GroupMode:
    """Return the mode that `text` names. Raises ConfigError, which names `where`, unless it is `off` or `member`."""
    try:
        mode: GroupMode = _KIND.parse(text)
    except ValueError as error:
        raise ConfigError(f"invalid value {text!r} for {where}: {error}. Correct it, or leave it out") from None
    return mode


def with_default_mode(
    options: Mapping[str, str], default: GroupMode, where: str
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the options of a stream with the default mode, and a note for the log if that changes them.

    It changes the mode of a stream that has a group id and does not set `group.mode`. `where` names the place where it
    was set.
    """
    given = {name.lower() for name in options}
    if default is GroupMode.MEMBER or _MODE in given or _GROUP not in given:
        return dict(options), ()
    return {**options, _MODE: default.value}, (f"group.mode is {default.value}: {where} sets it",)
