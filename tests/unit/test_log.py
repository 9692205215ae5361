"""Rust's events in Python's logging: levels, names, nothing before a server wants it."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from pyrmq import _core
from pyrmq.server import log

if TYPE_CHECKING:
    import pytest


def test_events_reach_their_logger_with_their_level(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "pyrmq"):
        log.acquire()
        _core.log_put(30, "pyrmq.broker.register", "no answer address=127.0.0.1:1")
        _core.log_put(10, "pyrmq.store", "dispatched")
        log.release()
    found = [(record.name, record.levelname, record.getMessage()) for record in caplog.records]
    assert found == [
        ("pyrmq.broker.register", "WARNING", "no answer address=127.0.0.1:1"),
        ("pyrmq.store", "DEBUG", "dispatched"),
    ]


def test_percent_signs_are_text(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "pyrmq"):
        log.acquire()
        _core.log_put(20, "pyrmq.store", "disk 90%s full")
        log.release()
    assert caplog.messages == ["disk 90%s full"]


def test_the_thread_ends_with_its_last_user() -> None:
    def threads() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "pyrmq-log"]

    log.acquire()
    log.acquire()
    log.release()
    assert threads() == ["pyrmq-log"]
    log.release()
    assert threads() == []


def test_a_flood_is_cut_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    for number in range(10_000):
        _core.log_put(20, "pyrmq.store", str(number))
    with caplog.at_level(logging.INFO, "pyrmq"):
        log.acquire()
        log.release()
    kept = [record for record in caplog.records if record.name == "pyrmq.store"]
    (said,) = [record for record in caplog.records if record.name == "pyrmq.log"]
    assert [record.getMessage() for record in kept] == [str(n) for n in range(len(kept))]
    assert said.getMessage() == (
        f"{10_000 - len(kept)} events were dropped: they came faster than they are written"
    )


def test_importing_starts_no_thread_and_touches_no_logger() -> None:
    program = (
        "import logging, threading, pyrmq, pyrmq.server.log\n"
        "print(threading.active_count(), logging.root.handlers)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=20
    )
    assert done.stdout == "1 []\n"
