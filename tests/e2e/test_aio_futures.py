"""asyncio treats the result of `aio.Producer.produce` as a future."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import weakref
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from pyrmq import SendResult, TopicNotFound
from pyrmq.aio import Producer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine


def run(main: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 25), debug=True)


@asynccontextmanager
async def producing(address: str, topic: str) -> AsyncIterator[Producer]:
    async with Producer(name_server=address, linger=60) as producer:
        await producer.send(topic, b"first")
        yield producer


def test_everything_that_takes_futures_takes_ours(address: str, topic: str) -> None:
    async def main() -> None:
        async with producing(address, topic) as producer:
            futures = [await producer.produce(topic, str(n)) for n in range(100)]
            assert all(asyncio.isfuture(future) for future in futures)
            assert futures[0].get_loop() is asyncio.get_running_loop()
            assert repr(futures[0]) == "<Delivery pending>"
            with pytest.raises(asyncio.InvalidStateError):
                futures[0].result()
            with pytest.raises(asyncio.InvalidStateError):
                futures[0].exception()
            waiting = asyncio.gather(*futures[:50])
            shielded = asyncio.shield(futures[50])
            task = asyncio.ensure_future(asyncio.wait_for(futures[51], 20))
            await asyncio.sleep(0)
            assert await producer.flush()
            gathered = await waiting
            assert len({(one.broker, one.queue_id, one.queue_offset) for one in gathered}) == 50
            assert isinstance(await shielded, SendResult)
            assert await task is futures[51].result()
            done, pending = await asyncio.wait(futures)
            assert (len(done), len(pending)) == (100, 0)
            assert [await one for one in asyncio.as_completed(futures[:3])]
            assert futures[0].exception() is None
            assert "SEND_OK" in repr(futures[0])
            assert await futures[0] is await futures[0]
            assert not futures[0].cancel()

    run(main)


def test_callbacks_run_later_in_turn_and_in_their_context(address: str, topic: str) -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="nobody")

    async def main() -> None:
        async with producing(address, topic) as producer:
            future = await producer.produce(topic, b"x")
            told: list[tuple[int, str]] = []

            def tell(number: int) -> Callable[[object], None]:
                return lambda _: told.append((number, name.get()))

            name.set("first")
            future.add_done_callback(tell(1))
            unwanted = tell(2)
            future.add_done_callback(unwanted)
            name.set("third")
            future.add_done_callback(tell(3))
            assert future.remove_done_callback(unwanted) == 1
            assert future.remove_done_callback(unwanted) == 0
            context = contextvars.copy_context()
            context.run(name.set, "fourth")
            future.add_done_callback(tell(4), context=context)
            await producer.flush()
            await future
            await asyncio.sleep(0)
            assert told == [(1, "first"), (3, "third"), (4, "fourth")]
            future.add_done_callback(tell(5))
            assert len(told) == 3
            await asyncio.sleep(0)
            assert told[3:] == [(5, "third")]

    run(main)


def test_a_callback_that_raises_is_reported_to_the_loop_and_holds_nobody_up(
    address: str, topic: str
) -> None:
    async def main() -> None:
        seen: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context))
        async with producing(address, topic) as producer:
            future = await producer.produce(topic, b"x")
            told: list[object] = []

            def fail(_: object) -> None:
                raise ArithmeticError("no number")

            future.add_done_callback(fail)
            future.add_done_callback(told.append)
            await producer.flush()
            await future
            assert told == [future]
            assert [type(one["exception"]) for one in seen] == [ArithmeticError]
            assert seen[0]["future"] is future

    run(main)


def test_a_cancelled_future_is_cancelled_and_its_message_stored(address: str, topic: str) -> None:
    async def main() -> None:
        async with producing(address, topic) as producer:
            future = await producer.produce(topic, b"x")
            other = await producer.produce(topic, b"y")
            waiting = asyncio.ensure_future(asyncio.wait_for(future, 20))
            await asyncio.sleep(0)
            assert future.cancel("enough")
            assert not future.cancel()
            with pytest.raises(asyncio.CancelledError, match="enough"):
                await waiting
            assert future.cancelled()
            assert future.done()
            with pytest.raises(asyncio.CancelledError):
                future.exception()
            gathered = await asyncio.gather(future, return_exceptions=True)
            assert isinstance(gathered[0], asyncio.CancelledError)
            await producer.flush()
            assert (await other).queue_offset >= 0
            assert producer.stats().confirmed == 3

    run(main)


def test_a_failure_that_nobody_asks_for_goes_to_the_loop(address: str) -> None:
    async def main() -> None:
        seen: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context))
        async with Producer(name_server=address, create_topic_key="no-such-topic") as producer:
            asked = await producer.produce("nowhere", b"x")
            lost = await producer.produce("nowhere", b"y")
            await producer.flush()
            with pytest.raises(TopicNotFound):
                await asked
            with pytest.raises(TopicNotFound):
                asked.result()
            del asked
            gc.collect()
            assert seen == []
            assert lost.done()
            del lost
            gc.collect()
            assert [type(one["exception"]) for one in seen] == [TopicNotFound]

    run(main)


def test_a_future_in_a_cycle_is_collected(address: str, topic: str) -> None:
    async def main() -> None:
        async with producing(address, topic) as producer:
            future = await producer.produce(topic, b"x")
            await producer.flush()
            await future

            class Holder:
                held: object = None

            holder = Holder()
            holder.held = future
            gone = weakref.ref(holder)
            other = await producer.produce(topic, b"y")
            other.add_done_callback(lambda _, held=(holder, other): None)  # type: ignore[misc]
            assert other.cancel()
            await asyncio.sleep(0)
            del future, other, holder
            await producer.flush()
            gc.collect()
            assert gone() is None

    run(main)
