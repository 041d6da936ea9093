"""Reads the configurations of topics and brokers.

All are functions of a `KafkaCluster`. They retry until `deadline`, in seconds on the cluster's clock.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from streamgroup.advice import RESOURCES, Operation, Requester, refusal
from streamgroup.errors import BrokerError, error_of
from streamgroup.kafka.cluster.kafka import ANY, KafkaCluster, Node
from streamgroup.kafka.wire.messages.topics import (
    BROKER,
    TOPIC,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from streamgroup.text import MOST_NAMED, first_of

_WITH_SOURCE = 1
"""The first version of DescribeConfigs that names the source of a value."""
_SET_ON_TOPIC = 1
"""That source: the topic's own configuration."""
_NOUNS = {TOPIC: "topic", BROKER: "broker"}


class TopicConfig(NamedTuple):
    """The value of one configuration of a topic. If not `is_own`, it is the brokers' value, which the topic uses."""

    value: str
    is_own: bool


def topic_configs(cluster: KafkaCluster, topics: Collection[str], deadline: float) -> dict[str, dict[str, TopicConfig]]:
    """Return the configurations of each topic, by topic and configuration name. Secret values are omitted.

    Raises AuthorizationError, BrokerError, and UnsupportedVersionError before Kafka 0.11.
    """
    resources = [
        DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=None)
        for name in sorted(topics)
    ]
    version, results = _described(cluster, resources, ANY, deadline)
    return {each.resource_name: _configs(each, version) for each in results}


def broker_config(cluster: KafkaCluster, node: int, name: str, deadline: float) -> str | None:
    """Return the value of configuration `name` of broker `node`; None if it is not set or secret.

    Raises as `topic_configs`.
    """
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name=str(node), configuration_keys=(name,))
    _, results = _described(cluster, [resource], node, deadline)
    return next((config.value for each in results for config in each.configs if config.name == name), None)


def _described(
    cluster: KafkaCluster, resources: Sequence[DescribeConfigsResource], node: Node, deadline: float
) -> tuple[int, Sequence[DescribeConfigsResult]]:
    """Return the version and the results of DescribeConfigs, none of which has an error."""
    request = DescribeConfigsRequest(resources=tuple(resources))
    retry = cluster.retry("DescribeConfigs", deadline)
    while True:
        version, response = cluster.call_versioned(DescribeConfigsRequest, lambda _: request, node, deadline)
        waiting = [each for each in response.results if each.error_code]
        if not waiting:
            return version, response.results
        retry.again(first_of([_unknown_yet(each, cluster.requester) for each in waiting], MOST_NAMED, "cause"))


def _configs(result: DescribeConfigsResult, version: int) -> dict[str, TopicConfig]:
    return {
        each.name: TopicConfig(
            each.value, each.config_source == _SET_ON_TOPIC if version >= _WITH_SOURCE else not each.is_default
        )
        for each in result.configs
        if each.value is not None
    }


def _unknown_yet(result: DescribeConfigsResult, requester: Requester) -> str:
    """Return why the request must be repeated: a broker learns of a new topic some time after the controller."""
    error = error_of(result.error_code)
    noun = _NOUNS.get(result.resource_type, "resource")
    reason = f"cannot describe the configuration of {noun} {result.resource_name!r}"
    if result.error_code in RESOURCES:
        raise refusal(result.error_code, reason, Operation.DESCRIBE_CONFIGS, result.resource_name, requester)
    if not error.retriable:
        raise BrokerError(error, reason + (f" ({result.error_message})" if result.error_message else ""))
    return f"{result.resource_name!r}: {error.name}"
