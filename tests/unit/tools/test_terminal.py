"""The picture of the demo: what is shown of a recording, and what is left out."""

from __future__ import annotations

from tools.pictures.terminal import RECORD, demo, excerpt

RECORDING = """
1. starting Kafka
   brokers at 127.0.0.1:1
3. \x1b[1mspark-submit\x1b[0m --member b
   a | batch 3: 1 rows
   a | batch 4: 1 rows
   a | batch 5: 1 rows

   b | joined
4. SIGTERM to b
   a | batch 9: 1 rows
5. the producer stops
   a | batch 10: 1 rows
---- result ----
every record arrived exactly once

Files and logs are in /tmp/x
"""


def test_two_steps_and_the_result_are_shown_and_what_is_left_out_is_marked() -> None:
    left_out = "   \N{VERTICAL ELLIPSIS}"
    assert list(excerpt(RECORDING.splitlines())) == [
        left_out,
        "3. \x1b[1mspark-submit\x1b[0m --member b",
        "   a | batch 3: 1 rows",
        "   a | batch 4: 1 rows",
        left_out,
        "   b | joined",
        "4. SIGTERM to b",
        "   a | batch 9: 1 rows",
        left_out,
        "---- result ----",
        "every record arrived exactly once",
    ]


def test_the_recording_is_of_a_demo_that_succeeded() -> None:
    assert RECORD.read_text().splitlines()[-1].endswith("every record arrived exactly once\x1b[0m")
    svg = demo()
    assert "every&#160;record&#160;arrived&#160;exactly&#160;once" in svg
    assert "@font-face" not in svg
