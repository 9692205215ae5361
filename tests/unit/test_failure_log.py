"""Failures that may come with every message are a few lines of the log."""

from __future__ import annotations

import logging
import os
import re
from typing import TYPE_CHECKING

import pytest

from pyrmq._client import failure_log
from pyrmq._client.failure_log import FailureLog, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock:
    """A clock that a test moves."""

    now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(failure_log, "monotonic", clock)
    return clock


def no_stock(number: int) -> None:
    raise ValueError(f"no stock of {number}")


def no_customer(number: int) -> None:
    raise ValueError(f"no customer {number}")


def fail(log: FailureLog, number: int, function: Callable[[int], None] = no_stock) -> None:
    try:
        function(number)
    except ValueError as error:
        log.add("message %d: %r", number, error, kind=kind_of(error), error=error)


def counted(caplog: pytest.LogCaptureFixture) -> int:
    """Add up the failures that the lines stand for."""
    more = (re.search(r"; (\d+) more since", one.getMessage()) for one in caplog.records)
    return sum(1 if one is None else int(one[1]) for one in more)


def test_a_kind_is_logged_with_its_stack_and_then_counted_in_one_line_each_ten_seconds(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    log = FailureLog()
    for number in range(1000):
        fail(log, number)
        clock.now += 0.03
    first, *later = caplog.records
    assert first.getMessage() == "message 0: ValueError('no stock of 0')"
    assert first.exc_info
    assert len(later) == 2
    assert not any(one.exc_info for one in later)
    text = "message 334: ValueError('no stock of 334'); 334 more since the last such line"
    assert later[0].getMessage() == text
    log.report(at_end=True)
    assert counted(caplog) == 1000


def test_what_is_pending_is_reported_once_its_line_is_due(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    log = FailureLog()
    for number in range(10):
        fail(log, number)
    log.report()
    assert len(caplog.records) == 1
    clock.now += 10
    for _ in range(2):
        log.report()
        assert len(caplog.records) == 2
    assert counted(caplog) == 10


def test_kinds_are_distinguished_by_the_line_that_raised_them_and_by_its_cause(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    del clock
    log = FailureLog()
    for number in range(10):
        fail(log, number)
        fail(log, number, no_customer)
    assert [one.getMessage() for one in caplog.records] == [
        "message 0: ValueError('no stock of 0')",
        "message 0: ValueError('no customer 0')",
    ]

    def wrapped(cause: Callable[[int], None]) -> tuple[object, ...]:
        try:
            try:
                cause(1)
            except ValueError as error:
                raise LookupError from error
        except LookupError as error:
            return kind_of(error)
        raise AssertionError

    assert wrapped(no_stock) == wrapped(no_stock) != wrapped(no_customer)


def test_a_stack_is_logged_again_after_an_hour(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    log = FailureLog()
    for _ in range(3):
        fail(log, 1)
        clock.now += 1800
    assert [bool(one.exc_info) for one in caplog.records] == [True, False, True]


def test_kinds_are_bounded(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    del clock
    log = FailureLog()
    for number in range(5000):
        log.add("failed", kind=(number,))
    assert len(caplog.records) <= 102
    log.report(at_end=True)
    assert len(caplog.records) <= 202
    assert counted(caplog) == 5000


def test_texts_that_cannot_be_made_are_counted_too(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    del clock

    class Strange:
        def __repr__(self) -> str:
            raise OSError

    log = FailureLog()
    log.add("failed for %r", Strange())
    log.add("failed for %r", Strange())
    log.report(at_end=True)
    assert counted(caplog) == 2


def test_a_log_that_fails_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(logging.Handler):
        def emit(self, _: logging.LogRecord) -> None:
            raise OSError("the log's server is away")

    monkeypatch.setattr(logging, "raiseExceptions", False)
    handler = Refusing()
    logging.getLogger("pyrmq.consumer").addHandler(handler)
    try:
        fail(FailureLog(), 1)
    finally:
        logging.getLogger("pyrmq.consumer").removeHandler(handler)


def test_a_forked_child_reports_nothing(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    del clock
    log = FailureLog()
    fail(log, 1)
    fail(log, 2)
    log._pid = os.getppid()
    log.report(at_end=True)
    assert counted(caplog) == 1
