"""Files that only their owner may read: keys and certificates as PEM, PKCS #12 and JKS."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.testing.directories import write_private
from streamgroup.testing.java import java_executable
from streamgroup.testing.security.certificates import Authority, Identity

_KEYTOOL_TIMEOUT_S = 60
_PASSWORD_VARIABLE = "STREAMGROUP_STORE_PASSWORD"


def write_pem(file: Path, identity: Identity, password: str | None = None) -> Path:
    """Write key and certificates as Java's `ssl.keystore.type=PEM` reads them; with a password the key is encrypted."""
    return write_private(file, identity.key_pem(password) + identity.chain_pem())


def write_pkcs12(file: Path, identity: Identity, password: str) -> Path:
    """Write key and certificates as PKCS #12."""
    return write_private(file, identity.pkcs12(password))


def write_jks(file: Path, of: Identity | Authority, password: str) -> Path:
    """Write a real JKS, as keytool made it by default before Java 9: a key store, or a trust store of an authority.

    Raises ConfigError if Java has no keytool, StreamGroupError with keytool's words if it fails.
    """
    keytool = shutil.which("keytool", path=str(java_executable().resolve().parent))
    if keytool is None:
        raise ConfigError(
            f"cannot write {file}: keytool is not installed beside {java_executable()}. Install a whole Java"
        )
    with tempfile.TemporaryDirectory(dir=file.parent) as work:
        made = Path(work, "made.jks")
        arguments = _import_of(of, Path(work), made, password)
        ran = subprocess.run(
            [keytool, *arguments],
            env={**os.environ, _PASSWORD_VARIABLE: password},
            capture_output=True,
            text=True,
            timeout=_KEYTOOL_TIMEOUT_S,
            check=False,
        )
        if ran.returncode != 0:
            raise StreamGroupError(f"cannot write {file}: keytool failed: {ran.stdout[-1000:]}{ran.stderr[-1000:]}")
        return write_private(file, made.read_bytes())


def _import_of(of: Identity | Authority, work: Path, made: Path, password: str) -> list[str]:
    """Return the arguments for keytool that put `of` into the JKS `made`."""
    if isinstance(of, Authority):
        source = write_private(work / "source.pem", of.certificate_pem())
        return [
            *("-importcert", "-noprompt", "-alias", "authority", "-file", str(source), "-keystore", str(made)),
            *("-storetype", "JKS", "-storepass:env", _PASSWORD_VARIABLE),
        ]
    source = write_pkcs12(work / "source.p12", of, password)
    return [
        *("-importkeystore", "-noprompt", "-srckeystore", str(source), "-destkeystore", str(made)),
        *("-srcstoretype", "PKCS12", "-srcstorepass:env", _PASSWORD_VARIABLE),
        *("-deststoretype", "JKS", "-deststorepass:env", _PASSWORD_VARIABLE),
    ]
