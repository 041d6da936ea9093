"""The configurations of topics and brokers, at scripted brokers."""

from __future__ import annotations

import pytest

from streamgroup.errors import AuthorizationError, BrokerError, UnsupportedVersionError
from streamgroup.kafka.cluster.configs import TopicConfig, broker_config, topic_configs
from streamgroup.kafka.wire.messages.topics import (
    BROKER,
    TOPIC,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tests.unit.kafka.cluster.conftest import Make
from tests.waiting import soon

FACTOR = "offsets.topic.replication.factor"


def described(
    *configs: DescribeConfigsResourceResult, code: int = 0, kind: int = BROKER, name: str = "2"
) -> DescribeConfigsResponse:
    result = DescribeConfigsResult(error_code=code, resource_type=kind, resource_name=name, configs=configs)
    return DescribeConfigsResponse(results=(result,))


def test_a_broker_describes_itself(make: Make) -> None:
    brokers = make(2)
    brokers.answer(2, DescribeConfigsRequest, described(DescribeConfigsResourceResult(name=FACTOR, value="3")))
    assert broker_config(brokers.cluster, 2, FACTOR, soon()) == "3"
    (request,) = brokers.brokers[2].asked("DescribeConfigs")
    assert request.resources == (
        DescribeConfigsResource(resource_type=BROKER, resource_name="2", configuration_keys=(FACTOR,)),
    )


@pytest.mark.parametrize("configs", [(), (DescribeConfigsResourceResult(name=FACTOR, value=None),)])
def test_a_configuration_that_a_broker_lacks_or_keeps_secret_has_no_value(
    configs: tuple[DescribeConfigsResourceResult, ...], make: Make
) -> None:
    brokers = make()
    brokers.answer(1, DescribeConfigsRequest, described(*configs))
    assert broker_config(brokers.cluster, 1, FACTOR, soon()) is None


def test_a_refusal_names_the_right_and_its_resource(make: Make) -> None:
    brokers = make()
    brokers.answer(1, DescribeConfigsRequest, described(code=31))
    with pytest.raises(AuthorizationError, match=r"not allowed the operation DescribeConfigs on the cluster\."):
        broker_config(brokers.cluster, 1, FACTOR, soon())


def test_another_error_has_the_name_of_the_resource(make: Make) -> None:
    brokers = make()
    brokers.answer(1, DescribeConfigsRequest, described(code=42))
    with pytest.raises(BrokerError, match="cannot describe the configuration of broker '2'"):
        broker_config(brokers.cluster, 1, FACTOR, soon())


def test_brokers_before_0_11_describe_nothing(make: Make) -> None:
    brokers = make(without={DescribeConfigsRequest})
    with pytest.raises(UnsupportedVersionError, match="DescribeConfigs"):
        broker_config(brokers.cluster, 1, FACTOR, soon())


def test_a_topic_that_a_broker_does_not_know_yet_is_asked_for_again(make: Make) -> None:
    brokers = make()
    own = DescribeConfigsResourceResult(name="retention.ms", value="1", config_source=1)
    default = DescribeConfigsResourceResult(name="flush.ms", value="2", config_source=5)
    secret = DescribeConfigsResourceResult(name="secret", value=None, config_source=1)
    brokers.answer(
        1,
        DescribeConfigsRequest,
        described(code=3, kind=TOPIC, name="t"),
        described(own, default, secret, kind=TOPIC, name="t"),
    )
    found = topic_configs(brokers.cluster, ["t"], soon())
    assert found == {"t": {"retention.ms": TopicConfig("1", True), "flush.ms": TopicConfig("2", False)}}
