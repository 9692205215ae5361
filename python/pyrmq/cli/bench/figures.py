"""The result of a load: counts, rate over time, percentiles, CPU time of both sides."""

from __future__ import annotations

import os
import resource
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pyrmq.cli.output import show_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sized

BACKLOG = 1_000_000
"""Messages to consume if no count is given."""
SAMPLE = 64
"""One message in this many is timed, where timing costs more than sending."""
TIMEOUT = 30.0
"""Seconds without a message after which a load gives up."""
_TICK = 0.1
_SAY_EACH = 5
"""Ticks between two lines of progress."""


@dataclass
class Figures:
    """One load on one cluster.

    Attributes:
        client: the library that sent or read.
        how: the method used.
        size: bytes of a body.
        messages: how many were acknowledged or read.
        failed: how many were not.
        seconds: from the first to the last.
        latencies: samples, in seconds, sorted.
        timeline: seconds since the start, and messages by then.
        client_cpu: seconds of CPU of this process.
        server_cpu: seconds of CPU of the server; None when its process is not known.
    """

    client: str
    how: str
    size: int
    messages: int = 0
    failed: int = 0
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    timeline: list[tuple[float, int]] = field(default_factory=list)
    client_cpu: float = 0.0
    server_cpu: float | None = None

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds if self.seconds else 0.0

    def row(self) -> dict[str, object]:
        """The figures for a table: whole rates, times in ms, CPU in µs per message."""
        return {
            "client": self.client,
            "how": self.how,
            "size": self.size,
            "messages": self.messages,
            "failed": self.failed,
            "seconds": round(self.seconds, 2),
            "per second": round(self.rate),
            "MB per second": round(self.rate * self.size / 1e6, 1),
            **{f"{name} ms": self._percentile(share) for name, share in _PERCENTILES.items()},
            "client cpu us": self._each(self.client_cpu),
            "server cpu us": self._each(self.server_cpu),
        }

    def _percentile(self, share: float) -> float | None:
        at = percentile(self.latencies, share)
        return None if at is None else round(at * 1e3, 3)

    def _each(self, seconds: float | None) -> float | None:
        if seconds is None or not self.messages:
            return None
        return round(seconds * 1e6 / self.messages, 2)


_PERCENTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}


def percentile(ordered: list[float], share: float) -> float | None:
    """The sample at or below which that share of the samples lies; None without samples.

    Example:
        >>> percentile([1.0, 2.0, 3.0, 4.0], 0.5)
        2.0
    """
    if not ordered:
        return None
    return ordered[max(0, min(len(ordered) - 1, int(share * len(ordered) + 0.5) - 1))]


class Measuring:
    """Measures what all loads have in common, and shows progress.

    Args:
        figures: what is filled in.
        so_far: returns the number of messages done.
        server_pid: process whose CPU time counts as the server's.
    """

    def __init__(self, figures: Figures, so_far: Callable[[], int], server_pid: int | None) -> None:
        self._figures = figures
        self._so_far = so_far
        self._server_pid = server_pid
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="pyrmq-bench", daemon=True)

    def __enter__(self) -> Self:
        """Start the clock."""
        self._server_before = _cpu_of(self._server_pid)
        self._client_before = _own_cpu()
        self._began = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the clock: messages that are not done do not count."""
        figures = self._figures
        figures.seconds = time.perf_counter() - self._began
        figures.client_cpu = _own_cpu() - self._client_before
        after = _cpu_of(self._server_pid)
        if after is not None and self._server_before is not None:
            figures.server_cpu = after - self._server_before
        self._end.set()
        self._thread.join()
        figures.messages = self._so_far()
        figures.timeline.append((figures.seconds, figures.messages))
        figures.latencies.sort()

    def _watch(self) -> None:
        tick = 0
        while not self._end.wait(_TICK):
            tick += 1
            now, done = time.perf_counter() - self._began, self._so_far()
            self._figures.timeline.append((now, done))
            if tick % _SAY_EACH == 0:
                rate = done / now
                show_progress(f"{now:6.1f} s  {done:>12,} messages  {rate:>10,.0f}/s")
        show_progress("")


def drain(
    figures: Figures, wanted: int, take: Callable[[], Sized], server_pid: int | None
) -> Figures:
    """Read messages until enough have arrived, or no more arrive."""
    read = 0
    with Measuring(figures, lambda: read, server_pid):
        while read < wanted:
            taken = len(take())
            if not taken:
                figures.failed = wanted - read
                break
            read += taken
    return figures


def trips(
    figures: Figures, turns: Iterable[int], trip: Callable[[], bool], server_pid: int | None
) -> Figures:
    """Send and receive messages, one after the other, until one does not arrive."""
    done = 0
    with Measuring(figures, lambda: done, server_pid):
        for _ in turns:
            began = time.perf_counter()
            if not trip():
                figures.failed += 1
                break
            figures.latencies.append(time.perf_counter() - began)
            done += 1
    return figures


def _own_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _cpu_of(pid: int | None) -> float | None:
    """User and system time of a process so far; None where it cannot be read."""
    if pid is None:
        return None
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
