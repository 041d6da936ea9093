"""`streamgroup.SchemaRegistry`: where the schemas of records are."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from streamgroup.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """A schema registry. `password` may be `env:NAME` or `file:/path`.

    `ca` is a PEM file of authorities to trust instead of those of the system. The driver reads both anew for each batch
    that has new ids.
    """

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError for a registry that cannot be asked."""
        try:
            parts = urlsplit(self.url)
            is_valid = self.url.startswith(("http://", "https://")) and bool(parts.hostname) and not parts.query
            # A list of URLs would pass as one, and the client would send the password to each.
            is_valid = is_valid and "," not in self.url and (parts.port is None or parts.port > 0)
        except ValueError:
            is_valid = False
        if not is_valid:
            raise ConfigError("invalid URL of the schema registry: expected, for example, https://registry:8081")
        if parts.username is not None or parts.password is not None:
            raise ConfigError("the URL of the schema registry has credentials in it. Set the user and the password")
        if (self.user is None) != (self.password is None):
            raise ConfigError("a schema registry requires both user and password, or neither. Set the other one too")
        if self.ca is not None and parts.scheme != "https":
            raise ConfigError("authorities for a schema registry are set, but its URL is not https. Correct the URL")
