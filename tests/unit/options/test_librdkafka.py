from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from streamgroup.errors import ConfigError
from streamgroup.options.librdkafka import LIBRDKAFKA_HINTS
from streamgroup.options.parse import parse_source
from streamgroup.options.parse_client import parse_client
from streamgroup.options.parse_sink import parse_sink

SERVERS = {"kafka.bootstrap.servers": "b1:9092"}
READERS: dict[str, Callable[[Mapping[str, str]], object]] = {
    "read": lambda given: parse_source({**SERVERS, "subscribe": "orders", **given}, streaming=False),
    "write": lambda given: parse_sink({**SERVERS, **given}),
    "command": parse_client,
}


@pytest.mark.parametrize("name", LIBRDKAFKA_HINTS)
@pytest.mark.parametrize("reader", READERS)
def test_a_name_of_librdkafka_is_refused_with_the_option_that_java_has(reader: str, name: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown option '{name}': it is librdkafka's name") as caught:
        READERS[reader]({name: "hunter2"})
    assert "'kafka." in str(caught.value).partition("librdkafka's name")[2]
    assert "hunter2" not in str(caught.value)
