"""Which options are secret, and their values hidden."""

from __future__ import annotations

from collections.abc import Mapping

HIDDEN = "*****"

_MARKS = ("password", "passphrase", "secret", "jaas", "credential", "token")
_PREFIXES = ("ssl.keystore.key", "ssl.keystore.certificate", "ssl.truststore.")


def is_secret(name: str) -> bool:
    """Whether an option's value may be secret, also where nobody knows the option: rather hide one too many."""
    lower = name.lower()
    return any(mark in lower for mark in _MARKS) or lower.removeprefix("kafka.").startswith(_PREFIXES)


def redact(options: Mapping[str, str]) -> dict[str, str]:
    """The options as they may stand in a log or a message."""
    return {name: HIDDEN if is_secret(name) else value for name, value in options.items()}
