"""Certificates and tokens that change under running queries: coordinators and tasks, without Spark."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from streamgroup.testing import Authority, KafkaServer, write_pem
from tests.conftest import MakeTopic
from tests.fault.harness import Stream, Streams, Writer, check_everything, goes_on
from tests.secured import options_with_token_file, replace_file, token_of, use_certificate
from tests.waiting import TIMEOUT_S, repeatedly, wait_until

pytestmark = [pytest.mark.live, pytest.mark.long, pytest.mark.timeout(300), pytest.mark.usefixtures("fresh_process")]

PARTITIONS = 4
IN_FLIGHT = 200
"""Rows of a batch at most (maxOffsetsPerTrigger): a query may repeat the one in flight."""
LIFE_S = 8.0
"""The life of a token. A session with a broker lives half as long."""
CERTIFICATE_LIFE_S = 20.0


@pytest.fixture
def server() -> Iterator[KafkaServer]:
    """A broker with client certificates. Cutting its proxy makes all clients connect anew."""
    with KafkaServer(security="SSL", mutual_tls=True, proxied=True) as started:
        yield started


@contextmanager
def two_queries(
    server: KafkaServer, make_topic: MakeTopic, options: Mapping[str, str] | None = None
) -> Iterator[list[Stream]]:
    """Two queries of one group, under load. In the end all is in their sinks, and at most the batch in flight twice."""
    topic = make_topic(server, PARTITIONS)
    streams, writer = Streams(server, topic, f"rotation-{topic}"), Writer(server, topic, PARTITIONS)
    with streams.running("a", "b", **(options or server.client_options)) as queries:
        with writer.writing():
            goes_on(queries)
            yield queries
        check_everything(streams, writer, queries, repeats=len(queries) * IN_FLIGHT)


def connect_anew(server: KafkaServer, queries: list[Stream]) -> None:
    """Reset all connections. Both queries read on over new ones."""
    before = server.proxies[0].accepted
    server.proxies[0].cut()
    goes_on(queries, 50)
    assert server.proxies[0].accepted > before


def test_queries_go_on_with_new_certificates_of_the_broker(server: KafkaServer, make_topic: MakeTopic) -> None:
    with two_queries(server, make_topic) as queries:
        for _ in range(3):
            use_certificate(server, server.security.authority.issue())
            connect_anew(server, queries)


def test_queries_go_on_with_a_new_authority_in_the_trust_store(server: KafkaServer, make_topic: MakeTopic) -> None:
    """Both authorities are trusted until the broker has its certificate from the new one."""
    trusted = server.security.files.ca
    old, new = server.security.authority.certificate_pem(), Authority.create("the next authority")
    with two_queries(server, make_topic) as queries:
        replace_file(trusted, lambda file: file.write_bytes(old + new.certificate_pem()))
        connect_anew(server, queries)
        use_certificate(server, new.issue())
        connect_anew(server, queries)
        replace_file(trusted, lambda file: file.write_bytes(new.certificate_pem()))
        connect_anew(server, queries)


def test_queries_go_on_with_a_new_client_certificate_when_the_old_one_has_expired(
    server: KafkaServer, make_topic: MakeTopic
) -> None:
    authority, own = server.security.authority, server.security.files.pem("client")
    end = datetime.now(UTC) + timedelta(seconds=CERTIFICATE_LIFE_S)
    write_pem(own, authority.issue("client", (), until=end))
    with two_queries(server, make_topic) as queries:
        replace_file(own, lambda file: write_pem(file, authority.issue("client", ())))
        wait_until(lambda: datetime.now(UTC) > end, "the first certificate has expired", 2 * CERTIFICATE_LIFE_S)
        connect_anew(server, queries)


@pytest.mark.parametrize("whose", ["client", "broker"])
def test_an_expired_certificate_ends_the_query_and_it_goes_on_with_a_new_one(
    server: KafkaServer, make_topic: MakeTopic, whose: str, caplog: pytest.LogCaptureFixture
) -> None:
    authority, own = server.security.authority, server.security.files.pem("client")
    end = datetime.now(UTC) + timedelta(seconds=CERTIFICATE_LIFE_S)
    if whose == "client":
        write_pem(own, authority.issue("client", (), until=end))
    topic = make_topic(server, PARTITIONS)
    streams, writer = Streams(server, topic, f"expired-{topic}"), Writer(server, topic, PARTITIONS)
    query = streams.query("a", **server.client_options)
    with writer.writing():
        with query:
            goes_on([query])
            if whose == "broker":
                use_certificate(server, authority.issue(expired=True))
            else:
                wait_until(lambda: datetime.now(UTC) > end, "the certificate has expired", 2 * CERTIFICATE_LIFE_S)
                goes_on([query])  # what is connected stays so
            server.proxies[0].cut()
            wait_until(lambda: query.error is not None, "the query ends")
        said = str(query.error)
        if whose == "client":
            assert "the broker refuses the client certificate" in said
            write_pem(own, authority.issue("client", ()))
        else:
            assert re.search("the broker's certificate .* is not valid any more", said)
            use_certificate(server, authority.issue())
        with query:
            goes_on([query])
    # The error may come in a batch, and while the commit of the one before is under way. The log says how much is read
    # again.
    repeats = sum(map(int, re.findall(r"event=repeat .*? count=([0-9]+)", caplog.text)))
    assert repeats <= 2 * IN_FLIGHT
    with query:
        check_everything(streams, writer, [query], repeats=repeats)


TOKENS: list[Callable[[], str]] = []
"""The source of tokens of the test that runs."""
GIVEN: list[float] = []
"""When `a_token` was asked."""


def a_token() -> str:
    """Return a token of short life, as a function that a user names does."""
    GIVEN.append(time.monotonic())
    return TOKENS[-1]()


@pytest.mark.parametrize("source", ["file", "function"])
def test_queries_outlive_tokens_and_sessions_of_seconds(source: str, make_topic: MakeTopic, tmp_path: Path) -> None:
    config = {"connections.max.reauth.ms": int(LIFE_S * 500)}
    with KafkaServer(security="SASL_SSL", mechanisms=["OAUTHBEARER"], config=config) as server:

        def token() -> str:
            return token_of(server, "client", LIFE_S)

        file = tmp_path / "token.jwt"
        options = options_with_token_file(server, "client", file)
        if source == "function":
            del options["kafka.sasl.oauthbearer.token.endpoint.url"]
            options["sasl.tokenProvider"] = f"{__name__}:{a_token.__name__}"
        TOKENS.append(token)
        GIVEN.clear()

        def renew() -> None:
            replace_file(file, lambda new: new.write_text(token()))

        renew()
        began = time.monotonic()
        with repeatedly(renew, LIFE_S / 8), two_queries(server, make_topic, options) as queries:
            while time.monotonic() - began < 3 * LIFE_S:
                goes_on(queries, 20, TIMEOUT_S)
        if source == "function":
            assert len(GIVEN) >= 3, "a new token in time before the end of each"
