"""All declared messages, and hypothesis strategies that follow from their declarations."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from types import ModuleType
from typing import Any, cast

from hypothesis import strategies as st

from streamgroup.kafka.wire import consumer, messages
from streamgroup.kafka.wire.fields import FieldSpec, Struct, specs_of
from streamgroup.kafka.wire.messages.log import FetchRequest
from streamgroup.kafka.wire.messages.produce import ProduceRequest
from streamgroup.kafka.wire.schema import Message, Request
from streamgroup.kafka.wire.versions import BrokerVersions

MODULES = [importlib.import_module(f"{messages.__name__}.{m.name}") for m in pkgutil.iter_modules(messages.__path__)]


def messages_of(module: ModuleType) -> list[type[Message]]:
    """The messages that `module` declares."""
    values = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Message)]
    return [value for value in values if value.__module__ == module.__name__]


MESSAGES = [message for module in [*MODULES, consumer] for message in messages_of(module)]
REQUESTS: list[type[Request[Any]]] = [cls for cls in MESSAGES if issubclass(cls, Request)]
VERSIONS_OF = {cls: range(cls.SCHEMA.first, cls.SCHEMA.last + 1) for cls in MESSAGES}

_WIDTHS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def lowest(cls: type[Request[Any]], versions: BrokerVersions) -> int:
    """The lowest common version. Brokers of 4.x announce Produce v0 to v2 and refuse them (KAFKA-18659)."""
    announced = max(cls.SCHEMA.first, versions.ranges[cls.API_KEY][0])
    refuses_old_formats = versions.ranges[FetchRequest.API_KEY][0] > 0
    return 3 if cls is ProduceRequest and refuses_old_formats else announced


def instances(cls: type[Struct], version: int) -> st.SearchStrategy[Any]:
    """Messages or structs that `version` can carry: what it lacks has its default."""
    return _instances(cast(Any, cls), version)


@functools.cache
def _instances(cls: type[Any], version: int) -> st.SearchStrategy[Any]:
    present = [s for s in specs_of(cls) if version in s.versions]
    return st.builds(cls, **{s.name: _field(s, version) for s in present})


def _field(spec: FieldSpec, version: int) -> st.SearchStrategy[Any]:
    values = _item(spec.type, version)
    if spec.is_array:
        values = st.lists(values, max_size=2).map(tuple)
    if version in spec.nullable:
        values = st.none() | values
    return st.just(spec.default) | values if version in spec.tagged else values


def _item(type_: str | type[Struct], version: int) -> st.SearchStrategy[Any]:
    if not isinstance(type_, str):
        return instances(type_, version)
    if type_ in _WIDTHS:
        bound = 2 ** (_WIDTHS[type_] - 1)
        return st.integers(-bound, bound - 1)
    return {
        "bool": st.booleans(),
        "string": st.text(max_size=5),
        "bytes": st.binary(max_size=5),
        "records": st.binary(max_size=5),
        "uuid": st.just("") | st.uuids().map(str),
    }[type_]
