"""Sends that wait for room among the messages on their way, in the order of their calls.

One task asks the native back pressure and wakes as many sends as there is room for: if each send
asked for itself, all would be woken for a quarter of the room, and n waiting sends would cost n²
wake-ups.
"""

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from pyrmq._client.values import milliseconds
from pyrmq.errors import QueueFull, RmqError
from pyrmq.message import Body

__all__ = ["WaitingSends", "most_bytes"]

_PROPERTIES_BYTES = 32_767


def most_bytes(body: Body, *, plain: bool) -> int:
    """The most bytes that a message counts for: with fewer, its send would be woken too early."""
    size = len(body) * 4 if isinstance(body, str) else memoryview(body).nbytes
    return size if plain else size + _PROPERTIES_BYTES


class WaitingSends:
    """The waiting sends of one producer.

    Args:
        ask: Gives an awaitable that is done once a message of this many bytes may find room.
        free: How many messages have room now.
        full: Makes the error for a send that found no room in this many milliseconds.

    Attributes:
        waiting: Of each waiting send its number, its bytes, and the future that wakes it. While it
            is not empty, later sends stand behind.
    """

    def __init__(
        self,
        ask: Callable[[int], Awaitable[object]],
        free: Callable[[], int],
        full: Callable[[int], QueueFull],
    ) -> None:
        self._ask = ask
        self._free = free
        self._full = full
        self._numbers = itertools.count()
        # A heap: a send that is woken in vain keeps its place.
        self.waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None

    async def enter(
        self, call: Callable[[], asyncio.Future[Any]], size: int, began: float, seconds: float
    ) -> asyncio.Future[Any]:
        """Make a native call that raises `QueueFull` without room, again until there is room.

        Args:
            call: The native call.
            size: Bytes that its message counts for at most.
            began: When its time began, by the loop's clock.
            seconds: How long it may wait from then on.

        Raises:
            QueueFull: It found no room in that time.
        """
        number, deadline = next(self._numbers), began + seconds
        if self.waiting:
            await self._wait(number, size, deadline)
        while True:
            try:
                return call()
            except QueueFull as error:
                if asyncio.get_running_loop().time() >= deadline:
                    late = self._full(milliseconds("timeout", seconds))
                    late.topic = error.topic
                    raise late from None
            await self._wait(number, size, deadline)

    async def _wait(self, number: int, size: int, deadline: float) -> None:
        """Wait until there may be room for this many bytes, or the time is over."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        heapq.heappush(self.waiting, (number, size, future))
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._serve())
        # Cheaper than a timeout of asyncio, which cancels a task and takes that back.
        too_late = loop.call_at(deadline, _end, future)
        try:
            await future
        finally:
            too_late.cancel()

    async def _serve(self) -> None:
        try:
            while self._skip_gone():
                await self._ask(self.waiting[0][1])
                self._wake(max(1, self._free()))
                # They take their room before anybody is asked again.
                await asyncio.sleep(0)
        except RmqError:
            # The producer was closed: their next try says so.
            return
        finally:
            self._wake(len(self.waiting))

    def _skip_gone(self) -> bool:
        while self.waiting and self.waiting[0][2].done():
            heapq.heappop(self.waiting)
        return bool(self.waiting)

    def _wake(self, count: int) -> None:
        while count and self._skip_gone():
            heapq.heappop(self.waiting)[2].set_result(None)
            count -= 1


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
