"""Listeners of asyncio that end in unusual ways, and consumers whose loop or task ends."""

from __future__ import annotations

import asyncio
import errno
import functools
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import pytest
from tests.e2e.test_aio_push import until
from tests.e2e.test_push import consume, make
from tests.e2e.wire import Connection, await_true

from pyrmq import (
    ConfigError,
    DeadLetter,
    Producer,
    PullConsumer,
    PushConsumer,
    QueueId,
    ReceivedMessage,
    aio,
)
from pyrmq.codes import RequestCode
from pyrmq.consumer.listener import Pool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pyrmq.testing import Cluster


class NoException(BaseException):
    """As pytest's and trio's own."""


async def ignore(_: bytes) -> None:
    pass


async def await_a_cancelled_task() -> None:
    inner = asyncio.ensure_future(asyncio.sleep(60))
    await asyncio.sleep(0)
    inner.cancel()
    await inner


async def raise_no_exception() -> None:
    raise NoException


@pytest.mark.parametrize("fail", [await_a_cancelled_task, raise_no_exception])
def test_what_is_no_exception_is_a_failed_try(
    address: str, topic: str, fail: Callable[[], Awaitable[None]]
) -> None:
    make(address, topic, ["first", "second"], queues=1)
    calls: list[str] = []

    async def handle(body: str) -> None:
        calls.append(body)
        if len(calls) == 1:
            await fail()

    async def main() -> None:
        consumer = aio.PushConsumer(
            name_server=address, group=f"g-{topic}", order="queue", suspend_pause=0.05
        )
        consumer.subscribe(topic, handle)
        async with consumer:
            await until(lambda: consumer.stats()["done"] == 2)
            assert consumer.stats()["later"] == 1

    asyncio.run(main())
    assert Counter(calls) in ({"first": 2, "second": 1}, {"first": 1, "second": 2})


def test_a_started_consumer_that_nobody_holds_goes_on(address: str, topic: str) -> None:
    make(address, topic, [], queues=1)
    seen = threading.Event()

    def begin() -> weakref.ref[PushConsumer]:
        consumer = PushConsumer(name_server=address, group=f"push-{topic}")
        consumer.subscribe(topic, lambda _: seen.set())
        consumer.start()
        return weakref.ref(consumer)

    held = begin()
    gc.collect()
    with Producer(name_server=address) as producer:
        producer.send(topic, "x")
    assert seen.wait(10)
    consumer = held()
    assert consumer is not None
    consumer.close()


def test_a_start_that_is_interrupted_leaves_no_thread(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(address, topic, [], queues=1)
    group = f"push-{topic}"
    start = Pool.start

    def interrupted(pool: Pool) -> None:
        start(pool)
        raise KeyboardInterrupt

    monkeypatch.setattr(Pool, "start", interrupted)
    consumer = PushConsumer(name_server=address, group=group)
    consumer.subscribe(topic, print)
    with pytest.raises(KeyboardInterrupt):
        consumer.start()
    await_true(lambda: not any(group in one.name for one in threading.enumerate()), 10)


class FewReaders(asyncio.SelectorEventLoop):
    """A loop of a process that has no descriptor left for one kind of reader."""

    def __init__(self, refused: str) -> None:
        super().__init__()
        self._refused = refused

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:  # type: ignore[override]  # noqa: ANN401
        """Refuse that kind."""
        if callback.__name__ == self._refused:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        super().add_reader(fd, callback, *args)


@pytest.mark.parametrize("refused", ["_drain", "_on_arrival"])
def test_a_start_that_its_loop_refuses_leaves_no_thread_and_no_member(
    address: str, topic: str, refused: str
) -> None:
    make(address, topic, ["a", "b"], queues=1)
    group = f"aio-{topic}"

    async def main() -> None:
        consumer = aio.PushConsumer(name_server=address, group=group)
        consumer.subscribe(topic, ignore)
        with pytest.raises(OSError, match="Too many open files"):
            await consumer.start()
        assert repr(consumer).endswith("closed>")
        await consumer.close()

    with asyncio.Runner(loop_factory=lambda: FewReaders(refused)) as runner:
        runner.run(main())
    await_true(lambda: not any(group in one.name for one in threading.enumerate()), 3)
    seen: Counter[str] = Counter()

    def note(message: ReceivedMessage) -> None:
        seen[message.body.decode()] += 1

    consume(address, group, topic, note, lambda: len(seen) == 2)


def test_the_only_failure_of_a_task_group_counts(address: str, topic: str) -> None:
    make(address, topic, ["x"], queues=1)

    async def fail() -> None:
        raise DeadLetter("no such order")

    async def handle(_: str) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())

    async def main() -> None:
        consumer = aio.PushConsumer(name_server=address, group=f"g-{topic}")
        consumer.subscribe(topic, handle)
        async with consumer:
            await until(lambda: consumer.stats()["dead"] == 1)

    asyncio.run(main())


