from __future__ import annotations

import contextlib
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamgroup.errors import AuthenticationError, ConfigError, StreamGroupError, TransportError
from streamgroup.spark import schema_registry as schema_registry_module
from streamgroup.spark.parsing.framing import SchemaRegistry
from streamgroup.spark.schema_registry import ATTEMPTS, RegisteredSchema, SchemaRegistryClient
from streamgroup.testing import Authority
from streamgroup.testing.ports import LOOPBACK, free_ports
from tests.certificates import ca_text, server_context
from tests.fakes.schema_registry import FakeRegistry, schema_registry
from tests.waiting import wait_until

PASSWORD = "hunter2"


@pytest.fixture
def server() -> Iterator[FakeRegistry]:
    with schema_registry() as registry:
        registry.schemas = {7: {"schema": '"int"'}}
        yield registry


def ask(registry: SchemaRegistry, schema_id: int) -> RegisteredSchema | None:
    """Ask a registry for one schema, without long waits between the attempts."""
    return SchemaRegistryClient(registry, retry_ms=1).schemas([schema_id]).get(schema_id)


def schema(url: str, schema_id: int, password: str | None = None) -> RegisteredSchema | None:
    return ask(SchemaRegistry(url, None if password is None else "etl", password), schema_id)


def test_a_schema_is_found_by_its_id(server: FakeRegistry) -> None:
    server.schemas[8] = {"schema": "x", "schemaType": "PROTOBUF", "references": [{"name": "y"}]}
    assert schema(server.url, 7) == RegisteredSchema('"int"', "AVRO", False)
    assert schema(server.url + "/", 8) == RegisteredSchema("x", "PROTOBUF", True)
    assert schema(server.url, 9) is None


def test_a_driver_without_the_package_is_told_which_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry", None)
    with pytest.raises(ConfigError, match=r"not installed .*pip install 'streamgroup\[registry\]'"):
        SchemaRegistryClient(SchemaRegistry("http://registry:8081"))


