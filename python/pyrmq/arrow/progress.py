"""The progress of a long read, on a terminal."""

from __future__ import annotations

import sys
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

__all__ = ["shown"]

_FIRST_S = 1.0
"""Shorter reads show nothing."""
_EACH_S = 0.5


def shown(batches: Iterator[pa.RecordBatch], most_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield batches and show the progress, if standard error is a terminal.

    Args:
        batches: the batches.
        most_rows: rows if every message passes the filters.
    """
    if not sys.stderr.isatty():
        yield from batches
        return
    began = said = monotonic()
    rows = 0
    try:
        for batch in batches:
            rows += batch.num_rows
            now = monotonic()
            if now - began >= _FIRST_S and now - said >= _EACH_S:
                said = now
                bar = "#" * (25 * rows // max(most_rows, rows, 1))
                rate = rows / (now - began)
                text = f"\r\x1b[K[{bar:<25}] {rows:,} of at most {most_rows:,} rows, {rate:,.0f}/s"
                _write(text)
            yield batch
    finally:
        if said != began:
            _write("\r\x1b[K")


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
