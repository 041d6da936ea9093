"""The life of a batch, from Spark's question to the commit in the group."""

from __future__ import annotations

from tools.pictures.ladder import Arrow, Band, Ladder, draw

_COLUMNS = ("Spark", "main thread", "member, ledger", "group's thread", "brokers", "tasks", "listener")
SPARK, MAIN, MEMBER, GROUP, BROKERS, TASKS, LISTENER = range(len(_COLUMNS))

_PROVE = Band("prove", (
    Arrow(SPARK, MAIN, "latestOffset(start)"),
    Arrow(MAIN, MEMBER, "start has sunk: positions move (R15, R16)"),
    Arrow(MEMBER, GROUP, "commit due"),
    Arrow(GROUP, BROKERS, "OffsetCommit"),
    Arrow(BROKERS, MEMBER, "accepted: a lease (R9)"),
    Arrow(MEMBER, MEMBER, "idle: a rejoin that is due begins now (R21)"),
))  # fmt: skip
_PLAN = Band("plan", (
    Arrow(MAIN, BROKERS, "ListOffsets, by the thread of the logs"),
    Arrow(BROKERS, MAIN, "ends of the logs"),
    Arrow(MAIN, MAIN, "positions against the logs (R8), limits, ranges"),
    Arrow(MAIN, MEMBER, "planned: the batch is in flight"),
    Arrow(MAIN, SPARK, "the document"),
    Arrow(SPARK, SPARK, "writes offsets/N"),
))  # fmt: skip
_READ = Band("read", (
    Arrow(SPARK, MAIN, "partitions(start, end)"),
    Arrow(MAIN, MEMBER, "asked for batch N (R20), or a replay (R13)"),
    Arrow(MAIN, SPARK, "ranges, leaders, topic ids"),
    Arrow(SPARK, TASKS, "a task for each part"),
    Arrow(TASKS, BROKERS, "Fetch"),
    Arrow(BROKERS, TASKS, "records, decoded into Arrow columns"),
    Arrow(GROUP, BROKERS, "heartbeats go on"),
    Arrow(TASKS, SPARK, "rows, written by the sink"),
    Arrow(SPARK, SPARK, "writes commits/N"),
))  # fmt: skip
_COMMIT = Band("commit", (
    Arrow(SPARK, LISTENER, "progress of batch N"),
    Arrow(LISTENER, MEMBER, "sunk(end): proven, if there is a listener"),
    Arrow(MEMBER, GROUP, "commit due"),
    Arrow(GROUP, BROKERS, "OffsetCommit"),
    Arrow(SPARK, MAIN, "latestOffset(end): proven, if there is none"),
))  # fmt: skip


def life_of_a_batch() -> str:
    """Return the picture as SVG."""
    title = "The life of a batch: who calls whom, until its offsets are committed to the group"
    return draw(Ladder(title, _COLUMNS, (_PROVE, _PLAN, _READ, _COMMIT), pitch=128))
