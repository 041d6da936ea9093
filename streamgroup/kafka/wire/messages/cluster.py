"""The first requests of a connection, and the cluster: ApiVersions, SaslHandshake, SaslAuthenticate, Metadata."""

from __future__ import annotations

from streamgroup.kafka.wire.fields import (
    Struct,
    array,
    boolean,
    byte_string,
    int16,
    int32,
    int64,
    message,
    string,
    uuid,
)
from streamgroup.kafka.wire.primitives import Bytes
from streamgroup.kafka.wire.schema import Message, Request

NO_OPERATIONS = -(2**31)
"""The authorized operations in a response to a request without `include_..._authorized_operations`."""


@message
class ApiVersion(Struct):
    """The lowest and highest version of one API that a broker supports."""

    api_key: int = int16("0+")
    min_version: int = int16("0+")
    max_version: int = int16("0+")


@message
class SupportedFeatureKey(Struct):
    """A feature that a broker supports, with its levels (KIP-584)."""

    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


@message
class FinalizedFeatureKey(Struct):
    """A feature that the cluster has finalized, with its levels (KIP-584)."""

    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


@message
class ApiVersionsResponse(Message, versions="0-4", flexible=3):
    """The API versions of a broker. Its header is never flexible, so that every client can read an error (KIP-511)."""

    error_code: int = int16("0+")
    api_keys: tuple[ApiVersion, ...] = array(ApiVersion, "0+")
    throttle_time_ms: int = int32("1+", ignorable=True)
    supported_features: tuple[SupportedFeatureKey, ...] = array(
        SupportedFeatureKey, "3+", ignorable=True, tag=0, tagged="3+"
    )
    finalized_features_epoch: int = int64("3+", default=-1, ignorable=True, tag=1, tagged="3+")
    finalized_features: tuple[FinalizedFeatureKey, ...] = array(
        FinalizedFeatureKey, "3+", ignorable=True, tag=2, tagged="3+"
    )
    zk_migration_ready: bool = boolean("3+", ignorable=True, tag=3, tagged="3+")


@message
class ApiVersionsRequest(Request[ApiVersionsResponse], api_key=18, versions="0-4", flexible=3):
    """Asks for the API versions that a broker supports. v3 names the client's software (KIP-511)."""

    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)


@message
class SaslHandshakeResponse(Message, versions="0-1"):
    """The response to SaslHandshake: an error code, and all mechanisms that the listener supports."""

    error_code: int = int16("0+")
    mechanisms: tuple[str, ...] = array("string", "0+")


@message
class SaslHandshakeRequest(Request[SaslHandshakeResponse], api_key=17, versions="0-1"):
    """Selects the SASL mechanism.

    After v0, both sides send the mechanism's messages as a length and the bytes, without headers. After v1 they send
    them in SaslAuthenticate.
    """

    mechanism: str = string("0+")


@message
class SaslAuthenticateResponse(Message, versions="0-2", flexible=2):
    """The server's next SASL message. `session_lifetime_ms` is 0 if the session does not end."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    auth_bytes: Bytes = byte_string("0+")
    session_lifetime_ms: int = int64("1+", ignorable=True)


@message
class SaslAuthenticateRequest(Request[SaslAuthenticateResponse], api_key=36, versions="0-2", flexible=2):
    """The client's next SASL message. It may contain a password: no log or error may contain it."""

    auth_bytes: Bytes = byte_string("0+")


@message
class MetadataResponseBroker(Struct):
    """One broker in a Metadata response, with the address that it advertises on the listener of the request."""

    node_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("1+", nullable="1+", default=None, ignorable=True)


@message
class MetadataResponsePartition(Struct):
    """One partition in a Metadata response. `leader_id` is -1 during an election."""

    error_code: int = int16("0+")
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("7+", default=-1, ignorable=True)
    replica_nodes: tuple[int, ...] = array("int32", "0+")
    isr_nodes: tuple[int, ...] = array("int32", "0+")
    offline_replicas: tuple[int, ...] = array("int32", "5+", ignorable=True)


@message
class MetadataResponseTopic(Struct):
    """One topic in a Metadata response.

    `name` is None if the request had a topic id that the broker does not know (v12).
    """

    error_code: int = int16("0+")
    name: str | None = string("0+", nullable="12+")
    topic_id: str = uuid("10+", ignorable=True)
    is_internal: bool = boolean("1+", ignorable=True)
    partitions: tuple[MetadataResponsePartition, ...] = array(MetadataResponsePartition, "0+")
    topic_authorized_operations: int = int32("8+", default=NO_OPERATIONS)


@message
class MetadataResponse(Message, versions="0-13", flexible=9):
    """The response to Metadata: brokers, and leaders of the requested topics."""

    throttle_time_ms: int = int32("3+", ignorable=True)
    brokers: tuple[MetadataResponseBroker, ...] = array(MetadataResponseBroker, "0+")
    cluster_id: str | None = string("2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = int32("1+", default=-1, ignorable=True)
    topics: tuple[MetadataResponseTopic, ...] = array(MetadataResponseTopic, "0+")
    cluster_authorized_operations: int = int32("8-10", default=NO_OPERATIONS)
    error_code: int = int16("13+", ignorable=True)


@message
class MetadataRequestTopic(Struct):
    """One topic in a Metadata request: its name, or (v12) its id with the name None."""

    topic_id: str = uuid("10+", ignorable=True)
    name: str | None = string("0+", nullable="10+")


@message
class MetadataRequest(Request[MetadataResponse], api_key=3, versions="0-13", flexible=9):
    """Requests metadata. `topics` is None for all topics and `()` for none. In v0, `()` means all topics."""

    topics: tuple[MetadataRequestTopic, ...] | None = array(MetadataRequestTopic, "0+", nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")
