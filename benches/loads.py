"""Loads of our producer in Python: `python benches/loads.py NAME ADDRESS` prints one figure.

They use only `pyrmq`, so that the program measures the build that its interpreter finds.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import threading
import time
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from pyrmq import Producer, aio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

FLUSH_S = 60.0
TOPIC = "bench-producer"
SMALL, LARGE = b"x" * 128, b"x" * 1024


def _orders(size: int) -> bytes:
    """Return JSON text of this size, the same in each process; zlib makes a quarter of it."""
    random = Random(7)
    rows = [
        {"order": random.randrange(10**9), "cents": random.randrange(10**5), "item": f"tea {n}"}
        for n in range(size // 40)
    ]
    return json.dumps(rows).encode()[:size]


# As real applications have them: they are compressed, each in a frame of its own.
COMPRESSED = _orders(10_240)


def _sync(
    address: str, count: int, send: Callable[[Producer], None], *, linger: float | None = None
) -> float:
    """Return messages a second of a synchronous producer, to the last confirmation."""
    options = {} if linger is None else {"linger": linger}
    with Producer(name_server=address, group="bench", **options) as producer:  # type: ignore[arg-type]
        producer.send(TOPIC, b"first")
        started = time.perf_counter()
        send(producer)
        if not producer.flush(FLUSH_S):
            raise TimeoutError(f"{address}: not flushed within {FLUSH_S} s")
        took = time.perf_counter() - started
        failed = producer.stats().failed
    if failed:
        raise RuntimeError(f"{address}: {failed} messages failed")
    return count / took


def _produce(
    address: str,
    count: int,
    *,
    body: bytes = SMALL,
    callback: bool = False,
    linger: float | None = None,
) -> float:
    """Return messages a second of `produce` from one thread."""

    def send(producer: Producer) -> None:
        produce = producer.produce
        if not callback:
            for _ in range(count):
                produce(TOPIC, body)
            return
        seen = [0]

        def told(error: object, _: object) -> None:
            seen[0] += error is None

        for _ in range(count):
            produce(TOPIC, body, told)

    return _sync(address, count, send, linger=linger)


def _lone(address: str, count: int) -> float:
    """Return the median of one send at a time, in microseconds."""
    took: list[float] = []

    def send(producer: Producer) -> None:
        for _ in range(count):
            started = time.perf_counter()
            producer.send(TOPIC, SMALL)
            took.append(time.perf_counter() - started)

    _sync(address, count, send)
    return statistics.median(took) * 1e6


def _threads(address: str, count: int) -> float:
    """Return messages a second of 64 threads that send one at a time."""

    def send(producer: Producer) -> None:
        def some() -> None:
            for _ in range(count // 64):
                producer.send(TOPIC, SMALL)

        threads = [threading.Thread(target=some) for _ in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return _sync(address, count // 64 * 64, send)


def _awaited(address: str, count: int) -> float:
    """Return messages a second of 1,000 tasks that each await their send."""

    async def send(producer: aio.Producer) -> None:
        left = [count]

        async def task() -> None:
            while left[0] > 0:
                left[0] -= 1
                await producer.send(TOPIC, SMALL)

        await asyncio.gather(*(task() for _ in range(1000)))

    return _aio(address, count, send)


def _groups(address: str, count: int) -> float:
    """Return messages a second of groups of 1,000: produced, flushed and awaited together."""

    async def send(producer: aio.Producer) -> None:
        for _ in range(count // 1000):
            futures = [await producer.produce(TOPIC, SMALL) for _ in range(1000)]
            await producer.flush()
            await asyncio.gather(*futures)

    return _aio(address, count, send)


def _aio(address: str, count: int, send: Callable[[aio.Producer], Awaitable[None]]) -> float:
    async def main() -> float:
        async with aio.Producer(name_server=address, group="bench-aio") as producer:
            await producer.send(TOPIC, b"first")
            started = time.perf_counter()
            await send(producer)
            return count / (time.perf_counter() - started)

    return asyncio.run(main())


LOADS: dict[str, tuple[int, Callable[[str, int], float]]] = {
    "produce": (1_000_000, _produce),
    "callback": (1_000_000, partial(_produce, callback=True)),
    "produce1k": (300_000, partial(_produce, body=LARGE)),
    "produce10k": (30_000, partial(_produce, body=COMPRESSED)),
    "single": (200_000, partial(_produce, linger=0)),
    "lone": (5_000, _lone),
    "threads": (64_000, _threads),
    "tasks": (100_000, _awaited),
    "groups": (200_000, _groups),
}
"""Name to number of messages, and a function of the name server's address and that number."""


def run(name: str, address: str) -> float:
    """Run one load: microseconds for `lone`, messages a second for the others."""
    count, load = LOADS[name]
    return load(address, count)


if __name__ == "__main__":
    print(run(*sys.argv[1:]))
