"""Shows the progress of a walk on a terminal."""

from __future__ import annotations

import time
from typing import Self

from pyrmq.cli.output import show_progress

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

    def add(self, count: int) -> None:
        """Add a number of bytes."""
        self._done += count
        now = time.monotonic()
        if now - self._said >= _EACH:
            self._said = now
            share = min(100.0, self._done / self._total * 100)
            rate = self._done / (now - self._began) / 1e6
            bar = "#" * int(share / 4)
            show_progress(f"{share:5.1f} %  [{bar:<25}]  {rate:,.0f} MB/s")

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """Wipe the line."""
        if self._said != self._began:
            show_progress("")
