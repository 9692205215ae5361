"""What all loads share: clocks, the topics, 1,000 tasks, a median."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from benches.open_loop import OpenLoop

TOPIC = "bench-rivals"
GROUP = 1000
FLUSH_S = 120.0

Clock = tuple[float, float]
"""Wall clock and CPU time of this process, seconds."""

Outcome = tuple[Clock, "float | OpenLoop"]
"""What a load took, and its figure: 0 if that is messages a second."""


def now() -> Clock:
    """Read both clocks."""
    return time.perf_counter(), time.process_time()


def since(began: Clock) -> Clock:
    """Return the elapsed times."""
    wall, cpu = now()
    return wall - began[0], cpu - began[1]


async def tasks(count: int, send: Callable[[], Awaitable[object]]) -> None:
    """Share `count` sends among 1,000 tasks."""
    left = [count]

    async def task() -> None:
        while left[0] > 0:
            left[0] -= 1
            await send()

    await asyncio.gather(*(task() for _ in range(GROUP)))


def median(count: int, send: Callable[[], object]) -> float:
    """Return the median time of a call in microseconds."""
    took = []
    for _ in range(count):
        began = time.perf_counter()
        send()
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1e6
