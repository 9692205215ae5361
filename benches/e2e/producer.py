"""Rows of our producer, on our broker and on the real one: `--rows producer`."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import TYPE_CHECKING

from benches.e2e.rows import Row
from benches.e2e.servers import Side, cpu_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyrmq import Producer, aio

FLUSH_S = 60.0


def _sync(side: Side, count: int, send: Callable[[Producer], None], **options: object) -> float:
    """Messages a second of a synchronous producer, to the last confirmation."""
    from pyrmq import Producer

    with Producer(name_server=side.name_server, group="bench", **options) as producer:  # type: ignore[arg-type]
        producer.send("bench-producer", b"first")
        started = time.perf_counter()
        send(producer)
        if not producer.flush(FLUSH_S):
            raise TimeoutError(f"{side.name}: not flushed within {FLUSH_S} s")
        took = time.perf_counter() - started
        failed = producer.stats().failed
    if failed:
        raise RuntimeError(f"{side.name}: {failed} messages failed")
    return count / took


def _produce(count: int, body: bytes, *, callback: bool = False) -> Callable[[Producer], None]:
    def send(producer: Producer) -> None:
        produce = producer.produce
        if not callback:
            for _ in range(count):
                produce("bench-producer", body)
            return
        seen = [0]

        def told(error: object, _: object) -> None:
            seen[0] += error is None

        for _ in range(count):
            produce("bench-producer", body, told)

    return send


def _lone(side: Side, count: int) -> float:
    """Median of one send at a time, microseconds."""
    took: list[float] = []

    def send(producer: Producer) -> None:
        for _ in range(count):
            started = time.perf_counter()
            producer.send("bench-producer", b"x" * 128)
            took.append(time.perf_counter() - started)

    _sync(side, count, send)
    return statistics.median(took) * 1e6


def _awaited(side: Side, count: int) -> float:
    """Messages a second of 1,000 tasks that each await their send."""

    async def send(producer: aio.Producer) -> None:
        left = [count]

        async def task() -> None:
            while left[0] > 0:
                left[0] -= 1
                await producer.send("bench-producer", b"x" * 128)

        await asyncio.gather(*(task() for _ in range(1000)))

    return _aio(side, count, send)


def _groups(side: Side, count: int) -> float:
    """Messages a second of groups of 1,000: produced, flushed and awaited together."""

    async def send(producer: aio.Producer) -> None:
        for _ in range(count // 1000):
            futures = [await producer.produce("bench-producer", b"x" * 128) for _ in range(1000)]
            await producer.flush()
            await asyncio.gather(*futures)

    return _aio(side, count, send)


def _aio(side: Side, count: int, send: Callable[[aio.Producer], object]) -> float:
    from pyrmq import aio

    async def main() -> float:
        async with aio.Producer(name_server=side.name_server, group="bench-aio") as producer:
            await producer.send("bench-producer", b"first")
            started = time.perf_counter()
            await send(producer)  # type: ignore[misc]
            return count / (time.perf_counter() - started)

    return asyncio.run(main())


def _rows() -> list[tuple[Row, int, Callable[[Side, int], float]]]:
    def row(what: str, target: str, unit: str = "msg/s", *, less: bool = False) -> Row:
        return Row(what=f"producer: {what}", unit=unit, target=target, less_is_more=less)

    small, large = b"x" * 128, b"x" * 1024
    return [
        (
            row("produce, 128 B", ">= 600,000"),
            1_000_000,
            lambda side, n: _sync(side, n, _produce(n, small)),
        ),
        (
            row("produce, 128 B, a callback each", ">= 600,000"),
            1_000_000,
            lambda side, n: _sync(side, n, _produce(n, small, callback=True)),
        ),
        (
            row("produce, 1 KiB", ""),
            300_000,
            lambda side, n: _sync(side, n, _produce(n, large)),
        ),
        (
            row("produce, linger=0: single frames in flight, 128 B", ">= 140,000"),
            200_000,
            lambda side, n: _sync(side, n, _produce(n, small), linger=0),
        ),
        (row("send, one at a time, p50", "", "µs", less=True), 5_000, _lone),
        (row("asyncio, 1,000 tasks await each send", ""), 100_000, _awaited),
        (row("asyncio, groups of 1,000", ""), 200_000, _groups),
    ]


def producer_rows(sides: list[Side], *, rounds: int) -> list[Row]:
    """Run every row on every side in turns."""
    done = []
    for row, count, measure in _rows():
        for turn in range(rounds):
            for side in sides:
                before = cpu_seconds(side.broker_pid)
                figure = measure(side, count)
                spent = (cpu_seconds(side.broker_pid) - before) * 1e6 / count
                row.add(side.name, figure, spent if turn else None)
        done.append(row)
    return done
