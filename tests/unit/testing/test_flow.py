"""The bytes behind a proxy, without sockets: nothing is changed or reordered, or lost but by an end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.testing.flow import CAPACITY, CLEAN, End, Fault, Flow

MIDDLE = Fault(end=End.STALL, mid_frame=True)


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def pieces(flow: Flow, now: float = 0.0) -> list[bytes]:
    """All that may be sent at this moment."""
    sent = []
    while piece := bytes(flow.piece(now)):
        sent.append(piece)
        flow.sent(len(piece))
    return sent


@given(st.lists(st.binary(min_size=1, max_size=50)), st.sampled_from([None, 1, 3, 7]), st.integers(1, 9))
def test_bytes_arrive_as_they_were_sent_however_they_are_split_and_taken(
    chunks: list[bytes], split: int | None, taken: int
) -> None:
    flow = Flow(Fault(split=split), 0.0)
    for chunk in chunks:
        flow.put(chunk, 0.0)
    got = b""
    while piece := bytes(flow.piece(0.0)):
        assert split is None or len(piece) <= split
        got += piece[:taken]  # a socket may take less than it is given
        flow.sent(min(taken, len(piece)))
    assert got == b"".join(chunks)
    assert flow.held == 0


def test_delayed_bytes_leave_when_they_are_due() -> None:
    flow = Flow(Fault(delay_s=0.05), 0.0)
    flow.put(b"first", 1.0)
    flow.put(b"second", 1.02)
    assert pieces(flow, 1.04) == []
    assert flow.due(1.04) == pytest.approx(1.05)
    assert pieces(flow, 1.06) == [b"first"]
    assert pieces(flow, 1.08) == [b"second"]


def test_the_end_of_the_source_is_delayed_as_its_bytes_are() -> None:
    flow = Flow(Fault(delay_s=0.05), 0.0)
    flow.put(b"last", 1.0)
    flow.close(1.0)
    assert not flow.finished(1.06)
    assert pieces(flow, 1.06) == [b"last"]
    assert flow.finished(1.06)


def test_a_throttled_flow_keeps_its_rate() -> None:
    flow = Flow(Fault(bytes_per_s=125_000), 0.0)
    flow.put(bytes(100_000), 0.0)
    now, passed = 0.0, 0
    while flow.held:
        due = flow.due(now)
        assert due is not None
        now = max(now, due) + 0.001
        passed += sum(map(len, pieces(flow, now)))
        assert passed <= 125_000 * (now + 0.03)
    assert 0.7 < now < 1.0  # 0.8 s at that rate


def test_a_rate_below_a_byte_a_moment_still_passes_bytes() -> None:
    flow = Flow(Fault(bytes_per_s=10), 0.0)
    flow.put(b"abc", 0.0)
    assert pieces(flow, 0.05) == []
    assert pieces(flow, 0.11) == [b"a"]


def test_a_flow_takes_no_more_than_it_can_hold() -> None:
    flow = Flow(MIDDLE, 0.0)
    while flow.hungry:
        flow.put(bytes(64 * 1024), 0.0)
    assert flow.held <= CAPACITY + 64 * 1024


@given(st.lists(st.binary(max_size=30), min_size=1), st.binary(min_size=1, max_size=60), st.integers(1, 9))
def test_an_end_in_mid_frame_comes_in_the_middle_of_the_first_frame_that_is_large_enough(
    small: list[bytes], large: bytes, step: int
) -> None:
    stream = b"".join(map(frame, small)) + frame(bytes(31) + large)
    flow = Flow(Fault(end=End.STALL, mid_frame=True, min_frame=31), 0.0)
    got = b""
    for at in range(0, len(stream), step):
        flow.put(stream[at : at + step], 0.0)
        got += b"".join(pieces(flow))
    size = 31 + len(large)
    assert got == stream[: sum(len(body) + 4 for body in small) + 4 + size // 2]
    assert flow.ended is End.STALL
    flow.fault = CLEAN
    assert got + b"".join(pieces(flow)) == stream


def test_frames_are_followed_while_no_fault_asks_for_them() -> None:
    flow = Flow(CLEAN, 0.0)
    flow.put(frame(bytes(10))[:6], 0.0)  # two of ten
    assert pieces(flow) == [frame(bytes(10))[:6]]
    flow.fault = MIDDLE
    flow.put(bytes(100), 0.0)
    assert b"".join(pieces(flow)) == bytes(3)
    assert flow.ended is End.STALL


def test_an_empty_frame_has_no_middle() -> None:
    flow = Flow(MIDDLE, 0.0)
    flow.put(frame(b"") + frame(b"x"), 0.0)
    assert b"".join(pieces(flow)) == frame(b"") + frame(b"x")[:4]


@pytest.mark.parametrize("end", [End.RESET, End.FIN, End.HALF_OPEN])
def test_after_an_end_that_is_not_a_stall_bytes_are_thrown_away(end: End) -> None:
    flow = Flow(Fault(end=end), 0.0)
    flow.put(b"lost", 0.0)
    assert (flow.held, pieces(flow)) == (0, [])
    assert flow.finished(0.0) is (end is End.FIN)


@pytest.mark.parametrize(
    "wrong",
    [
        {"delay_s": -1},
        {"bytes_per_s": 0},
        {"split": 0},
        {"mid_frame": True},
        {"min_frame": 3, "end": End.FIN},
        {"min_frame": 3},
    ],
)
def test_faults_that_mean_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"Fault\("):
        Fault(**wrong)  # type: ignore[arg-type]