def test_the_user_authenticates_and_the_password_may_be_a_reference(
    server: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.user_info = f"etl:{PASSWORD}"
    monkeypatch.setenv("REGISTRY", PASSWORD)
    assert schema(server.url, 7, PASSWORD) is not None
    assert schema(server.url, 7, "env:REGISTRY") is not None
    with pytest.raises(AuthenticationError, match=r"HTTP status 401\. Check the user and the password"):
        schema(server.url, 7, "wrong")


@pytest.mark.parametrize("status", [500, 503, 429, 408])
def test_a_registry_in_trouble_is_asked_again(server: FakeRegistry, status: int) -> None:
    server.statuses = [status] * (ATTEMPTS - 1)
    assert schema(server.url, 7) is not None
    assert server.asked == [7]


def test_a_registry_that_is_down_is_a_transport_error_and_no_unknown_id(server: FakeRegistry) -> None:
    with pytest.raises(TransportError, match=r"cannot get schema 7 from http://.*: .*refused"):
        schema(f"http://{LOOPBACK}:{free_ports(1)[0]}", 7)
    server.statuses = [503] * 9
    with pytest.raises(TransportError, match="HTTP status 503"):
        schema(server.url, 7)
    assert len(server.statuses) == 9 - ATTEMPTS


@pytest.mark.parametrize("status", [404, 302, 400])
def test_another_server_at_the_address_is_not_taken_for_a_registry(server: FakeRegistry, status: int) -> None:
    server.statuses = [status]
    with pytest.raises(ConfigError, match=f"HTTP status {status}. Check that the URL is a schema registry's"):
        schema(server.url, 7)
    server.schemas = {7: {"schema": 3}}
    with pytest.raises(ConfigError, match="the response has no schema"):
        schema(server.url, 7)


def test_an_answer_that_cannot_be_decompressed_is_a_transport_error(server: FakeRegistry) -> None:
    server.encoding = "gzip"
    with pytest.raises(TransportError, match="cannot get schema 7 from "):
        schema(server.url, 7)


@pytest.mark.parametrize("status", [501, 505])
def test_a_registry_that_cannot_ever_answer_fails_the_batch_at_once(server: FakeRegistry, status: int) -> None:
    server.statuses = [status] * 9
    with pytest.raises(TransportError, match=f"HTTP status {status}"):
        schema(server.url, 7)
    assert len(server.statuses) == 8


def test_no_error_and_no_repr_shows_the_password(server: FakeRegistry) -> None:
    registry = SchemaRegistry(server.url, "etl", PASSWORD)
    assert PASSWORD not in repr(registry)
    assert "etl" in repr(registry)
    for statuses in ([401], [503] * 9, [404], [302]):
        server.statuses = statuses
        with pytest.raises(StreamGroupError) as raised:
            schema(server.url, 7, PASSWORD)
        assert PASSWORD not in str(raised.value)


def test_a_missing_file_of_authorities_is_named() -> None:
    registry = SchemaRegistry("https://127.0.0.1:1", ca="/absent.pem")
    with pytest.raises(ConfigError, match=r"file /absent.pem: No such file"):
        ask(registry, 7)


def test_a_registry_with_tls_is_trusted_by_its_authority_alone(tmp_path: Path) -> None:
    authority, other = Authority.create(), Authority.create("another authority")
    for name, one in (("ca", authority), ("other", other)):
        (tmp_path / f"{name}.pem").write_text(ca_text(one))
    with schema_registry(server_context(authority.issue(), tmp_path)) as server:
        server.schemas = {7: {"schema": '"int"'}}
        trusting = SchemaRegistry(server.url, ca=str(tmp_path / "ca.pem"))
        assert ask(trusting, 7) is not None
        for ca in (None, str(tmp_path / "other.pem")):
            with pytest.raises(AuthenticationError, match="its certificate is not trusted"):
                ask(SchemaRegistry(server.url, ca=ca), 7)
    elsewhere = server_context(authority.issue("elsewhere", ["elsewhere"]), tmp_path)
    with (
        schema_registry(elsewhere) as server,
        pytest.raises(AuthenticationError, match="correct the host name in its URL"),
    ):
        ask(SchemaRegistry(server.url, ca=str(tmp_path / "ca.pem")), 7)


def test_an_answer_that_comes_byte_by_byte_is_given_up_and_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry_module, "SCHEMA_TIMEOUT_S", 0.5)
    ended = threading.Event()

    def drip(listener: socket.socket) -> None:
        accepted, _ = listener.accept()
        with accepted, contextlib.suppress(OSError):
            accepted.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while True:
                accepted.sendall(b" ")
                time.sleep(0.02)
        ended.set()

    with socket.create_server((LOOPBACK, 0)) as listener:
        threading.Thread(target=drip, args=(listener,), daemon=True).start()
        with pytest.raises(TransportError, match=r"cannot get schema 7 from .*: no complete response within 0\.5 s"):
            schema(f"http://{LOOPBACK}:{listener.getsockname()[1]}", 7)
        assert ended.wait(30), "the client has closed the connection"
    wait_until(lambda: "streamgroup-background" not in {t.name for t in threading.enumerate()}, "the thread has ended")


def test_a_private_authority_is_not_checked_more_strictly_than_that_of_a_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca.pem").write_text(ca_text(Authority.create()))
    default = ssl.create_default_context

    def of_python_3_13(*arguments: Any, **named: Any) -> ssl.SSLContext:
        context = default(*arguments, **named)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", of_python_3_13)
    registry = SchemaRegistry("https://127.0.0.1:1", ca=str(tmp_path / "ca.pem"))
    client: Any = SchemaRegistryClient(registry)._connected()
    assert not client._rest_client.verify.verify_flags & ssl.VERIFY_X509_STRICT
