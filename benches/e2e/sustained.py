"""The row `sustained`: `produce` at full rate for so long that retention by size deletes all along.

A fresh store profits from page cache that is still unused, and it deletes nothing. So each side
sends without a pause until the time is up; what counts is the rate of the last quarter.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from benches.e2e.rivals import run_load
from benches.e2e.rivals.servers import NotAvailableError, kafka
from benches.e2e.servers import ours
from benches.row import Row
from benches.usage import cpu_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from benches.e2e.servers import Side

PARTITIONS = 4
SEGMENT = 128 << 20
SIZE = 128
SPARE = 3_000_000_000
COUNT = 500_000
"""Messages of one run of the load, some tenths of a second to a second."""


def sustained_rows(seconds: float, limit: int) -> Iterator[Row]:
    """Send to each side for `seconds`, with at most about `limit` bytes of log on the disk.

    Raises:
        SystemExit: the disk has no room for that.
    """
    # Queues and index come on top of the log, and retention is late by a second at full rate.
    needed, free = limit * 3 // 2 + SPARE, shutil.disk_usage(tempfile.gettempdir()).free
    if free < needed:
        raise SystemExit(
            f"the row `sustained` needs {needed / 1e9:.1f} GB in {tempfile.gettempdir()}, and "
            f"{free / 1e9:.1f} GB are free: give a smaller --keep, or set TMPDIR"
        )
    row = Row(
        name="sustained",
        what=f"produce, 128 B, after {seconds:g} s at full rate, {limit / 1e9:g} GB kept",
        unit="msg/s",
        target=">= 1.5",
        rival="confluent",
    )
    for name, load, started in (
        ("ours", "pyrmq produce", _ours(limit)),
        ("confluent", "confluent produce", _kafka(limit)),
    ):
        if name == "confluent" and find_spec("confluent_kafka") is None:
            print("not available: confluent-kafka is not installed", file=sys.stderr)
            continue
        try:
            with started as side:
                _send(row, name, load, side, seconds)
        except NotAvailableError as error:
            print(f"not available: {name}: {error}", file=sys.stderr)
    if row.rival not in row.figures:
        # The table of rivals has no line for one side.
        row.client_us.clear()
    yield row


@contextmanager
def _ours(limit: int) -> Iterator[Side]:
    # Retention looks every 10 s by default; at full rate that is gigabytes.
    with ours(store={"storeMaxBytes": limit, "cleanResourceInterval": 1000}) as (side, _):
        yield side


def _kafka(limit: int) -> AbstractContextManager[Side]:
    keys = {
        "log.retention.bytes": str(limit // PARTITIONS),
        "log.retention.check.interval.ms": "1000",
        "log.segment.delete.delay.ms": "0",
        "log.segment.bytes": str(min(SEGMENT, max(limit // PARTITIONS // 4, 1 << 20))),
    }
    return kafka(properties=keys)


def _send(row: Row, name: str, load: str, side: Side, seconds: float) -> None:
    begin = time.monotonic()
    samples: list[tuple[float, float, float]] = []
    while (passed := time.monotonic() - begin) < seconds:
        before = cpu_seconds(side.broker_pid)
        figures = run_load(load, side, COUNT, SIZE)
        spent = (cpu_seconds(side.broker_pid) - before) * 1e6 / COUNT
        samples.append((figures["figure"], spent, figures["cpu_us"]))
        stored = _stored(side.home)
        print(
            f"  {name}: {passed:.0f} s, {figures['figure']:,.0f} msg/s, "
            f"{stored / 1e9:.2f} GB on the disk",
            file=sys.stderr,
            flush=True,
        )
    last = samples[-max(1, len(samples) // 4) :]
    for figure, spent, client in last:
        row.add(name, figure, spent)
        row.client_us.setdefault(name, []).append(client)
    first = statistics.median(figure for figure, *_ in samples[: max(1, len(samples) // 4)])
    print(
        f"  {name}: first quarter {first:,.0f} msg/s, last {row.median(name):,.0f}", file=sys.stderr
    )


def _stored(home: str) -> int:
    """Return the bytes that a side's files take on the disk."""
    total = 0
    for path in Path(home).rglob("*"):
        with suppress(OSError):  # it was deleted meanwhile
            total += path.stat().st_blocks * 512
    return total
