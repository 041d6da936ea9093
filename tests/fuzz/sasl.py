"""The decoders of what brokers and ZooKeeper send in exchanges of SASL, and of the options for them."""

from __future__ import annotations

from collections.abc import Iterable

from streamgroup.errors import AuthenticationError
from streamgroup.kafka.net.sasl import tokens as tokens_of
from streamgroup.kafka.net.sasl.mechanisms import SCRAM_SHA_256, OAuthBearerMechanism, ScramMechanism
from streamgroup.kafka.net.sasl.tokens import described_end
from streamgroup.options.parse import kafka_properties
from streamgroup.options.sasl import parse_jaas
from streamgroup.zookeeper.client import DigestMd5
from tests.fuzz.decoder import Decoder, Sample
from tests.fuzz.mutations import mutated_text

_STACK = 4 << 20
"""Bytes that the regular expressions take for a long value: some 300 for each character."""
_NONCE = "c1"
_SCRAM_FIRST = (b"r=c1s2,s=c2FsdA==,i=4096", b"r=c1s2,s=c2FsdA==,i=04096,x=extension")
_SCRAM_FINAL = (b"v=cHJvb2Y=", b"v=cHJvb2Y=,x=extension")
_CHALLENGE = b'realm="zk-sasl-md5",nonce="n\\"1",charset=utf-8,algorithm=md5-sess,qop="auth,auth-int"'
_JAAS = (
    b'org.apache.kafka.common.security.plain.PlainLoginModule required username="a\\"b" password=\'c d\' x=y;',
    b"a.B /* a */ OPTIONAL // b\n serviceName=kafka;",
)


def _samples(*texts: bytes) -> list[Sample]:
    return [Sample("", text) for text in texts]


def _scram() -> ScramMechanism:
    return ScramMechanism(SCRAM_SHA_256, "broker:9092", "user", "password", nonce=_NONCE)


def _scram_first(_: str, data: bytes) -> object:
    mechanism = _scram()
    return mechanism._server_first(mechanism._text(data))


def _scram_final(_: str, data: bytes) -> object:
    mechanism = _scram()
    return mechanism._server_signature(mechanism._text(data))


def _bearer_error(_: str, data: bytes) -> object:
    mechanism = OAuthBearerMechanism("broker:9092", "token")
    return mechanism.rejected(mechanism._text(data))


def _challenge(_: str, data: bytes) -> object:
    return DigestMd5("user", "password", "0" * 32).response(data)


def decoders() -> Iterable[Decoder]:
    """Yield the decoders of this module."""
    refused = (AuthenticationError,)
    yield Decoder("auth/scram-first", lambda: _samples(*_SCRAM_FIRST), _scram_first, refused, mutated_text)
    yield Decoder("auth/scram-final", lambda: _samples(*_SCRAM_FINAL), _scram_final, refused, mutated_text)
    errors = _samples(b'{"status":"invalid_token","scope":"kafka"}', b"no json")
    yield Decoder("auth/bearer-error", lambda: errors, _bearer_error, refused, mutated_text, enough=1_000)
    tokens = _samples(b"e30.eyJleHAiOjE3MDAwMDAwMDB9.sig", b"e30.eyJleHAiOjFlOTl9.")
    answers = _samples(b'{"access_token":"e30.e30.x","expires_in":3600,"token_type":"Bearer"}', b'{"access_token":"t"}')
    granted = lambda _, data: tokens_of._token_in(data, "cannot get a token", 1.7e9)  # noqa: E731
    yield Decoder("auth/endpoint-answer", lambda: answers, granted, refused, mutated_text)
    refusals = _samples(b'{"error":"invalid_client","error_description":"unknown"}', b"<html>")
    said = lambda _, data: tokens_of._oauth_error(data)  # noqa: E731
    yield Decoder("auth/endpoint-error", lambda: refusals, said, (), mutated_text)
    end = lambda _, data: described_end(data.decode("latin-1"))  # noqa: E731
    yield Decoder("auth/bearer-token", lambda: tokens, end, (), mutated_text)
    challenges = _samples(_CHALLENGE, b'nonce="1",algorithm=md5-sess')
    yield Decoder("zookeeper/sasl-challenge", lambda: challenges, _challenge, (ValueError,), mutated_text)
    jaas = lambda _, data: parse_jaas(data.decode("utf-8", "replace"))  # noqa: E731
    yield Decoder("options/jaas", lambda: _samples(*_JAAS), jaas, (ValueError,), mutated_text, cap=_STACK)
    files = _samples(b"# comment\nbootstrap.servers=h:9092,\\\n  h:9093\nsasl.mechanism : PLAIN\nx\\u0041=\\t1\n")
    properties = lambda _, data: kafka_properties(data.decode("utf-8", "replace"))  # noqa: E731
    yield Decoder("options/client-file", lambda: files, properties, (ValueError,), mutated_text, cap=_STACK)
