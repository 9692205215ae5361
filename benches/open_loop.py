"""Open loops: messages sent on a fixed schedule, and the histograms of their latency.

A load that waits for each answer sends less while answers are slow, so its percentiles leave out
the time that matters (coordinated omission). Here a latency counts from the scheduled time, and a
late send counts as waiting. How late each send began is a histogram of its own, so that a reader
sees what of a latency is not its own message's: the generator woke late, or an earlier send took
longer than the time between two.

Histograms are HdrHistograms of nanoseconds with three significant digits, in their compressed form
(V2, base64), which programs for any language read.
"""

from __future__ import annotations

import ctypes
import sys
import time
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SPIN_S = 200e-6
"""The generator wakes this much early and reads the clock until it is time: a thread that sleeps to
the scheduled time wakes 0.1 to 0.2 ms late."""
START_S = 0.5
LONGEST_NS = 3600 * 10**9
DIGITS = 3
PERCENTILES = {"p50": 50.0, "p99": 99.0, "p999": 99.9}
LIBRARY = "hdrh"
"""Module of the package `hdrhistogram`, of the extra `bench`."""
_PR_SET_TIMERSLACK = 29

Summary = dict[str, Any]
"""Percentiles in µs, by name and by name with `late_`; `histogram` and `late_histogram` as text."""


def is_available() -> bool:
    """Return whether the library of histograms is installed."""
    return find_spec(LIBRARY) is not None


def at_rate(
    send: Callable[[float], object], count: int, rate: float, *, spin: float = SPIN_S
) -> list[float]:
    """Call `send` at a fixed rate with its scheduled time; return how late each call began.

    Args:
        send: is called with the time of `time.perf_counter` at which it was due.
        count: number of calls.
        rate: calls a second.
        spin: seconds before each call in which the thread does not sleep. It takes a processor and
            the interpreter then, so it should be a small part of the time between calls.
    """
    wake_exactly()
    begin = time.perf_counter() + START_S
    late = []
    for number in range(count):
        at = begin + number / rate
        time.sleep(max(0.0, at - spin - time.perf_counter()))
        while (now := time.perf_counter()) < at:
            pass
        late.append(now - at)
        send(at)
    return late


def wake_exactly() -> None:
    """Let timers of this thread end when they are due: Linux delays them by up to 50 µs."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


@dataclass(frozen=True)
class OpenLoop:
    """What one turn measured.

    Attributes:
        took: seconds from the schedule to the arrival of each message.
        late: seconds from the schedule to the beginning of each send.
        figure: the percentile that is the row's figure.
    """

    took: Sequence[float]
    late: Sequence[float]
    figure: str = "p50"

    def summary(self) -> Summary:
        """Return percentiles and histograms."""
        return summary(_histogram(self.took), _histogram(self.late))


def summary(took: Any, late: Any) -> Summary:  # noqa: ANN401 - of a library without types
    """Return percentiles and the compressed form of two histograms."""
    found: Summary = {}
    for prefix, histogram in (("", took), ("late_", late)):
        for name, share in PERCENTILES.items():
            found[prefix + name] = histogram.get_value_at_percentile(share) / 1e3
        found[prefix + "histogram"] = histogram.encode().decode("ascii")
    return found


def merged(turns: Sequence[Summary]) -> Summary:
    """Return the summary of all turns together: percentiles cannot be averaged."""
    both = []
    for key in ("histogram", "late_histogram"):
        whole = _empty()
        for turn in turns:
            whole.add(_decoded(turn[key]))
        both.append(whole)
    return summary(*both)


def of_turn(histogram: str, late: Sequence[float]) -> Summary:
    """Return the summary of a turn whose arrivals another process has counted by `encoded`."""
    return summary(_decoded(histogram), _histogram(late))


def encoded(seconds: Sequence[float]) -> str:
    """Return the compressed histogram of some times."""
    return str(_histogram(seconds).encode(), "ascii")


def _decoded(text: str) -> Any:  # noqa: ANN401 - of a library without types
    return _module().HdrHistogram.decode(text)


def _module() -> Any:  # noqa: ANN401 - a library without types, which may be missing
    return import_module(f"{LIBRARY}.histogram")


def _empty() -> Any:  # noqa: ANN401 - of a library without types
    return _module().HdrHistogram(1, LONGEST_NS, DIGITS)


def _histogram(seconds: Sequence[float]) -> Any:  # noqa: ANN401 - of a library without types
    made = _empty()
    for one in seconds:
        made.record_value(min(LONGEST_NS, max(1, round(one * 1e9))))
    return made