def test_a_partial_and_a_mock_are_coroutine_functions(address: str, topic: str) -> None:
    make(address, topic, ["x"], queues=1)
    seen: list[object] = []

    async def handle(into: list[object], body: bytes) -> None:
        into.append(body)

    async def main() -> None:
        mock = AsyncMock(return_value=None)
        one = aio.PushConsumer(name_server=address, group=f"g1-{topic}")
        one.subscribe(topic, functools.partial(handle, seen))
        other = aio.PushConsumer(name_server=address, group=f"g2-{topic}")
        other.subscribe(topic, mock)
        async with one, other:
            await until(lambda: one.stats()["done"] == other.stats()["done"] == 1)
        assert mock.await_args is not None
        assert mock.await_args.args[0].body == b"x"

    asyncio.run(main())
    assert seen == [b"x"]


def test_a_thread_consumer_refuses_an_object_that_must_be_awaited(address: str) -> None:
    class Handler:
        async def __call__(self, body: bytes) -> None:
            pass

    consumer = PushConsumer(name_server=address, group="g")
    with pytest.raises(ConfigError, match=r"use pyrmq\.aio\.PushConsumer"):
        consumer.subscribe("t", Handler())
    consumer.close()


def test_a_partial_gets_what_its_function_asks_for(address: str, topic: str) -> None:
    make(address, topic, ["x"], queues=1)
    seen: list[object] = []

    def handle(into: list[object], body: bytes) -> None:
        into.append(body)

    consume(address, f"g-{topic}", topic, functools.partial(handle, seen), lambda: bool(seen))
    assert seen == [b"x"]


def test_an_operator_sees_what_a_coroutine_raised(
    shared: Cluster, address: str, topic: str
) -> None:
    make(address, topic, [], queues=1)
    calls: list[str] = []

    async def handle(body: str) -> None:
        calls.append(body)
        if len(calls) > 1:
            raise ValueError("no stock")

    def send() -> str:
        with Producer(name_server=address) as producer:
            queue = QueueId(topic, shared.brokers[0].name, 0)
            return str(producer.send(topic, "again", queue=queue).offset_message_id)

    def ask(client_id: str, message_id: str) -> dict[str, str]:
        fields = {
            "consumerGroup": f"g-{topic}",
            "clientId": client_id,
            "msgId": message_id,
            "brokerName": shared.brokers[0].name,
        }
        with Connection(shared.brokers[0].address) as connection:
            answer = connection.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields)
        found: dict[str, str] = json.loads(answer.body or b"{}")
        return found

    async def main() -> None:
        consumer = aio.PushConsumer(name_server=address, group=f"g-{topic}")
        consumer.subscribe(topic, handle)
        async with consumer:
            message_id = await asyncio.to_thread(send)
            await until(lambda: bool(calls))
            client_id = consumer._control.client_id()
            result = await asyncio.to_thread(ask, client_id, message_id)
        assert result["consumeResult"] == "CR_THROW_EXCEPTION"
        assert result["remark"] == "ValueError('no stock')"

    asyncio.run(main())


