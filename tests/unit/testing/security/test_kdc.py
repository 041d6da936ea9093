"""The KDC without its programs; tests/live/test_kerberos.py starts it."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamgroup.errors import ConfigError
from streamgroup.testing.security import kdc as module
from streamgroup.testing.security.kdc import Kdc


def test_missing_programs_name_the_packages_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"there is no krb5kdc\..*apt-get install krb5-kdc krb5-admin-server"):
        Kdc(tmp_path / "kdc", ["client"]).start()
    assert not (tmp_path / "kdc").exists()
