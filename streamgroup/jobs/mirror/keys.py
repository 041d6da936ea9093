"""The table of the keys of a mirror's file, which `docs/mirror.md` and `conf/mirror.toml` show."""

from __future__ import annotations

from collections.abc import Mapping

from streamgroup.jobs.keys import COMMON, COUNT, FLAG, OPTIONS, TEXT, Key

SOURCE, DESTINATION = "source", "destination"
"""The sections with the options of the read and of the write."""

SECTIONS: Mapping[str, tuple[Key, ...]] = {
    "mirror": (
        Key(
            "checkpoint",
            TEXT,
            "Directory of the query's checkpoint. May contain `{member}`.",
            required=True,
        ),
        Key(
            "plan",
            TEXT,
            "Directory where the mirror notes the partitions that it writes. All members share it.",
            required=True,
        ),
    ),
    "topics": (
        Key("partitions", TEXT, "`keep`, `hash` or `auto` (the default).", default='"auto"'),
        Key("partitions_of", OPTIONS, "The same for single topics, by their names at the source."),
        Key(
            "create",
            FLAG,
            "Create missing topics, with the partitions and the configuration of their source topics.",
            default="false",
        ),
        Key(
            "replication_factor",
            COUNT,
            "Replicas of each partition of a created topic. Brokers before 2.4 need it; later ones have a default.",
        ),
    ),
    "rename": (
        Key("prefix", TEXT, "A text before the name."),
        Key("match", TEXT, "Regular expression. Its first match in the name is replaced."),
        Key("replace", TEXT, "The text that replaces the match. The default is nothing."),
        Key("table", OPTIONS, "The new names of single topics."),
    ),
    **COMMON,
    "verify": (
        Key("source", OPTIONS, "Options of the read of the source, such as `endingTimestamp`."),
        Key("destination", OPTIONS, "Options of the read of the destination, such as `startingTimestamp`."),
    ),
}
"""The keys of all sections but those of options."""
