"""Which version of each API to speak with a broker: the highest that both know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamgroup.errors import UnsupportedVersionError
from streamgroup.wire.messages.cluster import ApiVersionsResponse
from streamgroup.wire.schema import Request


@dataclass(frozen=True, slots=True)
class BrokerVersions:
    """The APIs of one broker: `ranges` has, by API key, its lowest and highest version. `broker` is for messages."""

    broker: str
    ranges: Mapping[int, tuple[int, int]]

    @classmethod
    def of(cls, response: ApiVersionsResponse, broker: str) -> BrokerVersions:
        """What a broker's answer to ApiVersions says."""
        return cls(broker, {api.api_key: (api.min_version, api.max_version) for api in response.api_keys})

    def highest(self, request_type: type[Request[Any]], ceiling: int | None = None) -> int:
        """The highest common version, not above `ceiling`.

        Raises UnsupportedVersionError where there is none, naming the broker, the API and both ranges.
        """
        lowest, highest = request_type.VERSIONS
        if ceiling is not None:
            highest = min(highest, ceiling)
        theirs = self.ranges.get(request_type.API_KEY)
        if theirs is not None:
            common = min(highest, theirs[1])
            if common >= max(lowest, theirs[0]):
                return common
        has = "does not have it" if theirs is None else f"speaks the versions {theirs[0]} to {theirs[1]}"
        raise UnsupportedVersionError(
            f"{request_type.NAME} (API {request_type.API_KEY}): broker {self.broker} {has}, "
            f"here the versions {lowest} to {highest} are wanted; use a broker or an option that does without"
        )