def test_a_cancelled_close_ends_the_consumer_all_the_same(address: str, topic: str) -> None:
    make(address, topic, [], queues=1)
    is_asked, may_answer = threading.Event(), threading.Event()

    class Slow:
        def allocate(self, _: str, queues: list[QueueId], __: list[str]) -> list[QueueId]:
            if is_closing:
                is_asked.set()
                may_answer.wait(10)
            return queues

    is_closing = False

    async def main() -> None:
        nonlocal is_closing
        consumer = aio.PushConsumer(
            name_server=address,
            group=f"g-{topic}",
            allocate=Slow(),  # type: ignore[arg-type]
            rebalance=0.1,
        )
        consumer.subscribe(topic, ignore)
        await consumer.start()
        is_closing = True
        await until(is_asked.is_set)
        closing = asyncio.ensure_future(consumer.close(timeout=0.1))
        # Its thread is at work in `allocate`, so the close waits for it.
        callbacks = consumer._callbacks
        assert callbacks is not None
        await until(callbacks._is_ended.is_set)
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()
        await asyncio.wait_for(consumer.close(), 10)

    asyncio.run(main())
    may_answer.set()


@pytest.mark.parametrize("is_held", [False, True])
def test_a_consumer_leaves_when_its_loop_has_ended(
    address: str,
    topic: str,
    is_held: bool,  # noqa: FBT001
) -> None:
    make(address, topic, [], queues=4)
    made: list[weakref.ref[aio.PushConsumer]] = []
    held: list[aio.PushConsumer] = []

    async def main() -> None:
        consumer = aio.PushConsumer(name_server=address, group=f"g-{topic}")
        consumer.subscribe(topic, ignore)
        await consumer.start()
        await until(lambda: len(consumer.assignment()) > 0)
        made.append(weakref.ref(consumer))
        held.extend([consumer] * is_held)

    asyncio.run(main())
    gc.collect()
    assert (made[0]() is not None) == is_held
    with PullConsumer(name_server=address, group=f"g-{topic}", rebalance=0.5) as other:
        other.subscribe(topic)
        await_true(lambda: sum(q.topic == topic for q in other.assignment()) == 8, 15)
    for consumer in held:
        asyncio.run(asyncio.wait_for(consumer.close(), 10))


TWO_RUNS = """
import asyncio, signal, sys
from pyrmq.aio import PushConsumer

def mine(number, frame): ...

async def run(name):
    consumer = PushConsumer(name_server=sys.argv[1], group=name + sys.argv[2])
    @consumer.listener(sys.argv[2])
    async def handle(body: bytes) -> None:
        print(name, "got it", flush=True)
    await consumer.run(grace=5)

async def main():
    signal.signal(signal.SIGTERM, mine)
    await asyncio.gather(run("a"), run("b"))
    assert signal.getsignal(signal.SIGTERM) is mine
    loop = asyncio.get_running_loop()
    again = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, again.set)
    consumer = PushConsumer(name_server=sys.argv[1], group="c" + sys.argv[2])
    consumer.subscribe(sys.argv[2], run)
    task = asyncio.ensure_future(consumer.run())
    while not consumer.assignment():
        await asyncio.sleep(0.01)
    await consumer.close()
    await task
    signal.raise_signal(signal.SIGTERM)
    await asyncio.wait_for(again.wait(), 10)
    print("left", flush=True)

asyncio.run(main())
"""


def test_a_signal_ends_every_consumer_of_a_loop(address: str, topic: str) -> None:
    make(address, topic, ["x"], queues=1)
    with subprocess.Popen(
        [sys.executable, "-c", TWO_RUNS, address, topic], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines = {process.stdout.readline() for _ in range(2)}
        assert lines == {"a got it\n", "b got it\n"}
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(20) == 0
        finally:
            process.kill()
        assert process.stdout.read() == "left\n"
