"""The cipher suites that `kafka.ssl.cipher.suites` may name: Java's name (IANA's registry) and OpenSSL's name.

Suites without authentication or encryption, and those with RC4, DES, MD5 or export keys, are left out: brokers that
take them are not secured.
"""

from __future__ import annotations

import difflib

TLS13 = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
"""The suites of TLS 1.3, which have one name in Java and OpenSSL. A suite belongs to TLS 1.3 or to TLS 1.2."""

_KEY_EXCHANGES = {
    "TLS_ECDHE_ECDSA": "ECDHE-ECDSA-",
    "TLS_ECDHE_RSA": "ECDHE-RSA-",
    "TLS_DHE_RSA": "DHE-RSA-",
    "TLS_RSA": "",
}
_CIPHERS = {
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
    "AES_256_CBC_SHA384": "AES256-SHA384",
    "AES_256_CBC_SHA256": "AES256-SHA256",
    "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_256_CBC_SHA": "AES256-SHA",
    "AES_128_CBC_SHA": "AES128-SHA",
}
_NEVER_DEFINED = {
    *(f"TLS_ECDHE_{signature}_WITH_AES_256_CBC_SHA256" for signature in ("ECDSA", "RSA")),
    *(f"{exchange}_WITH_AES_256_CBC_SHA384" for exchange in ("TLS_DHE_RSA", "TLS_RSA")),
    "TLS_RSA_WITH_CHACHA20_POLY1305_SHA256",
}
"""The products of the two tables that no RFC defines."""

OPENSSL_NAMES = {
    name: opened + cipher
    for exchange, opened in _KEY_EXCHANGES.items()
    for suffix, cipher in _CIPHERS.items()
    if (name := f"{exchange}_WITH_{suffix}") not in _NEVER_DEFINED
} | {name: name for name in sorted(TLS13)}
"""OpenSSL's name of each suite by Java's name (RFC 5246, 5288, 5289, 7905, 8446)."""

_LISTED = 3


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a suite that is named as in Java. Raises ValueError with similar names."""
    name = suite.upper()
    if name in OPENSSL_NAMES:
        return OPENSSL_NAMES[name]
    near = difflib.get_close_matches(name, OPENSSL_NAMES, n=_LISTED, cutoff=0.0)
    raise ValueError(f"unknown or insecure cipher suite {suite!r}. Similar ones are {', '.join(near)}")
