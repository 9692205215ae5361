"""Loads in Python: `python benches/loads.py NAME ADDRESS` prints one figure.

Those that read need a backlog, which `python benches/loads.py fill NAME ADDRESS` stores. They use
only `pyrmq`, so that the program measures the build that its interpreter finds.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import threading
import time
import uuid
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from pyrmq import Producer, aio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

FLUSH_S = 60.0
TOPIC = "bench-producer"
BACKLOG = "bench-backlog"
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
    topic: str = TOPIC,
    callback: bool = False,
    linger: float | None = None,
) -> float:
    """Return messages a second of `produce` from one thread."""

    def send(producer: Producer) -> None:
        produce = producer.produce
        if not callback:
            for _ in range(count):
                produce(topic, body)
            return
        seen = [0]

        def told(error: object, _: object) -> None:
            seen[0] += error is None

        for _ in range(count):
            produce(topic, body, told)

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


class _Arrivals:
    """Counts messages of a backlog. The clock starts with the first: then the group is there."""

    def __init__(self, count: int) -> None:
        self._left, self._timed = count, 0
        self._began = self._ended = 0.0
        self.done = threading.Event()

    def add(self, messages: int) -> None:
        if not messages:
            return
        self._left -= messages
        if self._began:
            self._timed += messages
        else:
            self._began = time.perf_counter()
        if self._left <= 0:
            self._ended = time.perf_counter()
            self.done.set()

    def rate(self) -> float:
        """Return messages a second.

        Raises:
            TimeoutError: they did not all arrive.
        """
        if not self.done.is_set():
            raise TimeoutError(f"{self._left} messages of the backlog did not arrive")
        return self._timed / (self._ended - self._began)


def _group() -> str:
    return f"bench-{uuid.uuid4().hex[:12]}"


def _pull(address: str, count: int) -> float:
    """Return messages a second of `poll_batch`, whose bodies are read."""
    from pyrmq import PullConsumer

    seen, deadline = _Arrivals(count), time.monotonic() + FLUSH_S
    with PullConsumer(name_server=address, group=_group(), start="first") as consumer:
        consumer.subscribe(BACKLOG)
        while not seen.done.is_set() and time.monotonic() < deadline:
            seen.add(len(consumer.poll_batch(timeout=1.0).bodies))
        return seen.rate()


def _push(address: str, count: int) -> float:
    """Return messages a second of a `PushConsumer` with a function for each message."""
    from pyrmq import PushConsumer

    seen = _Arrivals(count)
    consumer = PushConsumer(name_server=address, group=_group(), start="first", threads=1)

    def work(body: bytes) -> None:
        seen.add(bool(body))

    consumer.subscribe(BACKLOG, work)
    with consumer:
        seen.done.wait(FLUSH_S)
        return seen.rate()


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
    "pull": (1_000_000, _pull),
    "push": (500_000, _push),
}
"""Name to number of messages, and a function of the name server's address and that number."""


READS = frozenset({"pull", "push"})
"""Loads that need a backlog."""


def fill(name: str, address: str) -> None:
    """Store the backlog of a load that reads; nothing for others."""
    if name in READS:
        _produce(address, LOADS[name][0], topic=BACKLOG)


def run(name: str, address: str) -> float:
    """Run one load: microseconds for `lone`, messages a second for the others."""
    count, load = LOADS[name]
    return load(address, count)


if __name__ == "__main__":
    if sys.argv[1] == "fill":
        fill(*sys.argv[2:])
    else:
        print(run(*sys.argv[1:]))
