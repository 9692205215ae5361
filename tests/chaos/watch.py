"""Measures how late this machine wakes threads: delays that are not a call's fault.

Threads that only sleep for a few milliseconds record when they woke too late. A busy machine, and a
busy interpreter, delay them just as they delay the threads that call the producer. Linux also
counts for each thread how long it was ready to run but did not run (run delay). The delays of the
thread that got the outcome, and of the producer's threads, are sampled. A call is responsible for
its overtime minus the time in which such a thread was overdue.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAP_S = 0.004
_WATCHERS = 4
_NOTED_S = 0.004
_SAMPLE_S = 0.02
_TASKS = Path("/proc/self/task")

Delays = dict[int, float]
"""Seconds for which threads, by native id, were ready but did not run, since they began."""


class Watch:
    """Measures while its block runs."""

    def __init__(self) -> None:
        """Start without samples."""
        self._overdue: list[tuple[float, float]] = []
        # The time of each sample, and the growth of run delays since the previous one.
        self._samples: list[tuple[float, Delays]] = [(time.monotonic(), {})]
        self._known: set[int] = set()
        self._ours: set[int] = set()
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(_WATCHERS)]
        self._threads.append(threading.Thread(target=self._sample))

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

    def _sample(self) -> None:
        before: Delays = {}
        while not self._ended.wait(_SAMPLE_S):
            now = self._run_delays()
            grown = {thread: s - before.get(thread, s) for thread, s in now.items()}
            self._samples.append((time.monotonic(), grown))
            before = now

    def _run_delays(self) -> Delays:
        found: Delays = {}
        for task in _TASKS.iterdir() if _TASKS.is_dir() else ():
            # A thread may end meanwhile.
            with suppress(OSError, IndexError):
                thread = int(task.name)
                found[thread] = int((task / "schedstat").read_text().split()[1]) / 1e9
                if thread not in self._known:
                    self._known.add(thread)
                    if (task / "comm").read_text().startswith("pyrmq"):
                        self._ours.add(thread)
        return found

    @property
    def longest_s(self) -> float:
        """Return the longest time that a watcher was overdue."""
        return max((woke - due for due, woke in self._overdue), default=0.0)

    def overdue(self, begin: float, end: float, thread: int) -> float:
        """Return the seconds of a span in which a watcher, the thread or the producer was overdue.

        Args:
            begin: when the call was due.
            end: when its caller got the outcome.
            thread: the native id of the thread that got the outcome.
        """
        ready, first = 0.0, self._samples[0][0]
        for last, grown in self._samples[1:]:
            within = min(last, end) - max(first, begin)
            if within > 0:
                longest = max((grown.get(one, 0.0) for one in (thread, *self._ours)), default=0.0)
                ready += min(within, longest)
            first = last
        return max(ready, covered(self._overdue, begin, end))


def covered(spans: Iterable[tuple[float, float]], begin: float, end: float) -> float:
    """Return the seconds between two times that are in any of the spans."""
    total, reached = 0.0, begin
    for first, last in sorted(spans):
        first, last = max(first, reached), min(last, end)
        if last > first:
            total += last - first
            reached = last
    return total
