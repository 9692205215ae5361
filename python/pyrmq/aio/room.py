"""Who waits for room among what is on its way, in the order of the calls.

One task asks the native gate and wakes as many as there is room for: if each asked for itself, all
would be woken for a quarter of the room, and n waiting sends would cost n² wake-ups.
"""

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable

from pyrmq.errors import RmqError
from pyrmq.message import Body

__all__ = ["Room", "most_bytes"]

_PROPERTIES_BYTES = 32_767


def most_bytes(body: Body, *, plain: bool) -> int:
    """What a message counts for at most: it is asked for no less, or it would ask again at once."""
    size = len(body) * 4 if isinstance(body, str) else memoryview(body).nbytes
    return size if plain else size + _PROPERTIES_BYTES


class Room:
    """The waiting sends of one producer.

    Args:
        ask: Takes a number of bytes; gives a future that is done once a try may succeed.
        free: How many messages have room now.

    Attributes:
        waiting: Number of the call, bytes, who waits; while it is not empty, who comes stands
            behind.
    """

    def __init__(self, ask: Callable[[int], Awaitable[object]], free: Callable[[], int]) -> None:
        self._ask = ask
        self._free = free
        self._numbers = itertools.count()
        # A heap: who is woken in vain keeps its place.
        self.waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None

    def ticket(self) -> int:
        """The place of a call among all that wait."""
        return next(self._numbers)

    async def turn(self, ticket: int, size: int, deadline: float) -> None:
        """Wait until there may be room for that many bytes, or the time is over."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        heapq.heappush(self.waiting, (ticket, size, future))
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
