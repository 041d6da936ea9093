from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamgroup.errors import ChecksumMismatch, TooLarge, Truncated, UnsupportedMagic
from streamgroup.kafka.wire.kafka07 import EARLIEST_TIME, ErrorCode07, message07
from streamgroup.testing.kafka07 import Compressed, Logs, message_set
from streamgroup.testing.kafka07 import log as log_files
from streamgroup.testing.kafka07.codecs import GZIP, compress_gzip
from streamgroup.testing.kafka07.log import CLEAN_SHUTDOWN, Checked, DamagedLog, Log, check_set, messages_of
from tests.unit.testing.kafka07.brokers import Broker, config

MESSAGE = message07(b"%030d" % 7)
assert len(MESSAGE) == 40
HOUR_MS = 3_600_000


def filled(directory: Path, messages: int, **properties: object) -> Broker:
    """A broker with so many messages of 40 bytes in t/0, one set each."""
    broker = Broker(directory, **properties)
    for _ in range(messages):
        broker.produce(MESSAGE)
    return broker


def segmented(directory: Path, **properties: object) -> Broker:
    """Segments of 240 bytes (the next begins beyond 200) at 0, 240 and 480; the end is 720."""
    return filled(directory, 18, log_file_size=200, **properties)


def age(paths: list[Path], *hours: float) -> None:
    """Let the files have been written so many hours ago."""
    for path, each in zip(paths, hours, strict=True):
        os.utime(path, (time.time() - each * 3600,) * 2)


def names(broker: Broker) -> list[str]:
    return [path.name for path in broker.segments()]


# Files


def test_files_are_the_very_bytes_under_the_offset_where_they_begin(tmp_path: Path) -> None:
    broker = segmented(tmp_path)
    assert names(broker) == [f"{start:020}.kafka" for start in (0, 240, 480)]
    assert [path.read_bytes() for path in broker.segments()] == [MESSAGE * 6] * 3
    assert broker.segments()[0].parent == tmp_path / "t-0"


def test_a_set_is_never_split_between_segments_and_one_of_exactly_the_size_takes_one_more(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "large", log_file_size=100)
    for _ in range(3):
        broker.produce(MESSAGE * 4)
    assert [path.stat().st_size for path in broker.segments()] == [160] * 3
    exact = filled(tmp_path / "exact", 6, log_file_size=80)
    assert [path.stat().st_size for path in exact.segments()] == [120, 120]


def test_a_fetch_never_crosses_a_segment(tmp_path: Path) -> None:
    broker = segmented(tmp_path)
    assert [len(broker.fetch(offset, 1000).records) for offset in (0, 200, 239, 240, 479, 480, 719, 720)] == [
        240, 40, 1, 240, 1, 240, 1, 0,
    ]  # fmt: skip


# Flush: what is appended is not yet visible


def test_nothing_is_visible_before_so_many_messages(tmp_path: Path) -> None:
    broker = filled(tmp_path, 2, log_flush_interval=3)
    assert broker.segments()[0].stat().st_size == 80
    assert broker.offsets() == [0]
    assert broker.fetch(0).records == b""
    assert broker.fetch(40).error == ErrorCode07.OFFSET_OUT_OF_RANGE
    broker.produce(MESSAGE)
    assert broker.offsets() == [120, 0]
    assert len(broker.fetch(40).records) == 80
    broker.produce(MESSAGE)
    assert len(broker.fetch(0).records) == 120


def test_inner_messages_count_towards_the_flush(tmp_path: Path) -> None:
    broker = Broker(tmp_path, log_flush_interval=3)
    wrapper = message_set([Compressed("gzip", [b"a", Compressed("snappy", [b"b", b"c"])])])
    broker.produce(wrapper)
    assert broker.offsets(most=1) == [len(wrapper)]


