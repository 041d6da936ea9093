from __future__ import annotations

from pathlib import Path

import pytest

from streamgroup.errors import ConfigError
from streamgroup.jobs.backfill.config import DEFAULT_OFFSETS_PER_STEP, SECTIONS, BackfillConfig, effective, load
from streamgroup.jobs.config import Sink

ROOT = Path(__file__).parents[4]
SOURCE = '[source]\nkafka.bootstrap.servers = "broker:9092"\nsubscribe = "orders"\n'
PROGRESS = '[backfill]\nprogress = "/progress"\n'
SINK = '[sink]\nformat = "parquet"\npath = "/rows"\n'


def read(tmp_path: Path, text: str) -> BackfillConfig:
    file = tmp_path / "job.toml"
    file.write_text(text)
    return load(file, None, {})


def test_the_smallest_backfill_has_defaults(tmp_path: Path) -> None:
    config = read(tmp_path, SOURCE + PROGRESS + SINK)
    assert (config.sink, config.progress) == (Sink("parquet", "/rows"), "/progress")
    assert config.offsets_per_step == DEFAULT_OFFSETS_PER_STEP
    assert config.purpose == {"subscribe": "orders", "sink": "parquet in /rows", "columns": "*"}
    assert config.connection == {"kafka.bootstrap.servers": "broker:9092"}
    (key,) = (key for key in SECTIONS["backfill"] if key.name == "offsets_per_step")
    assert key.default == str(DEFAULT_OFFSETS_PER_STEP)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (SOURCE + SINK, "[backfill] progress is required"),
        (SOURCE + PROGRESS + "offsets_per_step = 0\n" + SINK, "expected a whole number above 0"),
        (SOURCE + PROGRESS + '[sink]\nformat = "csv"\n', "[sink] path or table is required for format 'csv'"),
        (SOURCE + PROGRESS + SINK + 'table = "t"\n', "[sink] path and table are both set"),
        (SOURCE + PROGRESS + SINK + 'checkpoint = "/c"\n', "unknown key 'checkpoint' in section [sink]"),
        (SOURCE + PROGRESS + SINK + 'options.path = "/p"\n', "Write it as 'path' below [sink]"),
        (SOURCE + PROGRESS + SINK + "[trigger]\nonce = true\n", "unknown section [trigger]"),
        (PROGRESS + SINK, "section [source] is required"),
        (SOURCE + "maxOffsetsPerTriger = 3\n" + PROGRESS + SINK, "[source]: "),
        (SOURCE + PROGRESS + '[sink]\nformat = "csv"\npath = "/{x}"\n', "unknown placeholder {x}"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, text)
    assert problem in str(raised.value)


def test_the_example_and_the_page_name_every_key(tmp_path: Path) -> None:
    example = (ROOT / "conf" / "backfill.toml").read_text()
    page = (ROOT / "docs" / "backfill.md").read_text()
    load(ROOT / "conf" / "backfill.toml", None, {})
    for section, keys in SECTIONS.items():
        assert f"[{section}]" in example
        for key in keys:
            assert key.name in example, key.name
            assert section != "backfill" or f"`{key.name}`" in page, key.name


def test_the_configuration_is_printed(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(SOURCE + PROGRESS + SINK)
    lines = [" ".join(line.split()) for line in effective(file, None, {})]
    assert "offsets_per_step = 1000000 # default" in lines
    assert 'path = "/rows" # file' in lines
    assert not [line for line in lines if line.startswith("maxTriggerDelay")], "of streams only"
