"""Clients of asyncio whose `close` is cancelled, or comes from a loop that is not theirs."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
from tests.e2e.test_push import make
from tests.e2e.wire import ask, await_true

import pyrmq
from pyrmq import ClosedError, ConfigError, RmqError, TransactionState, _core
from pyrmq.aio import Producer, PullConsumer, TransactionProducer
from pyrmq.codes import RequestCode
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyrmq.testing import Cluster


@pytest.fixture(scope="module")
def faulty() -> Iterator[Cluster]:
    """A cluster whose broker can fall silent."""
    with cluster(faults=True) as running:
        yield running


async def turns(count: int = 5) -> None:
    """Let what is ready run."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("moment", ["flush", "flush and again", "goodbye"])
def test_a_send_ends_when_the_close_of_its_producer_is_cancelled(
    faulty: Cluster, moment: str
) -> None:
    async def main() -> None:
        producer = Producer(name_server=faulty.name_server)
        await producer.send("T", b"first")
        with faulty.brokers[0].network.silence():
            sending = asyncio.ensure_future(producer.send("T", b"x", timeout=30))
            await turns()
            closing = asyncio.ensure_future(producer.close(0.2 if moment == "goodbye" else 10))
            # The goodbye to a silent broker takes half a second.
            await asyncio.sleep(0.4 if moment == "goodbye" else 0.05)
            closing.cancel()
            await turns()
            if moment == "flush":
                assert closing.cancelled(), "it does not wait for what is on its way"
            closing.cancel()
            await asyncio.wait([closing])
            assert closing.cancelled()
            await producer.close()
            with pytest.raises(RmqError):
                await asyncio.wait_for(sending, 5)

    asyncio.run(main())


def test_a_close_that_is_cancelled_while_a_check_runs_goes_on(faulty: Cluster) -> None:
    async def main() -> None:
        async def check(_: object) -> TransactionState:
            return TransactionState.UNKNOWN

        fields = {"producerGroup": "bank"}
        code = RequestCode.GET_PRODUCER_CONNECTION_LIST
        broker = faulty.brokers[0].address

        def is_listed() -> bool:
            return ask(broker, code, fields).code == 0

        producer = TransactionProducer(
            name_server=faulty.name_server, check=check, group="bank", topics=["T"]
        )
        await producer.__aenter__()
        assert is_listed()
        # A check that waits for a database.
        running = asyncio.ensure_future(asyncio.Event().wait())
        producer._answers.add(running)  # type: ignore[arg-type]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.close(), 0.2)
        await asyncio.to_thread(await_true, lambda: not is_listed(), 5)
        running.cancel()

    with pyrmq.Producer(name_server=faulty.name_server) as maker:
        maker.send("T", b"first")
    asyncio.run(main())


def test_a_consumer_is_closed_to_its_end_however_often_its_close_is_cancelled(
    faulty: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make(faulty.name_server, "B", ["1", "2", "3"], queues=1)

    def member() -> PullConsumer:
        return PullConsumer(
            name_server=faulty.name_server,
            group="b",
            broadcasting=True,
            offset_dir=tmp_path,
            auto_commit=600,
        )

    async def main() -> None:
        consumer = member()
        await consumer.subscribe("B")
        seen = 0
        while seen < 3:
            seen += len(await consumer.poll(timeout=5))
        reader = consumer._outcomes._native.fileno()
        closing = asyncio.ensure_future(consumer.close())
        await asyncio.sleep(0)
        while not closing.done():
            closing.cancel()
            await asyncio.sleep(0)
        assert closing.cancelled()
        await consumer.close()
        assert not asyncio.get_running_loop().remove_reader(reader)
        await member().close()
        assert "in use by another" not in caplog.text

    asyncio.run(main())
    (file,) = tmp_path.rglob("offsets.json")
    rows = _core.decode_local_offsets(file.read_bytes())
    assert sum(offset for _, offset in rows) == 3


def test_a_close_that_is_cancelled_in_on_revoked_ends_at_once(faulty: Cluster) -> None:
    make(faulty.name_server, "R", [], queues=1)

    async def main() -> None:
        is_called, may_end = asyncio.Event(), asyncio.Event()

        async def revoked(*_: object) -> None:
            is_called.set()
            await may_end.wait()

        consumer = PullConsumer(name_server=faulty.name_server, group="r", on_revoked=revoked)
        await consumer.subscribe("R")
        await consumer.poll(timeout=0.1)
        closing = asyncio.ensure_future(consumer.close())
        await is_called.wait()
        # The goodbye to a silent broker takes half a second.
        with faulty.brokers[0].network.silence():
            closing.cancel()
            await asyncio.wait([closing], timeout=0.3)
            assert closing.cancelled()
            may_end.set()
            await turns()
        await consumer.close()

    asyncio.run(main())


@pytest.mark.parametrize("used", ["send", "send_oneway"])
def test_a_close_from_another_loop_is_refused_and_changes_nothing(
    faulty: Cluster, used: str
) -> None:
    made: list[Producer] = []
    is_made, may_end = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    async def own() -> None:
        made.append(Producer(name_server=faulty.name_server))
        if used == "send":
            await made[0].send("T", b"x")
        else:
            await made[0].send_oneway("T", b"x")
        is_made.set()
        await asyncio.to_thread(may_end.wait, 20)
        await made[0].send("T", b"x")
        await made[0].close()
        with pytest.raises(ClosedError):
            await made[0].send("T", b"x")

    def run() -> None:
        try:
            asyncio.run(own())
        except BaseException as error:  # noqa: BLE001 - for the test's thread
            failures.append(error)

    async def other() -> None:
        with pytest.raises(ConfigError, match="another event loop"):
            await made[0].close()

    thread = threading.Thread(target=run)
    thread.start()
    assert is_made.wait(10)
    try:
        asyncio.run(other())
    finally:
        may_end.set()
        thread.join(20)
    assert failures == []