def test_a_wrapper_with_nothing_in_it_is_only_visible_with_the_next_message(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    empty = message_set([Compressed("gzip", [])])
    broker.produce(empty)
    assert broker.offsets() == [0]
    assert broker.fetch(len(empty)).error == ErrorCode07.OFFSET_OUT_OF_RANGE
    broker.produce(MESSAGE)
    assert bytes(broker.fetch(0).records) == empty + MESSAGE


def test_a_segment_of_uncounted_messages_only_starts_again(tmp_path: Path) -> None:
    broker = Broker(tmp_path, log_file_size=10)
    for _ in range(2):
        broker.produce(message_set([Compressed("gzip", [])]))
    broker.produce(MESSAGE)
    assert names(broker) == [f"{0:020}.kafka"]
    assert broker.offsets() == [40, 0]
    assert bytes(broker.fetch(0).records) == MESSAGE


def test_a_new_segment_flushes_the_one_before(tmp_path: Path) -> None:
    broker = filled(tmp_path, 3, log_flush_interval=100, log_file_size=50)
    assert broker.offsets() == [80, 0]
    assert broker.fetch(80).records == b""
    assert broker.fetch(81).error == ErrorCode07.OFFSET_OUT_OF_RANGE


def test_the_scheduler_flushes_what_is_old_enough(tmp_path: Path) -> None:
    now = 1_000.0
    ours = config(
        tmp_path, log_flush_interval=100, log_default_flush_interval_ms=500, topic_flush_intervals_ms="quick:20"
    )
    slow, quick = (Log(tmp_path / topic, topic, ours, recover=False, clock=lambda: now) for topic in ("slow", "quick"))
    for log in (slow, quick):
        log.append(MESSAGE)
        log.flush_if_due()
        assert log.end == 0
    now += 0.021
    for log in (slow, quick):
        log.flush_if_due()
    assert (slow.end, quick.end) == (0, 40)
    now += 0.48
    slow.flush_if_due()
    assert slow.end == 40


# OFFSETS


def test_offsets_are_the_end_and_the_starts_newest_first(tmp_path: Path) -> None:
    broker = segmented(tmp_path)
    assert broker.offsets() == [720, 480, 240, 0]
    assert [broker.offsets(most=most) for most in (0, 1, 2)] == [[], [720], [720, 480]]
    assert broker.offsets(EARLIEST_TIME) == [0]
    assert broker.offsets(EARLIEST_TIME, most=0) == []
    assert [broker.offsets(time) for time in (0, -3)] == [[], []]


def test_offsets_of_a_time_are_those_of_segments_last_written_before(tmp_path: Path) -> None:
    broker = segmented(tmp_path)
    age(broker.segments(), 3, 2, 1)
    now = int(time.time() * 1000)
    found = {hours: broker.offsets(now - int(hours * HOUR_MS)) for hours in (3.5, 2.5, 1.5, 0.5, -0.5)}
    assert found == {3.5: [], 2.5: [0], 1.5: [240, 0], 0.5: [480, 240, 0], -0.5: [720, 480, 240, 0]}


def test_a_new_segment_leaves_the_time_of_the_one_before(tmp_path: Path) -> None:
    broker = segmented(tmp_path)
    age(broker.segments(), 3, 2, 1)
    broker.produce(MESSAGE)
    assert names(broker)[-1] == f"{720:020}.kafka"
    now = int(time.time() * 1000)
    assert broker.offsets(now - HOUR_MS // 2) == [480, 240, 0]


def test_an_empty_newest_segment_is_not_listed_twice(tmp_path: Path) -> None:
    broker = filled(tmp_path, 2, log_retention_hours=1)
    age(broker.segments(), 2)
    assert broker.logs.clean_up() == 1
    assert names(broker) == [f"{80:020}.kafka"]
    assert broker.offsets() == [80]
    assert broker.offsets(EARLIEST_TIME) == [80]


# Retention


def test_retention_removes_old_segments_from_the_front(tmp_path: Path) -> None:
    broker = segmented(tmp_path, log_retention_hours=1)
    _, second, third = broker.segments()
    age(broker.segments(), 2, 0, 2)  # the third is behind one that is kept: it stays, too
    assert broker.logs.clean_up() == 1
    assert broker.segments() == [second, third]
    assert broker.offsets(EARLIEST_TIME) == [240]
    assert broker.offsets() == [720, 480, 240]
    assert broker.fetch(0).error == ErrorCode07.OFFSET_OUT_OF_RANGE
    assert len(broker.fetch(240).records) == 240
    assert len(broker.fetch(479).records) == 1
    assert (broker.fetch(720).error, len(broker.fetch(720).records)) == (0, 0)
    assert broker.fetch(721).error == ErrorCode07.OFFSET_OUT_OF_RANGE


def test_retention_by_topic_goes_before_the_general_one(tmp_path: Path) -> None:
    broker = filled(tmp_path, 1, log_retention_hours=100, topic_log_retention_hours="t:0.5,u:100")
    age(broker.segments(), 1)
    assert broker.logs.clean_up() == 1


@pytest.mark.parametrize(("size", "left"), [(720, 3), (719, 3), (480, 2), (479, 2), (240, 1), (1000, 3), (-1, 3)])
def test_retention_by_size_removes_what_the_log_can_spare(tmp_path: Path, size: int, left: int) -> None:
    broker = segmented(tmp_path, log_retention_size=size)
    broker.logs.clean_up()
    assert len(broker.segments()) == left


def test_a_log_of_which_all_is_old_goes_on_where_it_was(tmp_path: Path) -> None:
    broker = segmented(tmp_path, log_retention_hours=1)
    age(broker.segments(), 2, 2, 2)
    assert broker.logs.clean_up() == 3
    assert broker.fetch(720).records == b""
    broker.produce(MESSAGE)
    assert bytes(broker.fetch(720).records) == MESSAGE


def test_an_empty_segment_is_kept_as_if_new(tmp_path: Path) -> None:
    broker = filled(tmp_path, 0, log_retention_hours=1)
    broker.produce(b"")
    age(broker.segments(), 2)
    assert broker.logs.clean_up() == 0
    assert time.time() - broker.segments()[0].stat().st_mtime < 600


# The next start


def test_a_log_is_found_again_with_all_that_was_written(tmp_path: Path) -> None:
    first = segmented(tmp_path, log_flush_interval=10_000)
    assert first.offsets(most=1) == [480]
    again = Broker(tmp_path, log_file_size=200)  # the first one has crashed: nothing was closed
    assert again.logs.topics == ["t"]
    assert again.offsets() == [720, 480, 240, 0]
    again.produce(MESSAGE)
    assert names(again)[-1] == f"{720:020}.kafka"


@pytest.mark.parametrize(
    "rest",
    [MESSAGE[:7], b"\0", MESSAGE[:-1] + b"x", b"\0\0\0\0" + MESSAGE, b"\xff" * 40, b"\0\0\0\4\2\0\0\0"],
)
def test_after_a_crash_the_last_segment_ends_with_its_last_good_message(tmp_path: Path, rest: bytes) -> None:
    broker = segmented(tmp_path)
    with broker.segments()[-1].open("ab") as file:
        file.write(rest)
    again = Broker(tmp_path)
    assert again.offsets(most=1) == [720]
    assert again.segments()[-1].read_bytes() == MESSAGE * 6


def test_an_unknown_magic_is_refused_and_not_recovered(tmp_path: Path) -> None:
    broker = segmented(tmp_path)
    with broker.segments()[-1].open("ab") as file:
        file.write(MESSAGE[:4] + b"\x02" + MESSAGE[5:])
    with pytest.raises(DamagedLog, match=r"480\.kafka: at byte 240: magic 2"):
        Broker(tmp_path)


def test_segments_with_a_gap_are_refused(tmp_path: Path) -> None:
    segmented(tmp_path).segments()[1].unlink()
    with pytest.raises(DamagedLog, match="ends at 240, but the next segment begins at 480"):
        Broker(tmp_path)


# Whatever is written


PAYLOADS = st.recursive(
    st.binary(max_size=30),
    lambda inner: st.builds(
        Compressed,
        st.sampled_from(["gzip", "snappy", "snappy-raw"]),
        st.lists(inner, max_size=3),
        st.sampled_from([0, 1]),
    ),
    max_leaves=5,
)


@pytest.mark.slow
@given(
    sets=st.lists(st.lists(PAYLOADS, max_size=4).map(message_set), max_size=12),
    size=st.integers(1, 200),
    flush=st.integers(1, 6),
    max_size=st.integers(1, 150),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_fetches_one_behind_the_other_tile_the_log(
    tmp_path_factory: pytest.TempPathFactory, sets: list[bytes], size: int, flush: int, max_size: int
) -> None:
    broker = Broker(tmp_path_factory.mktemp("log"), log_file_size=size, log_flush_interval=flush)
    for messages in sets:
        assert not broker.produce(messages).close
    if not sets:
        return
    end, *starts = broker.offsets()
    starts = starts or [0]
    offset, read, limit = 0, b"", max_size
    while offset < end:
        records = bytes(broker.fetch(offset, limit).records)
        segment = max(start for start in starts if start <= offset)
        assert offset + len(records) <= min([start for start in starts if start > segment], default=end)
        whole = whole_bytes(records)
        if whole:
            offset, read, limit = offset + whole, read + records[:whole], max_size
        else:
            limit += 50  # as a client whose fetch size is too small
            assert limit < 5_000
    assert read == b"".join(path.read_bytes() for path in broker.segments())[:end]


def whole_bytes(records: bytes) -> int:
    at = 0
    while len(records) - at >= 4 and len(records) - at >= 4 + int.from_bytes(records[at : at + 4], "big"):
        at += 4 + int.from_bytes(records[at : at + 4], "big")
    return at


LIMIT = 1_000
ONE = message07(b"one")  # 4 bytes of length, 6 of header, 3 of payload
assert len(ONE) == 13


def damaged(message: bytes) -> bytes:
    """Return the message with another last byte."""
    return message[:-1] + bytes([message[-1] ^ 1])


# -- the messages of a set --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "error", "said"),
    [
        (ONE[:-1], Truncated, "at byte 0: a message of 9 bytes, 8 are left"),
        (b"\xff\xff\xff\xff", Truncated, "at byte 0: a message of -1 bytes, 0 are left"),
        (ONE + b"\xff\xff\xff\xff", Truncated, "at byte 13: a message of -1 bytes, 0 are left"),
        (b"\0\0\0\4\1\0\0\0", Truncated, "at byte 0: a message of 4 bytes"),
        (b"\0\0\0\5\1\0\0\0\0", Truncated, "at byte 0: a message of 5 bytes"),
        (ONE + b"\0\0\0\0", Truncated, "at byte 13: a message of 0 bytes"),
        (ONE + b"\0\0\0\6\2\0\0\0\0\0", UnsupportedMagic, "at byte 13: magic 2; Kafka 0.7 has 0 and 1"),
        (ONE + damaged(ONE), ChecksumMismatch, "at byte 13: the payload's checksum does not fit"),
    ],
)
def test_damage_is_named_with_the_byte_where_its_message_begins(data: bytes, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=f"^{said}$"):
        list(messages_of(data))


# -- a set of a PRODUCE -----------------------------------------------------------------------------------------------


def test_a_payload_above_the_limit_is_found_before_the_damage_in_a_wrapper() -> None:
    data = message07(compress_gzip(damaged(ONE)), codec=GZIP) + message07(bytes(LIMIT + 1))
    assert check_set(data, LIMIT) is None


@pytest.mark.parametrize(("levels", "is_taken"), [(32, True), (33, False)])
def test_wrappers_are_nested_32_levels_deep_at_most(levels: int, is_taken: bool) -> None:
    data = ONE
    for _ in range(levels):
        data = message07(compress_gzip(data), codec=GZIP)
    if is_taken:
        assert check_set(data, LIMIT * 10) == Checked(len(data), 1)
    else:
        with pytest.raises(TooLarge, match="nested more than 32 levels deep"):
            check_set(data, LIMIT * 10)


def test_after_a_clean_shutdown_logs_are_not_recovered(tmp_path: Path) -> None:
    broker = filled(tmp_path, 2, log_flush_interval=100)
    broker.logs.close()
    assert (tmp_path / CLEAN_SHUTDOWN).exists()
    with broker.segments()[0].open("ab") as file:
        file.write(b"\0\0")
    assert Broker(tmp_path).offsets(most=1) == [82]
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()
    assert Broker(tmp_path).offsets(most=1) == [80]


def test_other_files_in_the_directory_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "notes-1").write_text("no directory")
    (tmp_path / "name-x").mkdir()
    assert Broker(tmp_path).logs.topics == []


def test_a_topic_may_have_dashes(tmp_path: Path) -> None:
    Broker(tmp_path).produce(MESSAGE, topic="a-b-2", partition=1)
    again = Broker(tmp_path)
    assert again.logs.topics == ["a-b-2"]
    assert again.offsets(topic="a-b-2", partition=1) == [40, 0]


def test_a_topic_is_announced_once_with_its_first_log(tmp_path: Path) -> None:
    logs, announced = Logs(config(tmp_path)), list[str]()
    logs.on_new_topic = announced.append
    for topic, partition in (("u", 0), ("t", 0), ("t", 1), ("t", 0)):
        logs.find_or_make(topic, partition)
    assert announced == ["u", "t"]
    assert logs.topics == ["t", "u"]
    again, announced = Logs(config(tmp_path)), []
    again.on_new_topic = announced.append
    again.find_or_make("t", 2)
    assert announced == [], "the topic was on disk before"


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "a\0b", "a\x7fb", "\ud800", "\uffff", "t" * 256])
def test_a_name_that_cannot_be_a_directory_is_refused(tmp_path: Path, topic: str) -> None:
    logs = Logs(config(tmp_path))
    for ask in (logs.find, logs.find_or_make):
        with pytest.raises(log_files.IllegalTopic, match="is not a valid topic name"):
            ask(topic, 0)
    assert [path.name for path in tmp_path.iterdir()] == []


def test_any_other_name_is_a_topic(tmp_path: Path) -> None:
    for topic in ("a", "...", "a b", "ä", "t" * 200):
        Logs(config(tmp_path)).find_or_make(topic, 1)
        assert (tmp_path / f"{topic}-1").is_dir()


def test_retention_counts_the_removed_segments_of_all_logs(tmp_path: Path) -> None:
    broker = Broker(tmp_path, log_file_size=1, log_retention_hours=1)
    for topic in ("t", "u"):
        for _ in range(3):
            broker.produce(MESSAGE, topic=topic)
        age(broker.segments(topic), 2, 2, 0)
    assert broker.logs.clean_up() == 4
    assert broker.logs.clean_up() == 0
    assert [len(broker.segments(topic)) for topic in ("t", "u")] == [1, 1]
