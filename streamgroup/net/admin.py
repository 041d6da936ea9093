"""What the tools ask of a cluster: groups, their members and committed offsets; and topics to be made.

Functions over a `Cluster`; each with a deadline on its clock, retried until then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from streamgroup.errors import BrokerError, KafkaError, TransportError, error_of
from streamgroup.model import CommittedOffset, TopicPartition
from streamgroup.net.cluster import Cluster
from streamgroup.wire.messages.admin import (
    CreatableTopic,
    CreateTopicsRequest,
    DescribedGroup,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from streamgroup.wire.messages.offsets import OffsetFetchRequest, OffsetFetchResponse

R = TypeVar("R")
