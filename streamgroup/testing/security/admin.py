"""Credentials and ACLs of a cluster in ZooKeeper mode: nodes that the brokers read, as Kafka's own tools write them."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from kazoo.client import KazooClient

from streamgroup.errors import ErrorCode, StreamGroupError
from streamgroup.kafka.wire.fields import Struct, array, byte_string, int8, int16, int32, message, string
from streamgroup.kafka.wire.frames import decode_response, encode_request
from streamgroup.kafka.wire.primitives import Bytes
from streamgroup.kafka.wire.schema import Message, Request
from streamgroup.testing.ports import LOOPBACK, receive_exactly
from streamgroup.testing.security.acls import Acl
from streamgroup.testing.security.scram import ScramCredential
from streamgroup.testing.security.settings import SaslMechanism
from streamgroup.testing.zookeeper_mode import node_data, zookeeper_client

_TIMEOUT_S = 60.0
_ZOOKEEPER_POLL_S = 0.05
_CHANGES = "/kafka-acl-changes"
_PROCESSING = f"Processing notification(s) to {_CHANGES}".encode()


def store_scram_in_zookeeper(connect: str, credentials: Collection[ScramCredential]) -> None:
    """Write the credentials before any broker starts: brokers read them at their start (`ScramCredentialProvider`)."""
    users: dict[str, dict[str, str]] = {}
    for each in credentials:
        users.setdefault(each.user, {})[each.mechanism] = each.text()
    with zookeeper_client(connect) as client:
        for user, config in users.items():
            _put(client, f"/config/users/{user}", {"version": 1, "config": config})


def create_acl_in_zookeeper(connect: str, acl: Acl, logs: Sequence[Path]) -> None:
    """Add an ACL, and wait until the brokers with these `logs` decide by it. Raises StreamGroupError."""
    path = f"/kafka-acl/{acl.resource_type.title}/{acl.name}"
    with zookeeper_client(connect) as client:
        known = json.loads(node_data(client, path) or b'{"acls": []}')["acls"]
        _put(client, path, {"version": 1, "acls": [*known, _entry(acl)]})
        # A broker logs that it begins to process a notification. It processes them one after the other, so it has
        # taken the first one when it begins with the second.
        for _ in range(2):
            seen = [_processed(log) for log in logs]
            change = f"{acl.resource_type.title}:{acl.name}".encode()
            client.create(f"{_CHANGES}/acl_changes_", change, sequence=True, makepath=True)
            for log, before in zip(logs, seen, strict=True):
                _await_more(log, before, acl)


def _entry(acl: Acl) -> dict[str, str]:
    return {
        "principal": acl.principal,
        "permissionType": "Allow" if acl.allow else "Deny",
        "operation": acl.operation.title,
        "host": "*",
    }


def _processed(log: Path) -> int:
    return log.read_bytes().count(_PROCESSING)


def _await_more(log: Path, before: int, acl: Acl) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while _processed(log) <= before:
        if time.monotonic() >= deadline:
            raise StreamGroupError(f"a broker did not take {acl} within {_TIMEOUT_S:.0f} s. Look at its log, {log}")
        time.sleep(_ZOOKEEPER_POLL_S)


def _put(client: KazooClient, path: str, value: Mapping[str, object]) -> None:
    client.ensure_path(path)
    client.set(path, json.dumps(value, separators=(",", ":")).encode())


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
            f"cannot send {request.NAME} to the broker at {LOOPBACK}:{port}: {error}. Look at its log"
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
                    f"the broker at {LOOPBACK}:{port} does not have {what} after {_TIMEOUT_S:.0f} s. Look at its log"
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
