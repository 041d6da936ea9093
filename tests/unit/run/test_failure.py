"""A query ends with the first error that no retry ends, however many errors follow from it."""

from __future__ import annotations

import pytest

from streamgroup.errors import ConfigError, FencedError, StreamGroupError
from streamgroup.run.failure import Failure

FIRST, LATER = FencedError("another member has joined as t-1"), ConfigError("the topic is gone")


def test_a_query_without_an_error_goes_on() -> None:
    failure = Failure()
    failure.raise_it()
    assert failure.error is None


@pytest.mark.parametrize("error", [FIRST, LATER], ids=lambda error: type(error).__name__)
def test_the_error_itself_is_raised_at_every_call(error: StreamGroupError) -> None:
    failure = Failure()
    failure.set(error)
    for _ in range(2):
        with pytest.raises(type(error)) as caught:
            failure.raise_it()
        assert caught.value is error


def test_a_later_error_does_not_replace_the_first_one() -> None:
    failure = Failure()
    failure.set(FIRST)
    failure.set(LATER)
    assert failure.error is FIRST
    with pytest.raises(FencedError, match="another member has joined"):
        failure.raise_it()


def test_the_failure_of_one_query_is_not_that_of_another() -> None:
    failed, other = Failure(), Failure()
    failed.set(FIRST)
    other.raise_it()
    other.set(LATER)
    assert (failed.error, other.error) == (FIRST, LATER)
