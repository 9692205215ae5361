"""Threads and tasks that wait for capacity, or until nothing is in flight."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from tests.e2e.wire import await_true

from pyrmq import (
    Admin,
    Producer,
    PullConsumer,
    QueueId,
    ReceivedMessage,
    RmqError,
    SendResult,
    TransactionProducer,
    TransactionState,
    aio,
)
from pyrmq.errors import QueueFull, RequestTimeout
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    from pyrmq.message import MessageOptions
    from pyrmq.producer import DeliveryCallback
    from pyrmq.testing import Cluster


def ignore(error: RmqError | None, result: SendResult | None) -> None:
    """Ignore an outcome."""


@pytest.mark.parametrize("threads", [4, 16])
@pytest.mark.parametrize("told", [None, ignore], ids=["alone", "callback"])
def test_threads_that_share_a_narrow_window_all_get_through(
    address: str, topic: str, threads: int, told: DeliveryCallback | None
) -> None:
    each = 500 if told is None else 100
    with Producer(name_server=address, max_in_flight=2, linger=0, send_timeout=8) as producer:

        def produce(thread: int) -> None:
            for number in range(each):
                producer.produce(topic, f"{thread}-{number}", told)

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(produce, range(threads)))
        assert producer.flush()
        stats = producer.stats()
        assert producer._core.watchers() == 0
    assert (stats.confirmed, stats.failed, stats.in_flight) == (threads * each, 0, 0)


def test_sends_of_many_threads_share_a_narrow_window(address: str, topic: str) -> None:
    with (
        Producer(name_server=address, max_in_flight=2, linger=0, send_timeout=8) as producer,
        ThreadPoolExecutor(16) as pool,
    ):
        sent = list(pool.map(lambda number: producer.send(topic, str(number)), range(800)))
        assert len({result.message_id for result in sent}) == 800
        assert producer._core.watchers() == 0


def test_threads_that_flush_at_the_same_time_all_return(address: str, topic: str) -> None:
    timeout = 20.0
    with (
        Producer(name_server=address, linger=1) as producer,
        ThreadPoolExecutor(4) as pool,
    ):
        barrier = threading.Barrier(4)

        def flush(_: int) -> float:
            barrier.wait()
            began = time.monotonic()
            assert producer.flush(timeout)
            return time.monotonic() - began

        for _ in range(150):
            producer.produce(topic, b"x", ignore)
            assert max(pool.map(flush, range(4))) < timeout / 2, "one sat out its time"


def test_flushes_under_load_leave_nothing_behind(address: str, topic: str) -> None:
    with Producer(name_server=address, linger=0) as producer:
        done = threading.Event()

        def load() -> None:
            while not done.is_set():
                producer.produce(topic, b"x", ignore)

        loading = threading.Thread(target=load)
        loading.start()
        try:
            for _ in range(200):
                producer.flush(0.002)
                assert producer._core.watchers() <= 1, "the other thread's, if it waits"
        finally:
            done.set()
            loading.join()
        assert producer.flush()
        assert producer._core.watchers() == 0


def test_flushes_of_an_event_loop_that_time_out_share_one_listener(address: str) -> None:
    async def main() -> None:
        async with aio.Producer(name_server=address, create_topic_key="no-such") as producer:
            # While its route is requested, it is in flight.
            future = await producer.produce("not-there", b"x")
            for _ in range(10):
                assert not await producer.flush(0.001)
            assert producer._core.watchers() == 1
            both = await asyncio.gather(producer.flush(), producer.flush())
            assert tuple(both) == (True, True)
            assert producer._core.watchers() == 0
            with pytest.raises(RmqError):
                await future
            assert await producer.flush(0)

    asyncio.run(main())


def test_a_batch_that_waits_for_room_runs_the_callbacks_that_make_it(
    address: str, topic: str
) -> None:
    told: list[SendResult | None] = []
    with Producer(name_server=address, max_in_flight=10, linger=0) as producer:
        for _ in range(10):
            producer.produce(topic, b"x", lambda _, result: told.append(result))
        await_true(lambda: producer.stats().confirmed == 10, 20)
        assert not told
        assert len(producer.send_batch(topic, ["a", "b", "c"], timeout=5)) == 3
        assert len(told) == 10


@pytest.mark.parametrize(
    "error", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, ValueError]
)
def test_nothing_that_a_futures_callback_raises_stops_later_futures(
    address: str, topic: str, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    called: list[int] = []

    def fail(_: Future[SendResult]) -> None:
        called.append(1)
        raise error("from a callback")

    with Producer(name_server=address, linger=0.05) as producer, caplog.at_level(logging.ERROR):
        first = producer.send_async(topic, b"x")
        first.add_done_callback(fail)
        first.add_done_callback(lambda _: called.append(2))
        later = [producer.send_async(topic, b"y") for _ in range(5)]
        for future in [first, *later]:
            assert future.result(timeout=20).queue_offset >= 0
        await_true(lambda: len(called) == 2, 20)
    assert called == [1, 2]
    raised = [r.exc_info[1] for r in caplog.records if r.exc_info]
    assert [type(one) for one in raised] == [error]


def test_a_logging_handler_that_raises_drops_no_callback(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []
    unraisable: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: unraisable.append(str(args.exc_value)))

    class Raises(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("the log's disk is full")

    def fail(error: RmqError | None, result: SendResult | None) -> None:
        told.append(result)
        raise ValueError("from a callback")

    handler = Raises()
    logger = logging.getLogger("pyrmq.producer")
    logger.addHandler(handler)
    try:
        with Producer(name_server=address, linger=0.05) as producer:
            for _ in range(4):
                producer.produce(topic, b"x", fail)
            assert producer.flush()
            future = producer.send_async(topic, b"y")
            future.add_done_callback(lambda _: fail(None, None))
            assert producer.send_async(topic, b"z").result(timeout=20).message_id
    finally:
        logger.removeHandler(handler)
    assert len(told) == 5
    assert unraisable[:4] == ["the log's disk is full"] * 4


def test_ctrl_c_inside_close_leaves_no_thread_and_fails_the_rest(address: str, topic: str) -> None:
    told: list[object] = []

    def stop(error: RmqError | None, result: SendResult | None) -> None:
        told.append(error or result)
        if len(told) == 1:
            raise KeyboardInterrupt

    producer = Producer(name_server=address, group=f"interrupted-{topic}", linger=1)
    future = producer.send_async(topic, b"x")
    assert future.result(timeout=20).message_id
    for _ in range(3):
        producer.produce(topic, b"x", stop)
    with pytest.raises(KeyboardInterrupt):
        producer.close()
    names = [thread.name for thread in threading.enumerate()]
    assert f"pyrmq-outcomes-interrupted-{topic}" not in names
    assert len(told) == 3
    producer.close()


def test_what_a_closed_loop_held_back_does_not_stop_the_next_loop(address: str, topic: str) -> None:
    producer = aio.Producer(name_server=address, linger=30)

    sending: list[asyncio.Task[SendResult]] = []

    async def interrupted() -> None:
        sending.append(asyncio.ensure_future(producer.send(topic, b"held back")))
        # It runs up to its wait, and its message waits for the other tasks of this iteration.
        await asyncio.sleep(0)
        raise SystemExit

    first = asyncio.new_event_loop()
    first.set_exception_handler(lambda *_: None)
    with pytest.raises(SystemExit):
        first.run_until_complete(interrupted())
    first.close()

    async def again() -> None:
        async with asyncio.timeout(15):
            assert (await producer.send(topic, b"second")).queue_offset >= 0
        await producer.close()

    asyncio.run(again())


def test_a_slow_link_fills_the_window_and_is_no_fault_of_the_broker() -> None:
    body = os.urandom(1 << 20)
    with (
        cluster(faults=True) as running,
        Producer(
            name_server=running.name_server, send_timeout=20, compress_over_bytes=None
        ) as producer,
    ):
        producer.send("slow", b"x")
        with running.brokers[0].network.slow(16 << 20):
            futures = [producer.send_async("slow", body) for _ in range(40)]
            results = [future.result(25) for future in futures]
        # More than may wait for a broker's answers: each message is sent once, in its turn.
        assert [result.failed_attempts for result in results] == [()] * 40


@pytest.fixture
def request_of_another(address: str, topic: str) -> Iterator[ReceivedMessage]:
    """Yield a request whose producer waits for the reply."""
    with (
        Producer(name_server=address, group=f"asker-{topic}") as asker,
        PullConsumer(name_server=address, group=f"asked-{topic}", start="first") as consumer,
    ):
        asker.request_async(topic, b"question", timeout=30)
        consumer.subscribe(topic)
        yield next(iter(consumer))


@pytest.mark.parametrize(
    "way", ["request", "reply", "send_in_transaction", "send_batch", "send_oneway"]
)
def test_a_call_that_waits_for_room_serves_the_callbacks_that_make_it(
    address: str, topic: str, way: str, request_of_another: ReceivedMessage
) -> None:
    told: list[RmqError | None] = []
    calls: dict[str, Callable[[TransactionProducer], object]] = {
        "request": lambda producer: producer.request(topic, b"x", timeout=0.5),
        "reply": lambda producer: producer.reply(request_of_another, b"answer"),
        "send_in_transaction": lambda producer: producer.send_in_transaction(
            topic, b"x", lambda _: TransactionState.COMMIT
        ),
        "send_batch": lambda producer: producer.send_batch(topic, [b"x", b"y"]),
        "send_oneway": lambda producer: producer.send_oneway(topic, b"x"),
    }
    with TransactionProducer(
        check=lambda _: TransactionState.ROLLBACK,
        group=f"serves-{way}",
        name_server=address,
        max_in_flight=8,
    ) as producer:
        for number in range(8):
            producer.produce(topic, str(number), lambda error, _: told.append(error))
        await_true(lambda: producer.stats().confirmed == 8)
        # Without a poll, the window is full of callbacks that have not run.
        with suppress(RequestTimeout):
            calls[way](producer)
        producer.flush()
    assert told == [None] * 8


@pytest.fixture(scope="module")
def pair() -> Iterator[Cluster]:
    """Two brokers, each behind a link that can fail."""
    with cluster(brokers=2, faults=True) as running:
        with Admin(name_server=running.name_server) as admin:
            admin.create_topic("pair", queues=1)
        yield running


def queue_on(broker: str) -> MessageOptions:
    return {"queue": QueueId("pair", broker, 0)}


def produce_while_there_is_room(producer: Producer, broker: str, topic: str = "pair") -> int:
    """How many messages for a broker are taken before it has no room."""
    queue = queue_on(broker) if topic == "pair" else {}
    for taken in range(2000):
        try:
            producer.produce(topic, b"x", wait=False, **queue)
        except QueueFull as error:
            return taken if error.broker == broker else -1
    return 2000


def both_known(producer: Producer, brokers: Iterable[str]) -> None:
    for broker in brokers:
        producer.send("pair", b"x", **queue_on(broker))


def test_messages_for_a_silent_broker_leave_room_for_the_other(pair: Cluster) -> None:
    stalled, other = (broker.name for broker in pair.brokers)
    with Producer(name_server=pair.name_server, max_in_flight=100, send_timeout=20) as producer:
        both_known(producer, [stalled, other])
        pair.brokers[0].network.silence()
        try:
            assert produce_while_there_is_room(producer, stalled) == 50
            for number in range(500):
                producer.produce("pair", str(number), **queue_on(other))
            for _ in range(20):
                assert producer.send("pair", b"x", timeout=5, **queue_on(other)).broker == other
        finally:
            pair.brokers[0].network.heal()
        assert producer.flush(20)
        assert producer.stats().failed == 0


def test_a_topic_on_a_silent_broker_alone_leaves_room_for_the_other(pair: Cluster) -> None:
    stalled, other = (broker.name for broker in pair.brokers)
    with Admin(name_server=pair.name_server) as admin:
        admin.create_topic("alone", queues=2, brokers=[stalled])
    with Producer(name_server=pair.name_server, max_in_flight=100, send_timeout=20) as producer:
        both_known(producer, [stalled, other])
        producer.send("alone", b"x")
        pair.brokers[0].network.silence()
        try:
            assert produce_while_there_is_room(producer, stalled, "alone") == 50
            assert producer.send("pair", b"x", timeout=5, **queue_on(other)).broker == other
        finally:
            pair.brokers[0].network.heal()
        assert producer.flush(20)
        assert producer.stats().failed == 0


def test_threads_beyond_the_window_take_turns(pair: Cluster) -> None:
    with (
        pair.brokers[0].network.delay(0.01),
        Producer(
            name_server=pair.name_server, max_in_flight=16, linger=0, send_timeout=10
        ) as producer,
        ThreadPoolExecutor(64) as pool,
    ):
        done = list(pool.map(lambda _: producer.send("pair", b"x"), range(1500)))
    assert len({result.message_id for result in done}) == 1500


def test_the_only_broker_in_use_gets_the_whole_window(pair: Cluster) -> None:
    busy, other = (broker.name for broker in pair.brokers)
    with Producer(name_server=pair.name_server, max_in_flight=64, linger=0) as producer:
        both_known(producer, [busy, other])
        most = 0
        # Long enough for the window to fill meanwhile, also if this thread is held up.
        with pair.brokers[0].network.delay(0.1):
            for _ in range(400):
                producer.produce("pair", b"x", **queue_on(busy))
                most = max(most, producer.stats().in_flight)
            assert most > 48, "half of it is the share of each"
            # The other one waits for its turn only, not until the busy one is idle.
            assert producer.send("pair", b"x", timeout=10, **queue_on(other)).broker == other
        assert producer.flush(20)
        assert producer.stats().failed == 0


def test_tasks_that_wait_for_a_silent_broker_hold_up_no_other(pair: Cluster) -> None:
    stalled, other = (broker.name for broker in pair.brokers)

    async def main() -> None:
        async with aio.Producer(
            name_server=pair.name_server, max_in_flight=100, send_timeout=30
        ) as producer:
            for broker in (stalled, other):
                await producer.send("pair", b"x", **queue_on(broker))
            pair.brokers[0].network.silence()
            try:
                sends = [
                    asyncio.ensure_future(producer.send("pair", str(number), **queue_on(stalled)))
                    for number in range(300)
                ]
                await asyncio.sleep(0.1)
                for _ in range(20):
                    sent = await producer.send("pair", b"x", timeout=5, **queue_on(other))
                    assert sent.broker == other
                queue = QueueId("pair", other, 0)
                batch = await producer.send_batch("pair", [b"x"] * 10, timeout=5, queue=queue)
                assert len(batch) == 10
                assert not any(send.done() for send in sends)
            finally:
                pair.brokers[0].network.heal()
            results = await asyncio.gather(*sends)
            offsets = [result.queue_offset for result in results]
            assert offsets == sorted(offsets), "in the order of the calls"

    asyncio.run(main())


def test_a_busy_broker_slows_the_senders_of_a_topic_that_is_on_no_other(pair: Cluster) -> None:
    busy, other = (broker.name for broker in pair.brokers)
    with Producer(name_server=pair.name_server, send_timeout=20, linger=0) as producer:
        both_known(producer, [busy, other])
        pair.brokers[0].network.busy(1.0)
        producer.produce("pair", b"x", **queue_on(busy))
        await_true(
            lambda: producer.stats().window < 2 * 16_384 and producer.stats().retries > 0, 20
        )
        taken = produce_while_there_is_room(producer, busy)
        assert taken < 200, "the broker's window is narrow"
        for _ in range(20):
            assert producer.send("pair", b"x", timeout=5, **queue_on(other)).broker == other
        for _ in range(500):
            producer.produce("pair", b"x", **queue_on(busy))
        assert producer.flush(20)
        assert producer.stats().failed == 0
