"""The cluster that a command line names."""

from __future__ import annotations

from streamgroup.errors import ConfigError
from streamgroup.net.cluster import Cluster
from streamgroup.options.kinds import SERVERS
from streamgroup.options.types import ClientOptions


def cluster_of(servers: str, client_id: str, timeout_ms: int) -> Cluster:
    """The cluster behind `--bootstrap-server`; nothing connects yet. Raises ConfigError where it is no address."""
    try:
        parsed = SERVERS.parse(servers)
    except ValueError as error:
        raise ConfigError(f"--bootstrap-server: {error}") from None
    return Cluster(ClientOptions(parsed, client_id=client_id, default_api_timeout_ms=timeout_ms))
