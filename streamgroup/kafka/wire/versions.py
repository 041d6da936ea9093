"""Negotiates the version of each API: the highest version that broker and client both support."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from streamgroup.errors import UnsupportedVersionError
from streamgroup.frozen import frozen
from streamgroup.kafka.wire.messages.cluster import ApiVersionsResponse
from streamgroup.kafka.wire.messages.log import FetchRequest
from streamgroup.kafka.wire.schema import Request

_FETCH_OF_2_0 = 8
_TRANSACTIONS_V2 = 2


@frozen
class BrokerVersions:
    """The API versions that one broker supports. `ranges` maps API keys to the lowest and highest version.

    `broker` is the broker's name in errors.
    """

    broker: str
    ranges: Mapping[int, tuple[int, int]]
    release: str = ""
    """The release (`0.9`) of a broker that does not support ApiVersions; empty if the ranges are from ApiVersions."""
    features: Mapping[str, int] = field(default_factory=dict)
    """The level at which the cluster has finalized each feature (KIP-584), since Kafka 2.7."""

    @classmethod
    def of(cls, response: ApiVersionsResponse, broker: str) -> BrokerVersions:
        """Return the versions in an ApiVersions response."""
        ranges = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        return cls(broker, ranges, features={f.name: f.max_version_level for f in response.finalized_features})

    @property
    def has_consumer_protocol(self) -> bool:
        """Whether the cluster has the consumer protocol of groups switched on (KIP-848, Kafka 4.0 or later)."""
        return self.features.get("group.version", 0) > 0

    @property
    def has_transactions_v2(self) -> bool:
        """Whether the cluster has transactions V2 switched on: each has its own epoch (KIP-890, Kafka 4.0 or later)."""
        return self.features.get("transaction.version", 0) >= _TRANSACTIONS_V2

    def supports(self, request_type: type[Request[Any]], version: int) -> bool:
        lowest, highest = self.ranges.get(request_type.API_KEY, (0, -1))
        return lowest <= version <= highest

    @property
    def answers_before_throttling(self) -> bool:
        """Whether the broker sends a response before its throttle time, and reads no request until that has passed.

        Brokers before 2.0 send the response afterwards, so the client has waited already (KIP-219).
        """
        return self.ranges.get(FetchRequest.API_KEY, (0, -1))[1] >= _FETCH_OF_2_0

    def highest(self, request_type: type[Request[Any]], ceiling: int | None = None) -> int:
        """Return the highest version of a request that client and broker support, at most `ceiling`.

        Raises UnsupportedVersionError if there is none. The error contains the broker, the API and both ranges.
        """
        lowest, highest = request_type.VERSIONS
        if ceiling is not None:
            highest = min(highest, ceiling)
        theirs = self.ranges.get(request_type.API_KEY)
        if theirs is not None:
            common = min(highest, theirs[1])
            if common >= max(lowest, theirs[0]):
                return common
        has = "does not have it" if theirs is None else f"supports versions {theirs[0]} to {theirs[1]}"
        broker = f"{self.broker} (Kafka {self.release})" if self.release else self.broker
        raise UnsupportedVersionError(
            f"{request_type.NAME} (API {request_type.API_KEY}): broker {broker} {has}, streamgroup needs version "
            f"{lowest} to {highest}. Use another broker, or an option that does not need this API"
        )
