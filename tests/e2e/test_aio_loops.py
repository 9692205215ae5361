"""Consumers of asyncio that are closed from another event loop than their own, with two brokers."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
from tests.e2e.test_push import make

from pyrmq import ConfigError
from pyrmq.aio import PullConsumer, PushConsumer, SimpleConsumer

if TYPE_CHECKING:
    from collections.abc import Callable

Consumer = PullConsumer | SimpleConsumer | PushConsumer


async def opened(kind: str, address: str, topic: str) -> Consumer:
    """Make a consumer that has got something in this loop."""
    if kind == "pull":
        pull = PullConsumer(name_server=address, group=f"g-{topic}")
        await pull.subscribe(topic)
        assert await pull.poll(1, timeout=10)
        return pull
    if kind == "simple":
        simple = SimpleConsumer(name_server=address, group=f"g-{topic}")
        await simple.subscribe(topic)
        assert await simple.receive(1, wait=10)
        return simple
    push = PushConsumer(name_server=address, group=f"g-{topic}")
    seen = asyncio.Event()

    async def handle(_: bytes) -> None:
        seen.set()

    push.subscribe(topic, handle)
    await push.start()
    await asyncio.wait_for(seen.wait(), 10)
    return push


KINDS = pytest.mark.parametrize("kind", ["pull", "simple", "push"])


@KINDS
def test_a_close_from_another_loop_is_refused_and_changes_nothing(
    address: str, topic: str, kind: str
) -> None:
    make(address, topic, ["x"] * 4)
    made: list[Consumer] = []
    started, stop = threading.Event(), threading.Event()

    async def own() -> None:
        made.append(await opened(kind, address, topic))
        started.set()
        await asyncio.to_thread(stop.wait, 20)
        await made[0].close()
        assert "closed>" in repr(made[0])

    async def other(close: Callable[[], object]) -> None:
        with pytest.raises(ConfigError, match="another event loop"):
            await close()  # type: ignore[misc]

    failures: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(own())
        except BaseException as error:  # noqa: BLE001 - for the test's thread
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert started.wait(15)
        asyncio.run(other(made[0].close))
        assert "closed" not in repr(made[0])
    finally:
        stop.set()
        thread.join(20)
    assert failures == []
    assert not thread.is_alive()


@KINDS
def test_a_consumer_whose_loop_has_ended_can_be_closed_in_another(
    address: str, topic: str, kind: str
) -> None:
    make(address, topic, ["x"] * 4)
    consumer = asyncio.run(opened(kind, address, topic))
    asyncio.run(consumer.close())
    asyncio.run(consumer.close())
    assert "closed>" in repr(consumer)
