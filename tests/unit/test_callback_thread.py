"""The thread of a consumer that calls functions at an interval."""

from __future__ import annotations

import threading
from typing import Any

from pyrmq.consumer.callbacks import CallbackThread


class Control:
    """A native consumer that has no callbacks."""

    def __init__(self) -> None:
        self._woken = threading.Event()

    def serve_callbacks(self) -> None:
        """Do nothing."""

    def wake_callbacks(self) -> None:
        """End the wait of the thread."""
        self._woken.set()

    def next_callback(self, timeout_ms: int) -> None:
        """Wait."""
        self._woken.wait(timeout_ms / 1000)
        self._woken.clear()


def test_a_function_is_called_before_its_time_if_that_is_asked_for() -> None:
    control: Any = Control()
    thread = CallbackThread(control, "g")
    wanted, other = threading.Event(), threading.Event()
    thread.repeat(3600, wanted.set)
    thread.repeat(3600, other.set)
    thread.start()
    try:
        for _ in range(2):
            thread.call_soon(wanted.set)
            assert wanted.wait(20)
            wanted.clear()
        assert not other.is_set()
    finally:
        thread.end()
