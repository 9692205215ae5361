"""Rows of `produce` at full rate for so long that retention by size deletes all along.

A fresh store profits from page cache that is still unused, and it deletes nothing. So both sides
send without a pause, in alternating turns of a minute by default, while each keeps as much log.
The turns of the second half count: the machine has been at full rate for ten minutes by then.

Both brokers run all the time. One that waits holds its part of the page cache and writes nothing:
the disk is synced between the turns.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from benches.e2e.consumers.common import scaled
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
SPARE = 3_000_000_000
ENOUGH = 1 << 30
"""Free bytes above which our broker ignores how full the disk is, as Kafka always does."""
BYTES_PER_RUN = 640_000_000
"""Bodies of one run of the load: some seconds, so that starting its process is a small part."""


@dataclass(frozen=True)
class Plan:
    """One row: the bytes of a body, and the side that ours is compared with."""

    name: str
    size: int
    rival: str
    target: str

    @property
    def what(self) -> str:
        """Return the text of the row."""
        size = f"{self.size} B" if self.size < 1024 else f"{self.size // 1024} KiB"
        beside = "confluent-kafka" if self.rival == "confluent" else "without a hot window"
        return f"produce, {size}, {{seconds:g}} s a side, {{limit:.3g}} GB kept / {beside}"


PLANS = (
    Plan("sustained", 128, "confluent", ">= 2.2"),
    Plan("sustained1k", 1024, "confluent", ">= 2"),
    Plan("hot-produce", 128, "without", "reported"),
    Plan("hot-produce1k", 1024, "without", "reported"),
)


def sustained_rows(
    names: set[str], rounds: int, scale: float, *, seconds: float, limit: int
) -> Iterator[Row]:
    """Send to each side in turns, with at most about `limit` bytes of log of each on the disk.

    Args:
        names: of the rows.
        rounds: turns of each side that count; as many come before.
        scale: share of time, bytes and messages.
        seconds: of all turns of a side together.
        limit: bytes of its log.

    Raises:
        SystemExit: the disk has no room for that.
    """
    seconds, limit = seconds * scale, max(4 * SEGMENT, int(limit * scale))
    check_space(limit)
    for plan in (plan for plan in PLANS if plan.name in names):
        count = scaled(BYTES_PER_RUN // plan.size, scale, 1000)
        row = Row(
            name=plan.name,
            what=plan.what.format(seconds=seconds, limit=limit / 1e9),
            unit="msg/s",
            target=plan.target,
            rival=plan.rival,
        )
        try:
            with ExitStack() as stack:
                sides = {
                    "ours": stack.enter_context(_ours(limit)),
                    plan.rival: stack.enter_context(_rival(plan.rival, limit)),
                }
                _take_turns(row, sides, rounds, seconds / (2 * rounds), count, plan.size)
        except NotAvailableError as error:
            print(f"not available: {row.what}: {error}", file=sys.stderr)
            continue
        yield row


def check_space(limit: int) -> None:
    """Check that both sides' files fit on the disk.

    Raises:
        SystemExit: they do not.
    """
    # Queues and index come on top of the log, and retention is late by a second at full rate.
    needed, free = 2 * (limit * 5 // 4) + SPARE, shutil.disk_usage(tempfile.gettempdir()).free
    if free < needed:
        raise SystemExit(
            f"these rows need {needed / 1e9:.1f} GB in {tempfile.gettempdir()}, and "
            f"{free / 1e9:.1f} GB are free: give a smaller --keep, or set TMPDIR"
        )


@contextmanager
def _ours(limit: int, **more: object) -> Iterator[Side]:
    # Retention looks every 10 s by default; at full rate that is gigabytes.
    store = {"storeMaxBytes": limit, "cleanResourceInterval": 1000, "diskSpaceEnoughBytes": ENOUGH}
    with ours(store={**store, **more}) as (side, _):
        yield side


def _rival(name: str, limit: int) -> AbstractContextManager[Side]:
    if name == "without":
        return _ours(limit, hotLogBytes=0)
    if find_spec("confluent_kafka") is None:
        raise NotAvailableError("confluent-kafka is not installed")
    keys = {
        "log.retention.bytes": str(limit // PARTITIONS),
        "log.retention.check.interval.ms": "1000",
        "log.segment.delete.delay.ms": "0",
        "log.segment.bytes": str(min(SEGMENT, limit // PARTITIONS // 4)),
    }
    return kafka(properties=keys)


def _take_turns(
    row: Row, sides: dict[str, Side], rounds: int, seconds: float, count: int, size: int
) -> None:
    """Run the turns of both sides; those of the second half count."""
    first: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(2 * rounds):
        for name, side in sides.items():
            load = "confluent produce" if name == "confluent" else "pyrmq produce"
            rate, spent, client = _turn(load, side, seconds, count, size)
            print(
                f"  {row.name}, turn {turn + 1} of {2 * rounds}, {name}: {rate:,.0f} msg/s, "
                f"{_stored(side.home) / 1e9:.2f} GB on the disk",
                file=sys.stderr,
                flush=True,
            )
            if turn < rounds:
                first[name].append(rate)
                continue
            row.add(name, rate, spent, server=side.broker_pid)
            row.client_us.setdefault(name, []).append(client)
    for name, rates in first.items():
        before, after = statistics.median(rates), row.median(name)
        print(f"  {name}: first half {before:,.0f} msg/s, second {after:,.0f}", file=sys.stderr)


def _turn(
    load: str, side: Side, seconds: float, count: int, size: int
) -> tuple[float, float, float]:
    """Send until the time is up; return messages a second, and µs of server and client each."""
    runs: list[tuple[float, float]] = []
    began = time.monotonic()
    # No side should pay for the other side's pages.
    os.sync()
    before = cpu_seconds(side.broker_pid)
    while not runs or time.monotonic() - began < seconds:
        figures = run_load(load, side, count, size)
        runs.append((figures["figure"], figures["cpu_us"]))
    spent = (cpu_seconds(side.broker_pid) - before) * 1e6 / (count * len(runs))
    # All runs have as many messages.
    rate = statistics.harmonic_mean([rate for rate, _ in runs])
    return rate, spent, statistics.fmean(client for _, client in runs)


def _stored(home: str) -> int:
    """Return the bytes that a side's files take on the disk."""
    total = 0
    for path in Path(home).rglob("*"):
        with suppress(OSError):  # it was deleted meanwhile
            total += path.stat().st_blocks * 512
    return total
