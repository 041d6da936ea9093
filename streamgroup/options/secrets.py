"""Which options are secret, and their values hidden."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from streamgroup.errors import ConfigError

HIDDEN = "*****"

_MARKS = ("password", "passphrase", "secret", "jaas", "credential", "token")
_PREFIXES = ("ssl.keystore.key", "ssl.keystore.certificate", "ssl.truststore.")


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """A value that shows itself nowhere but where it is used.

    `env:NAME` and `file:/path` refer to it: so it enters neither Spark's plan nor what is sent to executors.
    """

    value: str

    def __repr__(self) -> str:
        return HIDDEN

    def reveal(self, option: str) -> str:
        """The value itself, of this process's environment or machine where it is a reference.

        Raises ConfigError, which names `option`, where the reference leads nowhere.
        """
        kind, _, name = self.value.partition(":")
        if kind == "env":
            if name not in os.environ:
                raise ConfigError(f"{option} refers to the environment variable {name!r}, which the driver has not")
            return os.environ[name]
        if kind == "file":
            try:
                return Path(name).read_text(encoding="utf-8").rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"{option} refers to a file that the driver cannot read: {name}: {error}") from None
        return self.value


def is_secret(name: str) -> bool:
    """Whether an option's value may be secret, also where nobody knows the option: rather hide one too many."""
    lower = name.lower()
    return any(mark in lower for mark in _MARKS) or lower.removeprefix("kafka.").startswith(_PREFIXES)


def redact(options: Mapping[str, str]) -> dict[str, str]:
    """The options as they may stand in a log or a message."""
    return {name: HIDDEN if is_secret(name) else value for name, value in options.items()}
