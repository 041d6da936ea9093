"""Our declarations against Kafka's own, which lie in the kafka-clients jars: every field of every version.

4.0 has dropped versions that only brokers before 2.1 need; 3.9.1 still defines them.
"""

from __future__ import annotations

import functools
import json
import re
import zipfile
from dataclasses import dataclass
from typing import Any

import pytest

from streamgroup.kafka.wire import consumer
from streamgroup.kafka.wire.fields import FieldSpec, Struct, Versions, specs_of
from streamgroup.kafka.wire.schema import Message, Request
from streamgroup.testing import jars
from streamgroup.testing.releases import NEWEST
from streamgroup.testing.security import admin as of_secured_servers
from tests.bring_jars import CLIENTS
from tests.unit.kafka.wire.declared import MESSAGES, messages_of

pytestmark = pytest.mark.live

NEWEST_FIRST = (NEWEST, CLIENTS, "3.9.1")
NAMED_OTHERWISE = {
    consumer.ConsumerSubscription: "ConsumerProtocolSubscription",
    consumer.ConsumerAssignment: "ConsumerProtocolAssignment",
}
STRUCTS_NAMED_OTHERWISE = {
    ("FetchResponse", "EpochEndOffset"): "DivergingEpoch",
    ("FindCoordinatorResponse", "Coordinator"): "FoundCoordinator",
    ("ConsumerProtocolSubscription", "TopicPartition"): "TopicPartitions",
    ("ConsumerProtocolAssignment", "TopicPartition"): "TopicPartitions",
    ("ConsumerGroupHeartbeatRequest", "TopicPartitions"): "HeartbeatTopicPartitions",
    ("ConsumerGroupHeartbeatResponse", "TopicPartitions"): "HeartbeatTopicPartitions",
    ("ConsumerGroupHeartbeatResponse", "Assignment"): "HeartbeatAssignment",
    ("ConsumerGroupDescribeResponse", "DescribedGroup"): "DescribedConsumerGroup",
    ("ConsumerGroupDescribeResponse", "Member"): "ConsumerGroupMember",
    ("ConsumerGroupDescribeResponse", "Assignment"): "ConsumerGroupAssignment",
    ("ConsumerGroupDescribeResponse", "TopicPartitions"): "ConsumerGroupTopicPartitions",
    ("DescribeProducersRequest", "TopicRequest"): "DescribeProducersTopic",
    ("DescribeProducersResponse", "TopicResponse"): "DescribeProducersTopicResponse",
    ("DescribeProducersResponse", "PartitionResponse"): "DescribeProducersPartitionResponse",
    ("DescribeProducersResponse", "ProducerState"): "DescribedProducer",
    ("DescribeTransactionsResponse", "TransactionState"): "DescribedTransaction",
    ("DescribeTransactionsResponse", "TopicData"): "TransactionTopic",
    ("ListTransactionsResponse", "TransactionState"): "ListedTransaction",
}
WITH_TOPIC_IDS = ("OffsetCommitRequest", "OffsetFetchRequest")
"""Their newest version, v10, is stable since 4.2. This client names topics, as v9 and before do."""
ZEROS = {"bool": False, "string": "", "bytes": b"", "records": None, "uuid": ""}
EVERY_MESSAGE = pytest.mark.parametrize(
    "cls", [*MESSAGES, *messages_of(of_secured_servers)], ids=lambda cls: cls.__name__
)


@dataclass(frozen=True)
class Layout:
    """One field in one version."""

    name: str
    type: str
    nullable: bool
    tag: int | None
    default: Any
    fields: tuple[Layout, ...]


@functools.cache
def definitions(release: str) -> dict[str, Any]:
    (jar,) = (j for j in jars.resolve("org.apache.kafka", "kafka-clients", release) if j.name.startswith("kafka-"))
    with zipfile.ZipFile(jar) as archive:
        names = [n for n in archive.namelist() if re.fullmatch(r"common/message/\w+\.json", n)]
        texts = [re.sub(r"^\s*//.*$", "", archive.read(n).decode(), flags=re.MULTILINE) for n in names]
    return {definition["name"]: definition for definition in map(json.loads, texts)}


def definition(cls: type[Message], release: str) -> Any:
    return definitions(release)[NAMED_OTHERWISE.get(cls, cls.__name__)]


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def their_layout(message: Any, fields: Any, version: int) -> tuple[Layout, ...]:
    return tuple(their_field(message, f, version) for f in fields if version in Versions.parse(f["versions"]))


def common_structs(message: Any) -> dict[str, Any]:
    return {struct["name"]: struct["fields"] for struct in message.get("commonStructs", ())}


def their_field(message: Any, field: Any, version: int) -> Layout:
    assert "flexibleVersions" not in field
    item = field["type"].removeprefix("[]")
    inner = field.get("fields") or common_structs(message).get(item, ())
    fields = their_layout(message, inner, version)
    nullable = Versions.parse(field.get("nullableVersions", "none"))
    return Layout(
        name=snake_case(field["name"]),
        type=field["type"].replace(item, STRUCTS_NAMED_OTHERWISE.get((message["name"], item), item)),
        nullable=version in nullable,
        tag=field["tag"] if version in Versions.parse(field.get("taggedVersions", "none")) else None,
        default=their_default(field, fields),
        fields=fields,
    )


