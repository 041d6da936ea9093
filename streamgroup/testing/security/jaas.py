"""Entries of JAAS configurations, as `sasl.jaas.config` and a JAAS file hold them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from streamgroup.testing.security.kdc import Kdc
from streamgroup.testing.security.settings import Mechanism

_PACKAGE = "org.apache.kafka.common.security"
_MODULES = {
    Mechanism.PLAIN: f"{_PACKAGE}.plain.PlainLoginModule",
    Mechanism.SCRAM_SHA_256: f"{_PACKAGE}.scram.ScramLoginModule",
    Mechanism.SCRAM_SHA_512: f"{_PACKAGE}.scram.ScramLoginModule",
    Mechanism.OAUTHBEARER: f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule",
    Mechanism.GSSAPI: "com.sun.security.auth.module.Krb5LoginModule",
}


def entry(mechanism: Mechanism, options: Mapping[str, str]) -> str:
    """Return the entry of a mechanism's login module, with its semicolon."""
    given = "".join(f" {name}={_quoted(value)}" for name, value in options.items())
    return f"{_MODULES[mechanism]} required{given};"


def keytab_options(principal: str, keytab: Path) -> dict[str, str]:
    """Return the options of GSSAPI's login module for a keytab."""
    return {"useKeyTab": "true", "storeKey": "true", "keyTab": str(keytab), "principal": principal}


def broker_entries(
    mechanisms: tuple[Mechanism, ...], passwords: Mapping[str, str], kdc: Kdc | None = None
) -> dict[Mechanism, str]:
    """Return the entry of each mechanism on a broker. Only that of PLAIN names the users."""
    options = {Mechanism.PLAIN: {f"user_{user}": password for user, password in passwords.items()}}
    if kdc is not None:
        options[Mechanism.GSSAPI] = keytab_options(kdc.broker, kdc.broker_keytab)
    return {each: entry(each, options.get(each, {})) for each in mechanisms}


def file_text(mechanisms: tuple[Mechanism, ...], passwords: Mapping[str, str], kdc: Kdc | None = None) -> str:
    """Return the JAAS file of a broker: all mechanisms share one context, and both SCRAMs one login module."""
    entries = dict.fromkeys(broker_entries(mechanisms, passwords, kdc).values())
    return "KafkaServer {\n" + "".join(f"    {each}\n" for each in entries) + "};\n"


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
