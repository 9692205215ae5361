"""How late this machine wakes threads that ask for it: what a call is not to be blamed for.

Threads that do nothing but sleep for a few milliseconds note when they woke too late. A busy
machine, and a busy interpreter, make them late just as they make the threads late that call the
producer. What is left of a call's overtime, when the time in which such a thread was overdue is
taken off, is the call's own.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAP_S = 0.004
_WATCHERS = 4
_NOTED_S = 0.004


class Watch:
    """Measures while its block runs."""

    def __init__(self) -> None:
        """Nothing is measured yet."""
        self._overdue: list[tuple[float, float]] = []
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(_WATCHERS)]

    def __enter__(self) -> Self:
        """Begin."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            due = time.monotonic() + _NAP_S
            time.sleep(_NAP_S)
            woke = time.monotonic()
            if woke - due > _NOTED_S:
                self._overdue.append((due, woke))

    @property
    def longest_s(self) -> float:
        """The longest time that a watcher was overdue."""
        return max((woke - due for due, woke in self._overdue), default=0.0)

    def overdue(self, begin: float, end: float) -> float:
        """Seconds between two times in which at least one watcher was overdue."""
        return covered(self._overdue, begin, end)


def covered(spans: Iterable[tuple[float, float]], begin: float, end: float) -> float:
    """Seconds between two times that lie in any of the spans."""
    total, reached = 0.0, begin
    for first, last in sorted(spans):
        first, last = max(first, reached), min(last, end)
        if last > first:
            total += last - first
            reached = last
    return total
