"""The requests for SCRAM credentials and ACLs, of which the clients of this package need none."""

from __future__ import annotations

from streamgroup.wire.fields import Struct, array, byte_string, int8, int16, int32, message, string
from streamgroup.wire.primitives import Bytes
from streamgroup.wire.schema import Message, Request


@message
class ScramCredentialUpsertion(Struct):
    """A credential to insert or replace. `mechanism` is 1 for SHA-256, 2 for SHA-512."""

    name: str = string("0+")
    mechanism: int = int8("0+")
    iterations: int = int32("0+")
    salt: Bytes = byte_string("0+")
    salted_password: Bytes = byte_string("0+")


@message
class ScramCredentialDeletion(Struct):
    """A credential to remove."""

    name: str = string("0+")
    mechanism: int = int8("0+")


@message
class AlterUserScramCredentialsResult(Struct):
    """The result for one user."""

    user: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


@message
class AlterUserScramCredentialsResponse(Message, versions="0", flexible=0):
    """One result per user."""

    throttle_time_ms: int = int32("0+")
    results: tuple[AlterUserScramCredentialsResult, ...] = array(AlterUserScramCredentialsResult, "0+")


@message
class AlterUserScramCredentialsRequest(
    Request[AlterUserScramCredentialsResponse], api_key=51, versions="0", flexible=0
):
    """KIP-554; brokers forward it to the controller."""

    deletions: tuple[ScramCredentialDeletion, ...] = array(ScramCredentialDeletion, "0+")
    upsertions: tuple[ScramCredentialUpsertion, ...] = array(ScramCredentialUpsertion, "0+")


@message
class CredentialInfo(Struct):
    """A mechanism of a user."""

    mechanism: int = int8("0+")
    iterations: int = int32("0+")


@message
class DescribeUserScramCredentialsResult(Struct):
    """The mechanisms of one user."""

    user: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    credential_infos: tuple[CredentialInfo, ...] = array(CredentialInfo, "0+")


@message
class DescribeUserScramCredentialsResponse(Message, versions="0", flexible=0):
    """The users that the answering broker knows."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    results: tuple[DescribeUserScramCredentialsResult, ...] = array(DescribeUserScramCredentialsResult, "0+")


@message
class UserName(Struct):
    """A user to describe."""

    name: str = string("0+")


@message
class DescribeUserScramCredentialsRequest(
    Request[DescribeUserScramCredentialsResponse], api_key=50, versions="0", flexible=0
):
    """KIP-554. Without users the response has all."""

    users: tuple[UserName, ...] | None = array(UserName, "0+", nullable="0+")


@message
class AclCreation(Struct):
    """An ACL to create."""

    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    resource_pattern_type: int = int8("1+", default=3)
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


@message
class AclCreationResult(Struct):
    """The result for one ACL."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


@message
class CreateAclsResponse(Message, versions="0-3", flexible=2):
    """One result per ACL."""

    throttle_time_ms: int = int32("0+")
    results: tuple[AclCreationResult, ...] = array(AclCreationResult, "0+")


@message
class CreateAclsRequest(Request[CreateAclsResponse], api_key=30, versions="0-3", flexible=2):
    """KIP-140; brokers in KRaft mode forward it to the controller."""

    creations: tuple[AclCreation, ...] = array(AclCreation, "0+")


@message
class AclDescription(Struct):
    """An ACL of a resource."""

    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


@message
class DescribeAclsResource(Struct):
    """A resource and its ACLs."""

    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    pattern_type: int = int8("1+", default=3)
    acls: tuple[AclDescription, ...] = array(AclDescription, "0+")


@message
class DescribeAclsResponse(Message, versions="0-3", flexible=2):
    """The ACLs by which the answering broker decides."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resources: tuple[DescribeAclsResource, ...] = array(DescribeAclsResource, "0+")


@message
class DescribeAclsRequest(Request[DescribeAclsResponse], api_key=29, versions="0-3", flexible=2):
    """KIP-140: a filter, whose null names match every name."""

    resource_type_filter: int = int8("0+")
    resource_name_filter: str | None = string("0+", nullable="0+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string("0+", nullable="0+")
    host_filter: str | None = string("0+", nullable="0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")
