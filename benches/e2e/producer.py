"""Rows of our producer, on our broker and on the real one: `--rows producer`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benches.e2e.rows import warm
from benches.loads import LOADS, run
from benches.row import Row
from benches.usage import cpu_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benches.e2e.servers import Side


def _rows() -> list[tuple[Row, str]]:
    def row(what: str, target: str, unit: str = "msg/s", *, less: bool = False) -> Row:
        return Row(what=f"producer: {what}", unit=unit, target=target, less_is_more=less)

    return [
        (row("produce, 128 B", ">= 600,000"), "produce"),
        (row("produce, 128 B, a callback each", ">= 600,000"), "callback"),
        (row("produce, 1 KiB", ""), "produce1k"),
        (row("produce, 10 KiB of JSON, compressed", ""), "produce10k"),
        (
            row("produce, linger=0: single frames in flight, 128 B", ">= 140,000"),
            "single",
        ),
        (row("send, one at a time, p50", "", "µs", less=True), "lone"),
        (row("asyncio, 1,000 tasks await each send", ""), "tasks"),
        (row("asyncio, groups of 1,000", ""), "groups"),
    ]


def producer_rows(sides: list[Side], *, rounds: int) -> Iterator[Row]:
    """Run every row on every side in turns."""
    for row, load in _rows():
        for side in sides:
            row.steady[side.name] = warm(run, load, side.name_server)
        for _ in range(rounds):
            for side in sides:
                before = cpu_seconds(side.broker_pid)
                figure = run(load, side.name_server)
                spent = (cpu_seconds(side.broker_pid) - before) * 1e6 / LOADS[load][0]
                row.add(side.name, figure, spent, server=side.broker_pid)
        yield row
