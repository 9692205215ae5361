"""Sends that wait for capacity among the messages in flight, in the order of their calls.

One task waits for the native back pressure and wakes as many sends as it has capacity for. If each
send waited itself, all would be woken for a quarter of the capacity, and n waiting sends would cost
n² wake-ups.
"""

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from pyrmq._client.values import milliseconds
from pyrmq._core import MAX_PROPERTIES_BYTES
from pyrmq.errors import QueueFull, RmqError
from pyrmq.message import Body

__all__ = ["WaitingSends", "most_bytes"]


def most_bytes(body: Body, *, plain: bool) -> int:
    """Maximum bytes that a message counts for; with less, its send would be woken too early."""
    size = len(body) * 4 if isinstance(body, str) else memoryview(body).nbytes
    return size if plain else size + MAX_PROPERTIES_BYTES


class _Line:
    """Sends that wait for one thing: each one's number, its bytes, and the future that wakes it.

    A heap: a send that is woken in vain keeps its position.
    """

    def __init__(self) -> None:
        self.sends: list[tuple[int, int, asyncio.Future[None]]] = []
        # The numbers of those that were woken and have not run since, as a heap.
        self.woken: list[int] = []
        self.task: asyncio.Task[None] | None = None

    def skip_gone(self) -> bool:
        while self.sends and self.sends[0][2].done():
            heapq.heappop(self.sends)
        return bool(self.sends)

    def wake(self, count: int) -> None:
        while count and self.skip_gone():
            number, _, future = heapq.heappop(self.sends)
            future.set_result(None)
            heapq.heappush(self.woken, number)
            count -= 1

    def forget_woken(self, number: int) -> None:
        if self.woken and self.woken[0] == number:
            heapq.heappop(self.woken)
        elif number in self.woken:
            # Rare, since they run in order.
            self.woken.remove(number)
            heapq.heapify(self.woken)

    def has_before(self, number: int) -> bool:
        """Whether a send with a lower number waits or is about to try."""
        if self.woken and self.woken[0] < number:
            return True
        return self.skip_gone() and self.sends[0][0] < number


class WaitingSends:
    """The waiting sends of one producer: for capacity, or for the only broker that they may go to.

    Sends that wait for a broker have their own queue, so that those for others continue.

    Args:
        await_capacity: Returns an awaitable that is done once there may be capacity for a message
            of this many bytes, at this broker if one is given.
        free: Returns how many messages have capacity now, at this broker if one is given.
        full: Makes the error for a send that found no capacity in this many milliseconds.

    Attributes:
        waiting: How many sends wait. While there are any, later sends must `enter`, so that they do
            not overtake.
    """

    def __init__(
        self,
        await_capacity: Callable[[int, str | None], Awaitable[object]],
        free: Callable[[str | None], int],
        full: Callable[[int, str | None], QueueFull],
    ) -> None:
        self._await_capacity = await_capacity
        self._free = free
        self._full = full
        self._numbers = itertools.count()
        # By the broker that they wait for; None: for capacity.
        self._lines: dict[str | None, _Line] = {}
        self.waiting = 0

    async def enter(
        self,
        call: Callable[[], asyncio.Future[Any]],
        only_broker: Callable[[], str | None],
        size: int,
        began: float,
        seconds: float,
    ) -> asyncio.Future[Any]:
        """Make a native call that raises `QueueFull`, again until there is capacity.

        Args:
            call: The native call.
            only_broker: Returns the only broker that the message may go to, if there is just one.
            size: Bytes that its message counts for at most.
            began: Start of its time, by the loop's clock.
            seconds: How long it may wait from then on.

        Raises:
            QueueFull: It found no capacity in that time.
        """
        loop, number, deadline = asyncio.get_running_loop(), next(self._numbers), began + seconds
        while True:
            # In each round: a send that was woken in vain may now be before it in another queue.
            if self._lines and loop.time() < deadline:
                if self._has_before(number, None):
                    await self._wait(None, number, size, deadline)
                    continue
                broker = only_broker() if self._lines.keys() - {None} else None
                if self._has_before(number, broker):
                    await self._wait(broker, number, size, deadline)
                    continue
            try:
                return call()
            except QueueFull as error:
                if loop.time() >= deadline:
                    late = self._full(milliseconds("timeout", seconds), error.broker)
                    late.topic = error.topic
                    raise late from None
                broker = error.broker
            await self._wait(broker, number, size, deadline)

    def _has_before(self, number: int, broker: str | None) -> bool:
        line = self._lines.get(broker)
        return line is not None and line.has_before(number)

    async def _wait(self, broker: str | None, number: int, size: int, deadline: float) -> None:
        """Wait until there may be capacity for this many bytes, or the time has passed."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        line = self._lines.get(broker)
        if line is None:
            self._lines[broker] = line = _Line()
        heapq.heappush(line.sends, (number, size, future))
        if line.task is None or line.task.done():
            line.task = loop.create_task(self._serve(broker, line))
        # Cheaper than a timeout of asyncio, which cancels a task and undoes that.
        too_late = loop.call_at(deadline, _end, future)
        self.waiting += 1
        try:
            await future
        finally:
            self.waiting -= 1
            line.forget_woken(number)
            too_late.cancel()

    async def _serve(self, broker: str | None, line: _Line) -> None:
        try:
            while line.skip_gone():
                await self._await_capacity(line.sends[0][1], broker)
                line.wake(max(1, self._free(broker)))
                # They take their capacity before the next request for it.
                await asyncio.sleep(0)
        except RmqError:
            # The producer was closed: their next try raises that.
            return
        finally:
            line.wake(len(line.sends))
            if self._lines.get(broker) is line:
                del self._lines[broker]


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
