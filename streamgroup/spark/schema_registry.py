"""A client of a schema registry: it gets schemas by their ids with Confluent's client."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from streamgroup.errors import AuthenticationError, ConfigError, TransportError
from streamgroup.frozen import frozen
from streamgroup.kafka.net.background import Background, WaitTimeout
from streamgroup.options.secrets import Secret
from streamgroup.spark.parsing.framing import SchemaRegistry

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient as ConfluentClient
    from confluent_kafka.schema_registry import SchemaRegistryError

TIMEOUT_S = 10.0
"""Seconds that a registry may take to connect, and to send each part of its answer."""
ATTEMPTS = 5
"""Number of attempts if the registry does not respond, or responds with 408, 429, 500, 502, 503 or 504."""
_RETRY_MS, _LONGEST_RETRY_MS = 1000, 8000
"""The wait before a retry is random: up to the first number, which doubles with each retry until the second one."""
SCHEMA_TIMEOUT_S = 75.0
"""Seconds for one schema, all attempts included. Each part of an answer may take `TIMEOUT_S`, so an answer that comes
byte by byte would hold the batch forever."""
_NOT_FOUND = 40403
"""The registry's own code for an unknown id. A 404 without it comes from something else at that address."""


@frozen
class RegisteredSchema:
    """A schema as stored in the registry. `kind` is AVRO, PROTOBUF or JSON."""

    text: str
    kind: str
    has_references: bool


class SchemaRegistryClient:
    """Gets schemas from one registry. No error message contains the password.

    Raises ConfigError if the package of the extra `registry` is not installed.
    """

    def __init__(self, registry: SchemaRegistry, retry_ms: int = _RETRY_MS) -> None:
        try:
            import confluent_kafka.schema_registry  # noqa: F401, PLC0415 - an extra, and for the driver alone
        except ImportError as error:
            raise ConfigError(
                "cannot read the schema registry: the package confluent-kafka[schemaregistry] is not installed "
                f"({error}). Install it for the Python of the driver: pip install 'streamgroup[registry]'"
            ) from None
        self._registry = registry
        self._retry_ms = retry_ms

    def schemas(self, ids: Iterable[int]) -> dict[int, RegisteredSchema]:
        """Return the schemas that the registry has, by id. Ids without a schema are left out.

        Each call reads the password and the authorities again. Raises TransportError if the registry does not answer
        after some attempts, AuthenticationError if it refuses the user, ConfigError if the URL is not a registry's.
        """
        found = {}
        with self._connected() as client:
            for one in ids:
                schema = self._schema_in_time(client, one)
                if schema is not None:
                    found[one] = schema
        return found

    def _connected(self) -> ConfluentClient:
        from confluent_kafka.schema_registry import SchemaRegistryClient as ConfluentClient  # noqa: PLC0415

        config: dict[str, Any] = {
            "url": self._registry.url,
            "timeout": TIMEOUT_S,
            "max.retries": ATTEMPTS - 1,
            "retries.wait.ms": self._retry_ms,
            "retries.max.wait.ms": _LONGEST_RETRY_MS,
        }
        if self._registry.user is not None:
            password = Secret(self._registry.password or "").reveal("password of the schema registry")
            config["basic.auth.user.info"] = f"{self._registry.user}:{password}"
        ca = self._registry.ca or _authorities_of_system()
        if ca is not None:  # else the client takes those of the package certifi
            config["ssl.ca.location"] = ca
        try:
            client = ConfluentClient(config)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"cannot read the authorities of the schema registry: file {ca}: {error.strerror or error}. "
                "Set a PEM file of certificates"
            ) from None
        context = getattr(getattr(client, "_rest_client", None), "verify", None)
        if isinstance(context, ssl.SSLContext):  # from Python 3.13 on it refuses many private authorities
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return client

    def _schema_in_time(self, client: ConfluentClient, schema_id: int) -> RegisteredSchema | None:
        """Do as `_schema` within `SCHEMA_TIMEOUT_S`. After that the caller closes the client, which ends the thread."""
        timeout = WaitTimeout(f"no complete response within {SCHEMA_TIMEOUT_S:g} s", "Check the schema registry")
        found = Background(lambda: self._schema(client, schema_id), timeout)
        found.wait(SCHEMA_TIMEOUT_S)
        if not found.done:
            raise TransportError(f"{self._action(schema_id)}: {timeout.cause}. {timeout.next_step}")
        return found.result()

    def _action(self, schema_id: int) -> str:
        return f"cannot get schema {schema_id} from {self._registry.url.rstrip('/')}/schemas/ids/{schema_id}"

    def _schema(self, client: ConfluentClient, schema_id: int) -> RegisteredSchema | None:
        import httpx2  # noqa: PLC0415
        from confluent_kafka.schema_registry import SchemaRegistryError  # noqa: PLC0415

        action = self._action(schema_id)
        try:
            schema = client.get_schema(schema_id)
        except SchemaRegistryError as error:
            if error.http_status_code == 404 and error.error_code == _NOT_FOUND:
                return None
            raise _refusal(action, error) from None
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            raise _not_reached(action, error) from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            schema = None  # the client could not read the answer, which another server has sent
        if schema is None or not isinstance(schema.schema_str, str):
            raise ConfigError(f"{action}: the response has no schema. Check that the URL is a schema registry's")
        return RegisteredSchema(schema.schema_str, schema.schema_type or "AVRO", bool(schema.references))


def _authorities_of_system() -> str | None:
    """Return the file or the directory of the authorities that the system trusts."""
    paths = ssl.get_default_verify_paths()
    return paths.cafile or paths.capath


def _refusal(action: str, error: SchemaRegistryError) -> Exception:
    status = error.http_status_code
    said = f"{action}: HTTP status {status}"
    if status in (401, 403):
        return AuthenticationError(
            f"{said}. Check the user and the password of the schema registry, and the user's permissions"
        )
    if status in (408, 429) or status >= 500:
        return TransportError(f"{said}. A retry may succeed")
    return ConfigError(f"{said}. Check that the URL is a schema registry's")


def _not_reached(action: str, error: Exception) -> Exception:
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    if cause is None:
        return TransportError(
            f"{action}: {str(error) or type(error).__name__}. Check that the driver reaches the schema registry"
        )
    reason = cause.verify_message.rstrip(".")
    return AuthenticationError(
        f"{action}: its certificate is not trusted: {reason}. Set the authority that signed it as the registry's ca, "
        "or correct the host name in its URL"
    )