def their_default(field: Any, fields: tuple[Layout, ...]) -> Any:
    text = field.get("default")
    if text == "null":
        return None
    if field["type"].startswith("[]"):
        assert text is None
        return ()
    if text is None:
        return {f.name: f.default for f in fields} or ZEROS.get(field["type"], 0)
    if field["type"] == "bool":
        return text in ("true", True)
    return text if field["type"] == "string" else int(str(text), 0)


def our_layout(cls: type[Struct], version: int) -> tuple[Layout, ...]:
    return tuple(our_field(spec, version) for spec in specs_of(cls) if version in spec.versions)


def our_field(spec: FieldSpec, version: int) -> Layout:
    fields = () if isinstance(spec.type, str) else our_layout(spec.type, version)
    name = spec.type if isinstance(spec.type, str) else spec.type.__name__
    default = spec.default
    if isinstance(default, Struct):
        default = {f.name: getattr(default, f.name) for f in fields}
    return Layout(
        name=spec.name,
        type="[]" + name if spec.is_array else name,
        nullable=version in spec.nullable,
        tag=spec.tag if version in spec.tagged else None,
        default=default,
        fields=fields,
    )


@EVERY_MESSAGE
def test_every_version_of_the_jars_is_declared(cls: type[Message]) -> None:
    theirs = [Versions.parse(definition(cls, release)["validVersions"]) for release in NEWEST_FIRST]
    assert Versions(min(t.first for t in theirs), max(t.last for t in theirs)) == cls.SCHEMA
    for release in NEWEST_FIRST:
        flexible = Versions.parse(definition(cls, release)["flexibleVersions"])
        assert [cls.is_flexible(v) for v in range(20)] == [v in flexible for v in range(20)]


@EVERY_MESSAGE
def test_versions_that_are_unstable_or_have_topic_ids_instead_of_names_are_not_used(cls: type[Message]) -> None:
    request = definition(cls, NEWEST) if not cls.__name__.endswith("Response") else request_of(cls)
    unused = bool(request.get("latestVersionUnstable", False)) or request["name"] in WITH_TOPIC_IDS
    assert (cls.SCHEMA.first, cls.SCHEMA.last - unused) == cls.VERSIONS


def request_of(cls: type[Message]) -> Any:
    return definitions(NEWEST)[cls.__name__.removesuffix("Response") + "Request"]


@EVERY_MESSAGE
def test_every_field_of_every_version_is_kafkas(cls: type[Message]) -> None:
    for release in NEWEST_FIRST:
        theirs = definition(cls, release)
        valid = Versions.parse(theirs["validVersions"])
        for version in range(valid.first, valid.last + 1):
            assert our_layout(cls, version) == their_layout(theirs, theirs["fields"], version), (release, version)


_MORE_IGNORABLE = {"ListOffsetsRequest": {"isolation_level": True}}
"""Brokers before 0.11 have no transactions: what is committed is then all there is."""


@EVERY_MESSAGE
def test_the_same_fields_are_ignorable(cls: type[Message]) -> None:
    theirs: dict[str, bool] = {}
    for release in reversed(NEWEST_FIRST):  # what the newest says of a field counts
        message = definition(cls, release)
        theirs |= their_ignorables(message, message["fields"])
    assert our_ignorables(cls) == theirs | _MORE_IGNORABLE.get(cls.__name__, {})


def their_ignorables(message: Any, fields: Any, above: str = "") -> dict[str, bool]:
    found = {}
    common = common_structs(message)
    for field in fields:
        path = above + snake_case(field["name"])
        found[path] = bool(field.get("ignorable", False))
        inner = field.get("fields") or common.get(field["type"].removeprefix("[]"), ())
        found |= their_ignorables(message, inner, path + ".")
    return found


def our_ignorables(cls: type[Struct], above: str = "") -> dict[str, bool]:
    found = {}
    for spec in specs_of(cls):
        found[above + spec.name] = spec.ignorable
        if not isinstance(spec.type, str):
            found |= our_ignorables(spec.type, above + spec.name + ".")
    return found


@EVERY_MESSAGE
def test_no_field_is_declared_that_no_version_has(cls: type[Message]) -> None:
    def check(struct: type[Struct], versions: set[int]) -> None:
        for spec in specs_of(struct):
            present = {v for v in versions if v in spec.versions}
            assert present, (struct.__name__, spec.name)
            assert spec.tag is None or any(v in spec.tagged for v in present), (struct.__name__, spec.name)
            if not isinstance(spec.type, str):
                check(spec.type, present)

    check(cls, set(range(cls.SCHEMA.first, cls.SCHEMA.last + 1)))


@EVERY_MESSAGE
def test_api_keys_are_kafkas(cls: type[Message]) -> None:
    if issubclass(cls, Request):
        assert {definition(cls, release)["apiKey"] for release in NEWEST_FIRST} == {cls.API_KEY}
