"""The client of a schema registry. It asks for schemas by their ids, which never change."""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamgroup.errors import AuthenticationError, ConfigError, TransportError
from streamgroup.net.http_exchange import Advice, Answer, exchange
from streamgroup.options.secrets import Secret
from streamgroup.parsing.registry import SchemaRegistry

TIMEOUT_S = 10.0
"""Seconds that a registry may take to connect, to begin its answer, and to end it."""
BACKOFFS_S = (0.5, 1.0, 2.0, 4.0)
"""Seconds before each further attempt."""
_MOST_BYTES = 16 << 20
_ADVICE = Advice(
    reach="Check that the driver reaches the schema registry",
    trust="Add its authority to those of the parser's registry",
    host_name="Add the host name to the certificate (subjectAltName), or correct the host name in its URL",
)
_NOT_FOUND = 40403
"""The registry's own code for an unknown id. A 404 without it comes from something else at that address."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as the registry keeps it. `kind` is AVRO, PROTOBUF or JSON."""

    text: str
    kind: str
    has_references: bool


class SchemaRegistryClient:
    """Asks one registry. No message has the password."""

    def __init__(self, registry: SchemaRegistry, sleep: Callable[[float], None] = time.sleep) -> None:
        self._registry = registry
        self._sleep = sleep

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        """Return the schema with an id, or None if the registry has none.

        Raises TransportError if the registry does not answer after some attempts, AuthenticationError if it refuses
        the user, ConfigError if the URL is not that of a registry.
        """
        url = f"{self._registry.url.rstrip('/')}/schemas/ids/{schema_id}"
        what = f"cannot get schema {schema_id} from {url}"
        for backoff in BACKOFFS_S:
            try:
                return self._get(url, what)
            except TransportError:
                self._sleep(backoff)
        return self._get(url, what)

    def _get(self, url: str, what: str) -> RegisteredSchema | None:
        request = urllib.request.Request(url, headers={"Accept": "application/vnd.schemaregistry.v1+json, */*"})
        if self._registry.user is not None:
            request.add_unredirected_header("Authorization", f"Basic {self._credentials()}")
        answer = exchange(request, what, _ADVICE, context=self._context, timeout=TIMEOUT_S, most_bytes=_MOST_BYTES)
        if answer.status < 300:
            return _schema_in(answer.body, what)
        _refuse_unless_unknown(answer, what)
        return None

    def _credentials(self) -> str:
        password = Secret(self._registry.password or "").reveal("password of the schema registry")
        return base64.b64encode(f"{self._registry.user}:{password}".encode()).decode()

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        if self._registry.ca is not None:
            try:
                context.load_verify_locations(self._registry.ca)
            except (OSError, ssl.SSLError) as error:
                raise ConfigError(
                    f"cannot read the authorities of the schema registry: file {self._registry.ca}: "
                    f"{error.strerror or error}. Set a PEM file of certificates"
                ) from None
        return context


def _schema_in(body: bytes, what: str) -> RegisteredSchema:
    answer = _json(body)
    if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
        raise ConfigError(f"{what}: the answer has no schema. Check that the URL is a schema registry's")
    return RegisteredSchema(answer["schema"], str(answer.get("schemaType", "AVRO")), bool(answer.get("references")))


def _refuse_unless_unknown(answer: Answer, what: str) -> None:
    """Raise the error of a refusal, unless it is for an unknown id."""
    status, found = answer.status, _json(answer.body)
    if status == 404 and isinstance(found, dict) and found.get("error_code") == _NOT_FOUND:
        return
    said = f"{what}: HTTP status {status}"
    if status in (401, 403):
        raise AuthenticationError(f"{said}. Check the user and the password of the schema registry, and its rights")
    if status in (408, 429) or status >= 500:
        raise TransportError(f"{said}. A retry may succeed")
    raise ConfigError(f"{said}. Check that the URL is a schema registry's")


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
