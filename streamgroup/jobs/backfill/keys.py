"""The table of the keys of a backfill's file, which `docs/backfill.md` and `conf/backfill.toml` show."""

from __future__ import annotations

from collections.abc import Mapping

from streamgroup.jobs.keys import BATCH_SINK, COMMON, LARGE_COUNT, TEXT, Key

SECTIONS: Mapping[str, tuple[Key, ...]] = {
    "backfill": (
        Key(
            "progress",
            TEXT,
            "Directory of the plan and of the steps that are done. A new directory begins a new backfill.",
            required=True,
        ),
        Key(
            "offsets_per_step",
            LARGE_COUNT,
            "About how many offsets one step reads. A step that a failure has cut short is read again.",
            default="1000000",
        ),
    ),
    "sink": BATCH_SINK,
    "spark": COMMON["spark"],
}
"""The keys of all sections but `source`, whose keys are the options of a batch read by `format("streamgroup")`."""
