from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamgroup.errors import ConfigError
from streamgroup.testing.metadata_mode import check_data_dir


def test_the_settings_of_a_cluster_are_returned_at_its_next_start(tmp_path: Path) -> None:
    home = tmp_path / "new"
    assert check_data_dir(home, 3, "kraft", {"cluster_id": "first"}) == {"cluster_id": "first"}
    assert check_data_dir(home, 3, "kraft", {"cluster_id": "second"}) == {"cluster_id": "first"}


def test_a_directory_of_the_other_kind_is_refused(tmp_path: Path) -> None:
    check_data_dir(tmp_path, 1, "kraft", {"cluster_id": "x"})
    with pytest.raises(ConfigError, match=r"created with kraft. Start it with the version that made it"):
        check_data_dir(tmp_path, 1, "zookeeper", {})


def test_a_directory_from_before_there_were_kinds_is_taken(tmp_path: Path) -> None:
    (tmp_path / "streamgroup.json").write_text(json.dumps({"cluster_id": "x", "brokers": 1}))
    assert check_data_dir(tmp_path, 1, "kraft", {"cluster_id": "y"}) == {"cluster_id": "x"}
