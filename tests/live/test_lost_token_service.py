"""A real broker whose token service has stopped: the tokens that it still accepts, and its answer to the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from streamgroup.errors import AuthenticationError
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.options.parse import parse_source
from streamgroup.testing import KafkaServer
from streamgroup.testing.security import tokens
from tests.secured import options_with_token_file, token_of

pytestmark = [pytest.mark.live, pytest.mark.long, pytest.mark.timeout(300), pytest.mark.usefixtures("fresh_process")]

LIFE_S = 600.0
AT_ONCE_S = 30.0
"""Far below the deadline of 60 s (default.api.timeout.ms), and enough for a busy machine."""


@pytest.fixture(scope="module")
def server() -> Iterator[KafkaServer]:
    with KafkaServer(security="SASL_SSL", mechanisms=["OAUTHBEARER"]) as started:
        yield started


@pytest.fixture
def connects(server: KafkaServer, tmp_path: Path) -> Callable[[str], None]:
    """Let a new client connect with a token. Raises the error of the connection."""

    def connect(token: str) -> None:
        file = tmp_path / "token.jwt"
        file.write_text(token)
        options = options_with_token_file(server, "client", file)
        with closing(KafkaCluster(parse_source({"subscribe": "none", **options}, streaming=False).client)) as cluster:
            cluster.snapshot(set(), cluster.deadline())

    return connect


def refusal(connects: Callable[[str], None], token: str) -> str:
    began = time.monotonic()
    with pytest.raises(AuthenticationError) as caught:
        connects(token)
    assert time.monotonic() - began < AT_ONCE_S
    return str(caught.value)


def test_the_broker_does_not_say_that_it_misses_its_token_service(
    server: KafkaServer, connects: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer about a key that it cannot get is its answer about a key that does not exist."""
    known = token_of(server, "client", LIFE_S)
    with monkeypatch.context() as patched:
        patched.setattr(tokens, "KEY_ID", "rotated")
        of_a_new_key = token_of(server, "client", LIFE_S)
    connects(known)
    with_the_service = refusal(connects, of_a_new_key)
    assert "status invalid_token" in with_the_service
    assert server.token_server is not None
    server.token_server.kill()
    connects(known)  # the broker has kept the key
    assert refusal(connects, of_a_new_key) == with_the_service
