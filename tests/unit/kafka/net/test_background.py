from __future__ import annotations

import threading

import pytest

from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.kafka.net.background import Background, WaitTimeout
from tests.waiting import TIMEOUT_S

TIMEOUT = WaitTimeout("it took too long", "Wait")


def test_the_result_comes_from_another_thread_which_notifies() -> None:
    notified = threading.Event()
    background = Background(threading.get_ident, TIMEOUT, notified.set)
    assert notified.wait(TIMEOUT_S)
    assert background.done
    assert background.result() != threading.get_ident()


def raise_error(error: Exception) -> None:
    raise error


def test_an_error_of_ours_is_raised_as_it_is() -> None:
    error = ConfigError("wrong")
    background = Background(lambda: raise_error(error), TIMEOUT)
    background.wait(TIMEOUT_S)
    with pytest.raises(ConfigError) as caught:
        background.result()
    assert caught.value is error


def test_any_other_error_becomes_a_typed_one_without_its_text() -> None:
    background = Background(lambda: raise_error(ZeroDivisionError("hunter2")), TIMEOUT)
    background.wait(TIMEOUT_S)
    with pytest.raises(StreamGroupError, match="cannot authenticate: unexpected ZeroDivisionError") as caught:
        background.result()
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None
