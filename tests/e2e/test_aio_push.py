"""The consumer that awaits coroutine functions."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.test_push import committed, make
from tests.e2e.wire import await_true

import pyrmq
from pyrmq import ConfigError, ReceivedMessage, ReconsumeLater
from pyrmq.aio import PullConsumer, PushConsumer
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from pathlib import Path

    from pyrmq.testing import Cluster


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(15):
        while not condition():  # noqa: ASYNC110 - of any kind
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("order", ["none", "key", "queue"])
def test_each_message_is_awaited_once_and_committed(address: str, topic: str, order: str) -> None:
    make(address, topic, [str(number) for number in range(300)])
    seen: Counter[str] = Counter()
    running = most = 0

    async def main() -> None:
        consumer = PushConsumer(name_server=address, group=f"aio-{topic}", order=order, tasks=8)  # type: ignore[arg-type]

        @consumer.listener(topic)
        async def handle(body: str) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)
            running -= 1
            seen[body] += 1

        async with consumer:
            await until(lambda: len(seen) == 300)
            await until(lambda: consumer.stats()["done"] == 300)

    asyncio.run(main())
    assert set(seen.values()) == {1}
    assert 1 < most <= 8
    assert sum(offset or 0 for offset in committed(address, f"aio-{topic}", topic).values()) == 300


@pytest.mark.parametrize("form", ["threads", "asyncio"])
def test_the_exception_of_a_block_goes_before_a_commit_that_fails(form: str) -> None:
    options = {"group": "g", "commit_interval": 60.0}

    def threads(running: Cluster) -> None:
        consumer = pyrmq.PushConsumer(name_server=running.name_server, **options)  # type: ignore[arg-type]
        consumer.subscribe("T", lambda _: None)
        with consumer:
            await_true(lambda: consumer.stats()["done"] == 1, 15)
            running.brokers[0].network.refuse()
            raise LookupError

    async def main(running: Cluster) -> None:
        consumer = PushConsumer(name_server=running.name_server, **options)  # type: ignore[arg-type]

        @consumer.listener("T")
        async def handle(_: bytes) -> None:
            pass

        async with consumer:
            await until(lambda: consumer.stats()["done"] == 1)
            running.brokers[0].network.refuse()
            raise LookupError

    with cluster(faults=True) as running:
        make(running.name_server, "T", ["one"], queues=1)
        run = threads if form == "threads" else lambda one: asyncio.run(main(one))
        with pytest.raises(LookupError):
            run(running)


@pytest.mark.parametrize("kind", ["pull", "push"])
def test_a_close_that_is_cancelled_goes_on_and_a_second_one_waits_for_it(kind: str) -> None:
    async def pull(address: str) -> PullConsumer:
        consumer = PullConsumer(name_server=address, group="g", start="first")
        await consumer.subscribe("T")
        assert await consumer.poll(timeout=10)
        return consumer

    async def push(address: str) -> PushConsumer:
        consumer = PushConsumer(name_server=address, group="g")
        handled: list[str] = []

        @consumer.listener("T")
        async def handle(body: str) -> None:
            handled.append(body)

        await consumer.start()
        await until(lambda: consumer.stats()["done"] == 1)
        return consumer

    async def main(running: Cluster) -> None:
        make_one = pull if kind == "pull" else push
        consumer = await make_one(running.name_server)
        with running.brokers[0].network.silence():
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.close(), 0.2)
            second = asyncio.ensure_future(consumer.close())
            await asyncio.wait([second], timeout=0.1)
            assert not second.done()
        await second
        assert list(committed(running.name_server, "g", "T").values()) == [1]

    with cluster(faults=True) as running:
        make(running.name_server, "T", ["one"], queues=1)
        asyncio.run(main(running))


def test_a_call_that_fails_or_takes_too_long_comes_again(address: str, topic: str) -> None:
    make(address, topic, ["fails", "hangs", "good"], queues=1)
    calls: Counter[str] = Counter()

    async def handle(body: str) -> None:
        calls[body] += 1
        if calls[body] == 1 and body == "fails":
            raise ReconsumeLater(pause=0.05)
        if calls[body] == 1 and body == "hangs":
            await asyncio.sleep(60)

    async def main() -> None:
        consumer = PushConsumer(
            name_server=address,
            group=f"aio-{topic}",
            order="key",
            time_limit=0.3,
            suspend_pause=0.05,
        )
        consumer.subscribe(topic, handle)
        async with consumer:
            await until(lambda: calls == {"fails": 2, "hangs": 2, "good": 1})
            await until(lambda: consumer.stats()["done"] == 3)
            assert consumer.stats()["timed_out"] == 1

    asyncio.run(main())


def test_a_close_waits_for_calls_and_cancels_those_that_stay(address: str, topic: str) -> None:
    make(address, topic, [str(number) for number in range(6)], queues=1)
    ended: list[str] = []
    cancelled: list[str] = []

    async def main() -> None:
        consumer = PushConsumer(name_server=address, group=f"aio-{topic}", tasks=6)
        begun: list[str] = []

        async def handle(body: str) -> None:
            begun.append(body)
            try:
                await asyncio.sleep(0.2 if int(body) < 3 else 60)
            except asyncio.CancelledError:
                cancelled.append(body)
                raise
            ended.append(body)

        consumer.subscribe(topic, handle)
        await consumer.start()
        await until(lambda: len(begun) == 6)
        await consumer.close(timeout=2)

    asyncio.run(main())
    assert sorted(ended) == ["0", "1", "2"]
    assert sorted(cancelled) == ["3", "4", "5"]


def test_lists_and_messages(address: str, topic: str) -> None:
    make(address, topic, [str(number) for number in range(50)], queues=1)
    sizes: list[int] = []

    async def handle(messages: list[ReceivedMessage]) -> None:
        sizes.append(len(messages))

    async def main() -> None:
        consumer = PushConsumer(name_server=address, group=f"aio-{topic}", consume_batch=16)
        consumer.subscribe(topic, handle)
        async with consumer:
            await until(lambda: sum(sizes) == 50)

    asyncio.run(main())
    assert max(sizes) <= 16


RUN = """
import asyncio, sys
from pyrmq.aio import PushConsumer
async def main():
    consumer = PushConsumer(name_server=sys.argv[1], group="aio-run")
    @consumer.listener(sys.argv[2])
    async def handle(body: str) -> None:
        print("begin", body, flush=True)
        await asyncio.sleep(0.5)
        print("end", body, flush=True)
    await consumer.run(grace=10)
    print("left", flush=True)
asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_ends_by_a_signal(address: str, topic: str, number: signal.Signals) -> None:
    make(address, topic, ["x"], queues=1)
    with subprocess.Popen(
        [sys.executable, "-c", RUN, address, topic], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begin x\n"
        process.send_signal(number)
        assert process.stdout.read() == "end x\nleft\n"
        assert process.wait(10) == 0
    assert sum(offset or 0 for offset in committed(address, "aio-run", topic).values()) == 1


def test_what_cannot_work_is_refused(address: str, topic: str) -> None:
    async def main() -> None:
        consumer = PushConsumer(name_server=address, group="g")
        with pytest.raises(ConfigError, match="no topic is subscribed"):
            await consumer.start()
        with pytest.raises(ConfigError, match="not a coroutine function"):
            consumer.subscribe(topic, print)  # type: ignore[arg-type]
        await consumer.close()
        await consumer.close()

    asyncio.run(main())


def test_the_polled_consumer_has_the_same_verbs(address: str, topic: str) -> None:
    make(address, topic, [str(number) for number in range(20)], queues=1)

    async def main() -> None:
        async with PullConsumer(name_server=address, group=f"aio-{topic}") as consumer:
            await consumer.subscribe([topic])
            bodies: list[bytes] = []
            async with asyncio.timeout(10):
                while len(bodies) < 20:
                    bodies += (await consumer.poll_batch(timeout=1.0)).bodies
            await consumer.commit(dict.fromkeys(consumer.assignment(), 3))
            offsets = await consumer.offsets()
            assert {each.committed for each in offsets.values()} == {3}
            assert sum(each.lag for each in offsets.values()) == 20 - 3 * len(offsets)
            consumer.pause(consumer.assignment())
            assert consumer.paused() == consumer.assignment()
            consumer.resume(consumer.paused())
            await consumer.unsubscribe(topic)
            assert not consumer.assignment()

    asyncio.run(main())


class Counting(ThreadPoolExecutor):
    """Counts the calls that a loop makes in threads."""

    calls = 0

    def submit(self, *arguments: Any, **options: Any) -> Future[Any]:  # noqa: ANN401
        """Count, and make the call."""
        self.calls += 1
        return super().submit(*arguments, **options)


@pytest.mark.parametrize("form", ["pull", "push"])
@pytest.mark.parametrize("broadcasting", [False, True])
def test_a_commit_takes_a_thread_only_where_there_is_an_offset_file(
    address: str, topic: str, tmp_path: Path, form: str, *, broadcasting: bool
) -> None:
    make(address, topic, ["one"], queues=1)
    options: dict[str, Any] = {"name_server": address, "group": f"g-{topic}"}
    if broadcasting:
        options |= {"broadcasting": True, "offset_dir": tmp_path}

    async def main() -> None:
        executor = Counting()
        asyncio.get_running_loop().set_default_executor(executor)
        consumer: PullConsumer | PushConsumer
        if form == "pull":
            consumer = PullConsumer(**options)
            await consumer.subscribe(topic)
            assert len(await consumer.poll(timeout=15)) == 1
        else:
            consumer = PushConsumer(**options)

            @consumer.listener(topic)
            async def handle(_message: ReceivedMessage) -> None:
                pass

            await consumer.start()
            await until(lambda: consumer.stats().done == 1)
        try:
            before = executor.calls
            for _ in range(10):
                await consumer.commit()
            assert executor.calls - before == (10 if broadcasting else 0)
        finally:
            await consumer.close()

    asyncio.run(main())
