"""Credentials and ACLs of a cluster in KRaft mode, by requests to the brokers' listeners without security."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from streamgroup.errors import ErrorCode, StreamGroupError
from streamgroup.kafka.wire.fields import Struct, array, byte_string, int8, int16, int32, message, string
from streamgroup.kafka.wire.frames import decode_response, encode_request
from streamgroup.kafka.wire.primitives import Bytes
from streamgroup.kafka.wire.schema import Message, Request
from streamgroup.testing.ports import LOOPBACK, receive_exactly
from streamgroup.testing.security.acls import Acl
from streamgroup.testing.security.scram import ScramCredential
from streamgroup.testing.security.settings import SaslMechanism

_TIMEOUT_S = 60.0
_POLL_S = 0.02
_CLIENT_ID = "streamgroup-testing"
_LITERAL, _PREFIXED = 3, 4
_DENY, _ALLOW = 2, 3
_MECHANISMS = {SaslMechanism.SCRAM_SHA_256: 1, SaslMechanism.SCRAM_SHA_512: 2}

R = TypeVar("R", bound=Message)


def store_scram(ports: Sequence[int], credentials: Collection[ScramCredential]) -> None:
    """Store the credentials, and wait until the brokers at all `ports` know them. Raises StreamGroupError."""
    # The controller refuses two credentials of one user in one request, even those of two mechanisms.
    for mechanism, code in _MECHANISMS.items():
        upsertions = tuple(
            ScramCredentialUpsertion(
                name=each.user,
                mechanism=code,
                iterations=each.iterations,
                salt=each.salt,
                salted_password=each.salted_password,
            )
            for each in credentials
            if each.mechanism is mechanism
        )
        for result in call(ports[0], AlterUserScramCredentialsRequest(upsertions=upsertions)).results:
            _require(result.error_code, result.error_message, f"cannot store SCRAM credentials of user {result.user}")
    expected = {(each.user, _MECHANISMS[each.mechanism], each.iterations) for each in credentials}
    _await(ports, lambda port: expected <= _scram_known_to(port), "SCRAM credentials of the users")


def create_acl(ports: Sequence[int], acl: Acl) -> None:
    """Create an ACL, and wait until the brokers at all `ports` decide by it. Raises StreamGroupError."""
    creation = AclCreation(
        resource_type=acl.resource_type.code,
        resource_name=acl.name,
        resource_pattern_type=_PREFIXED if acl.prefixed else _LITERAL,
        principal=acl.principal,
        host="*",
        operation=acl.operation.code,
        permission_type=_ALLOW if acl.allow else _DENY,
    )
    (result,) = call(ports[0], CreateAclsRequest(creations=(creation,))).results
    _require(result.error_code, result.error_message, f"cannot create {acl}")
    _await(ports, lambda port: _has_acl(port, creation), str(acl))


def call(port: int, request: Request[R]) -> R:
    """Return the response of the broker at `port` to a request of the latest version. Raises StreamGroupError."""
    version = request.VERSIONS[1]
    try:
        with socket.create_connection((LOOPBACK, port), _TIMEOUT_S) as connection:
            connection.settimeout(_TIMEOUT_S)
            connection.sendall(encode_request(request, version, 1, _CLIENT_ID))
            (size,) = struct.unpack(">i", receive_exactly(connection, 4))
            return decode_response(type(request), version, receive_exactly(connection, size))[1]
    except OSError as error:
        raise StreamGroupError(
            f"cannot ask the broker at {LOOPBACK}:{port} for {request.NAME}: {error}. Look at its log"
        ) from error


def _scram_known_to(port: int) -> set[tuple[str, int, int]]:
    response = call(port, DescribeUserScramCredentialsRequest(users=None))
    _require(response.error_code, response.error_message, "cannot describe SCRAM credentials")
    return {(user.user, info.mechanism, info.iterations) for user in response.results for info in user.credential_infos}


def _has_acl(port: int, creation: AclCreation) -> bool:
    request = DescribeAclsRequest(
        resource_type_filter=creation.resource_type,
        resource_name_filter=creation.resource_name,
        pattern_type_filter=creation.resource_pattern_type,
        principal_filter=creation.principal,
        host_filter=creation.host,
        operation=creation.operation,
        permission_type=creation.permission_type,
    )
    response = call(port, request)
    _require(response.error_code, response.error_message, "cannot describe ACLs")
    return any(resource.acls for resource in response.resources)


def _require(code: int, message: str | None, failure: str) -> None:
    if code != ErrorCode.NONE:
        raise StreamGroupError(f"{failure}: error {code}, {message}. Look at the log of the controller")


def _await(ports: Sequence[int], has_it: Callable[[int], bool], what: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    for port in ports:
        while not has_it(port):
            if time.monotonic() >= deadline:
                raise StreamGroupError(
                    f"the broker at {LOOPBACK}:{port} does not know {what} after {_TIMEOUT_S:.0f} s. Look at its log"
                )
            time.sleep(_POLL_S)


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
