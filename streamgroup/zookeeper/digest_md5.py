"""SASL's DIGEST-MD5 (RFC 2831) as ZooKeeper's servers speak it: the client's answer, and the proof of the server.

MD5 is the mechanism's, and weak: whoever records an exchange can try passwords against it. Use it over TLS.
"""

from __future__ import annotations

import hashlib
import hmac
import re

DIGEST_URI = "zookeeper/zk-sasl-md5"
"""ZooKeeper has a constant in place of the host name."""

_DIRECTIVE = re.compile(r'\s*([A-Za-z-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^",\s]+))\s*(?:,|\Z)', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_COUNT = "00000001"
_LONGEST = 2047
"""Bytes of a challenge (RFC 2831, section 2.1.1)."""


class DigestMd5:
    """One exchange of `user`. `cnonce` is a random text without quotes, a new one for each exchange."""

    def __init__(self, user: str, password: str, cnonce: str) -> None:
        self._user, self._password, self._cnonce = user, password, cnonce
        self._proof = b""

    def response(self, challenge: bytes) -> bytes:
        """Return the client's answer. Raises ValueError for a challenge that is not one of DIGEST-MD5."""
        if len(challenge) > _LONGEST:
            raise ValueError(f"the challenge has {len(challenge)} bytes, more than {_LONGEST}")
        given = _directives(challenge)
        nonce, realm = given.get("nonce", ""), given.get("realm", "")
        if not nonce or given.get("algorithm") != "md5-sess" or "auth" not in given.get("qop", "auth").split(","):
            raise ValueError("the challenge lacks a nonce, the algorithm md5-sess or the quality auth")
        secret = _md5(f"{self._user}:{realm}:{self._password}".encode())
        session = _md5(secret + f":{nonce}:{self._cnonce}".encode()).hex()
        middle = f"{nonce}:{_COUNT}:{self._cnonce}:auth"

        def proof(of: str) -> str:
            return _md5(f"{session}:{middle}:{_md5(of.encode()).hex()}".encode()).hex()

        self._proof = b"rspauth=" + proof(f":{DIGEST_URI}").encode()
        named = f"username={_quoted(self._user)},realm={_quoted(realm)},nonce={_quoted(nonce)}"
        return (
            f'charset=utf-8,{named},nc={_COUNT},cnonce="{self._cnonce}",digest-uri="{DIGEST_URI}",maxbuf=65536,'
            f"response={proof(f'AUTHENTICATE:{DIGEST_URI}')},qop=auth"
        ).encode()

    def is_proof(self, answer: bytes) -> bool:
        """Return whether `answer` shows that the server knows the password."""
        return bool(self._proof) and hmac.compare_digest(answer, self._proof)


def _directives(challenge: bytes) -> dict[str, str]:
    text = challenge.decode("utf-8", "replace")
    return {
        found[1].lower(): found[3] if found[2] is None else _ESCAPED.sub(r"\1", found[2])
        for found in _DIRECTIVE.finditer(text)
    }


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()
