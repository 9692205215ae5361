"""Shows the progress of a walk on a terminal."""

from __future__ import annotations

import sys
import time
from typing import Self

_EACH = 0.5


class Progress:
    """Counts bytes, and shows their number, total and rate on standard error.

    Args:
        total: number of all bytes.
    """

    def __init__(self, total: int) -> None:
        self._total = max(1, total)
        self._done = 0
        self._began = self._said = time.monotonic()
        self._show = sys.stderr.isatty()

    def add(self, count: int) -> None:
        """Add a number of bytes."""
        self._done += count
        now = time.monotonic()
        if self._show and now - self._said >= _EACH:
            self._said = now
            share = min(100.0, self._done / self._total * 100)
            rate = self._done / (now - self._began) / 1e6
            bar = "#" * int(share / 4)
            print(f"\r[{bar:<25}] {share:5.1f} %  {rate:,.0f} MB/s", end="", file=sys.stderr)

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """Wipe the line."""
        if self._show:
            print("\r" + " " * 60 + "\r", end="", file=sys.stderr)
