"""Which options are secret, and how their values stay out of logs and messages."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from streamgroup.errors import ConfigError

HIDDEN = "*****"

_MARKS = ("password", "passphrase", "secret", "jaas", "credential", "token")
_OTHER_NAMES = ("(access|account|api|encryption|private)[._ -]?key", "[.]sas[.]", "passwd", "auth[.]pass")
"""Regular expressions for the names of secrets of cloud file systems and sinks."""
_IN_VALUES = (
    "://[^/ :]*:[^ @]+@",
    "jdbc:oracle:[^/ @]+/[^ @]+@",
    "(sig|signature|pwd)=",
)
"""Regular expressions for secrets in values: user and password in a URL, signatures, and short names of passwords.

They have no backslashes, which `spark-defaults.conf` would remove."""
_PREFIXES = ("ssl.keystore.key", "ssl.keystore.certificate", "ssl.truststore.")
_SHOWN = (
    *("ssl.truststore.location", "ssl.truststore.type", "sasl.tokenprovider"),
    *("sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.client.credentials.client.id"),
)
"""Names that look like names of secrets and are not."""

REDACTION_REGEX = "(?i)" + "|".join(
    (*_MARKS, *_OTHER_NAMES, *_IN_VALUES, *(prefix.replace(".", "[.]") for prefix in _PREFIXES))
)
"""A value for Spark's setting `spark.redaction.regex`: all secret options, and what Spark's default covers.

Spark hides a value if the expression matches its name or the value itself. Spark's default covers neither
`kafka.sasl.jaas.config`, `kafka.ssl.keystore.key` nor `fs.azure.account.key` by name, nor a password in a URL.
"""
_REDACTED = re.compile(REDACTION_REGEX)


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """A secret value, or a reference to one. Its `repr` hides it.

    `env:NAME` refers to an environment variable and `file:/path` to a file. A referenced secret enters neither Spark's
    plan nor the data that the driver sends to the executors.
    """

    value: str

    def __repr__(self) -> str:
        return HIDDEN

    @property
    def file(self) -> str | None:
        """The path of the file that holds the secret; None if the value is not a reference to a file."""
        kind, _, name = self.value.partition(":")
        return name if kind == "file" else None

    def reveal(self, option: str) -> str:
        """Return the secret, read from this process's environment or from a file if the value is a reference.

        Raises ConfigError, which names `option`, if the variable is not set or the file cannot be read.
        """
        kind, _, name = self.value.partition(":")
        if kind == "env":
            if name not in os.environ:
                raise ConfigError(
                    f"cannot read the secret for option {option}: the environment variable {name!r} is not set. Set it "
                    "before this process starts"
                )
            return os.environ[name]
        if kind == "file":
            try:
                return Path(name).read_text(encoding="utf-8").rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(
                    f"cannot read the secret for option {option}: file {name}: {error}. Check the path and its "
                    "permissions"
                ) from None
        return self.value


def is_reference(text: str) -> bool:
    """Return whether the value of a secret refers to an environment variable or a file."""
    return text.startswith(("env:", "file:"))


def is_secret(name: str) -> bool:
    """Return whether the value of an option may be secret. Unknown options count too: users misspell secret ones."""
    lower = name.lower().removeprefix("kafka.").removeprefix("zookeeper.")
    return (any(mark in lower for mark in _MARKS) or lower.startswith(_PREFIXES)) and lower not in _SHOWN


def has_secret(text: str) -> bool:
    """Return whether a name or a value may be of a secret, by the rule of Spark's redaction."""
    return _REDACTED.search(text) is not None
