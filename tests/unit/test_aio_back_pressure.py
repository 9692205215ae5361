"""Sends of an event loop that wait for capacity: in order, and none is woken in vain."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from pyrmq import ClosedError, _core
from pyrmq.aio.back_pressure import WaitingSends, most_bytes
from pyrmq.errors import QueueFull

if TYPE_CHECKING:
    from collections.abc import Coroutine

FAR = 60.0


def test_a_message_with_options_counts_for_the_longest_properties_of_a_record() -> None:
    # A record has 16 bits, with a sign, for the length of its properties.
    assert _core.MAX_PROPERTIES_BYTES == 2**15 - 1
    assert most_bytes(b"tea", plain=False) == 3 + _core.MAX_PROPERTIES_BYTES
    assert most_bytes(b"tea", plain=True) == 3


class Gate:
    """A limit of `most`; its contents are released on request."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.inside: list[int] = []
        self.awaited = 0
        self.tries = 0
        self._futures: list[asyncio.Future[None]] = []
        self.waiting_sends = WaitingSends(
            self._await_capacity, lambda _: self.most - len(self.inside), lambda _, __: QueueFull()
        )

    def _await_capacity(self, _: int, __: str | None) -> asyncio.Future[None]:
        self.awaited += 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._futures.append(future)
        return future

    async def send(self, number: int, seconds: float = FAR) -> bool:
        """Wait like a producer: in order, until there is capacity or the time has passed."""
        loop = asyncio.get_running_loop()

        def come_in() -> asyncio.Future[None]:
            self.tries += 1
            if len(self.inside) >= self.most:
                raise QueueFull
            self.inside.append(number)
            return loop.create_future()

        try:
            await self.waiting_sends.enter(come_in, lambda: None, 1, loop.time(), seconds)
        except QueueFull:
            return False
        return True

    async def leave(self) -> list[int]:
        """Release everything and wake waiters."""
        gone, self.inside = self.inside, []
        for future in self._futures:
            if not future.done():
                future.set_result(None)
        self._futures.clear()
        for _ in range(5):
            await asyncio.sleep(0)
        return gone


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 10))


@pytest.mark.parametrize("most", [1, 7, 64])
def test_whoever_waits_comes_in_in_order_and_is_woken_once(most: int) -> None:
    async def main() -> None:
        gate, count = Gate(most), 500
        tasks = [asyncio.create_task(gate.send(number)) for number in range(count)]
        seen: list[int] = []
        while len(seen) < count:
            await asyncio.sleep(0)
            seen += await gate.leave()
        assert seen == list(range(count))
        assert all([await task for task in tasks])
        assert gate.tries <= count + 2 * most
        assert gate.awaited <= count // most + 2

    run(main())


def test_who_is_woken_in_vain_keeps_its_place() -> None:
    async def main() -> None:
        gate = Gate(2)
        tasks = [asyncio.create_task(gate.send(number)) for number in range(6)]
        await asyncio.sleep(0)
        gate.most = 1
        seen: list[int] = []
        while len(seen) < 6:
            seen += await gate.leave()
            # Two are woken, but there is capacity for one: the window became narrower meanwhile.
            gate.waiting_sends._free = lambda _: 2
        assert seen == list(range(6))
        assert all([await task for task in tasks])

    run(main())


def test_cancelled_and_late_ones_hold_up_nobody() -> None:
    async def main() -> None:
        gate = Gate(1)
        first = asyncio.create_task(gate.send(0))
        cancelled = asyncio.create_task(gate.send(1))
        late = asyncio.create_task(gate.send(2, 0.01))
        last = asyncio.create_task(gate.send(3))
        await asyncio.sleep(0)
        cancelled.cancel()
        assert await first
        assert not await late
        await gate.leave()
        assert await last
        assert cancelled.cancelled()
        assert gate.inside == [3]

    run(main())


def test_a_wait_that_fails_ends_the_wait_of_all() -> None:
    async def main() -> None:
        async def closed(_: int, __: str | None) -> None:
            await asyncio.sleep(0)
            raise ClosedError("closed")

        errors = [QueueFull("full"), *[ClosedError("closed")] * 3]

        def call() -> asyncio.Future[None]:
            raise errors.pop(0)

        waiting_sends = WaitingSends(closed, lambda _: 0, lambda _, __: QueueFull())
        began = asyncio.get_running_loop().time()
        enter = waiting_sends.enter
        waits = [asyncio.create_task(enter(call, lambda: None, 1, began, 60)) for _ in range(3)]
        ended = await asyncio.gather(*waits, return_exceptions=True)
        assert [type(error) for error in ended] == [ClosedError] * 3
        assert not waiting_sends.waiting

    run(main())


def test_sends_that_wait_for_a_broker_hold_up_no_other_and_keep_their_order() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        full, took = {"stalled"}, list[tuple[str, int]]()
        opened: asyncio.Future[None] = loop.create_future()

        async def await_capacity(_: int, broker: str | None) -> None:
            assert broker == "stalled"
            await opened

        waiting_sends = WaitingSends(await_capacity, lambda _: 1, lambda _, __: QueueFull())

        async def send(broker: str, number: int) -> None:
            def call() -> asyncio.Future[None]:
                if broker in full:
                    raise QueueFull(broker=broker)
                took.append((broker, number))
                return loop.create_future()

            await waiting_sends.enter(call, lambda: broker, 1, loop.time(), FAR)

        waits = [asyncio.create_task(send("stalled", number)) for number in range(3)]
        await asyncio.sleep(0)
        assert waiting_sends.waiting == 3
        await send("other", 0)
        full.clear()
        # There is room, but not for one that came later.
        waits.append(asyncio.create_task(send("stalled", 3)))
        await asyncio.sleep(0)
        assert took == [("other", 0)]
        opened.set_result(None)
        await asyncio.gather(*waits)
        assert took[1:] == [("stalled", number) for number in range(4)]
        assert not waiting_sends.waiting

    run(main())
