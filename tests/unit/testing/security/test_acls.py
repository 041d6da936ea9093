from __future__ import annotations

from typing import Any

import pytest

from streamgroup.errors import ConfigError
from streamgroup.testing.releases import release_of
from streamgroup.testing.security.acls import Acl, AclOperation, ResourceType, acl_of, check_release


def test_an_acl_is_about_one_resource() -> None:
    found = acl_of("User:a", "describe", group="g", allow=False)
    assert found == Acl("User:a", AclOperation.DESCRIBE, ResourceType.GROUP, "g", allow=False)
    assert acl_of("User:a", "CREATE", cluster=True).name == "kafka-cluster"
    assert str(found) == "the ACL DENY DESCRIBE on GROUP g for User:a"


@pytest.mark.parametrize("resource", [{}, {"topic": "t", "group": "g"}, {"topic": "t", "cluster": True}])
def test_an_acl_about_none_or_several_resources_is_refused(resource: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="expected one of topic, group, transactional_id and cluster"):
        acl_of("User:a", "READ", **resource)


def test_an_unknown_operation_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="invalid operation 'PRODUCE' of an ACL: expected ALL, READ, WRITE"):
        acl_of("User:a", "PRODUCE", topic="t")


@pytest.mark.parametrize(
    ("version", "operation", "resource", "reason"),
    [
        ("1.1.1", "READ", {"topic": "t", "prefixed": True}, "names that begin with 't' to Kafka 1.1.1: .* since 2.0"),
        ("0.10.2.2", "IDEMPOTENT_WRITE", {"cluster": True}, "IDEMPOTENT_WRITE of a CLUSTER .* since 0.11"),
        ("0.9.0.1", "WRITE", {"transactional_id": "x"}, "TRANSACTIONAL_ID .* since 0.11"),
    ],
)
def test_brokers_get_no_acl_that_they_do_not_know(
    version: str, operation: str, resource: dict[str, Any], reason: str
) -> None:
    acl = acl_of("User:a", operation, **resource)
    check_release(acl, release_of("4.1.1"))
    with pytest.raises(ConfigError, match=reason):
        check_release(acl, release_of(version))
