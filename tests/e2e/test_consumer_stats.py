"""What consumers tell of themselves: counters, rates, lag, memory, and what they cost when idle."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.wire import ask, await_true

from pyrmq import (
    Admin,
    Producer,
    PullConsumer,
    PushConsumer,
    QueueId,
    ReceivedMessage,
    SimpleConsumer,
    _core,
    aio,
)
from pyrmq.codes import RequestCode

if TYPE_CHECKING:
    from pyrmq.testing import Cluster

COUNT = 100
SIZE = 1000


def rest(consumer: PushConsumer) -> tuple[int, int, int, int]:
    """Return what a listener has before it: lag, messages, bytes, those in its calls."""
    now = consumer.stats()
    return now.lag, now.waiting, now.waiting_bytes, now.in_flight


@pytest.fixture
def filled(address: str, topic: str) -> str:
    """Make a topic with messages."""
    with Admin(name_server=address) as admin, Producer(name_server=address) as producer:
        admin.create_topic(topic, queues=2)
        for _ in range(COUNT):
            producer.send(topic, bytes(SIZE))
    return topic


def test_listeners_have_rates_and_what_waits_for_them(address: str, filled: str) -> None:
    release = threading.Event()
    consumer = PushConsumer(name_server=address, group=f"g-{filled}", threads=1)

    def listener(_message: ReceivedMessage) -> None:
        release.wait(20)

    consumer.subscribe(filled, listener)
    with consumer:
        await_true(lambda: consumer.stats().waiting + consumer.stats().in_flight == COUNT, 10)
        blocked = consumer.stats()
        assert blocked.in_flight >= 1
        assert blocked.waiting_bytes > COUNT * SIZE
        assert blocked.lag == COUNT
        assert blocked.received_per_s > 0 == blocked.done_per_s
        release.set()
        await_true(lambda: consumer.stats().done == COUNT, 10)
        # The last message is counted before its place is marked and its bytes are given back.
        await_true(lambda: rest(consumer) == (0, 0, 0, 0), 10)
        done = consumer.stats()
        assert done["done"] == COUNT
        assert done.done_per_s > 0
        assert done.call_ms > 0
        assert done.pull_ms > 0
        assert done.queues == len(done.assigned)
        mine = [state for queue, state in done.assigned.items() if queue.topic == filled]
        assert sum(state.position for state in mine) == COUNT
        with pytest.raises(KeyError):
            done["nothing"]


def test_polled_consumers_have_them_too(address: str, filled: str) -> None:
    with PullConsumer(name_server=address, group=f"g-{filled}", auto_commit=None) as consumer:
        consumer.subscribe(filled)
        await_true(lambda: consumer.stats().waiting == COUNT, 10)
        assert consumer.stats().lag == COUNT
        got = 0
        while got < COUNT:
            got += len(consumer.poll(timeout=5))
        assert consumer.stats().lag > 0, "the last poll is not confirmed"
        consumer.poll(timeout=0)
        stats = consumer.stats()
        assert (stats.lag, stats.waiting, stats.queues) == (0, 0, 4)
        assert stats.done_per_s > 0

    async def main() -> None:
        options = {"name_server": address, "group": f"aio-{filled}"}
        async with aio.PullConsumer(**options) as consumer:  # type: ignore[arg-type]
            await consumer.subscribe(filled)
            assert await consumer.poll(timeout=5)
            assert consumer.stats().received_per_s > 0

    asyncio.run(main())


def test_simple_consumers_have_what_they_have_returned_and_acknowledged(
    address: str, filled: str
) -> None:
    with SimpleConsumer(name_server=address, group=f"g-{filled}") as consumer:
        consumer.subscribe(filled)
        places = {QueueId(filled, broker, -1) for broker in ("broker-a", "broker-b")}
        assert set(consumer.stats().assigned) == places
        messages = consumer.receive(10, invisible=60.0)
        taken = consumer.stats()
        assert taken.queues == 2
        assert taken.in_flight == len(messages) > 1
        assert sum(each.in_flight for each in taken.assigned.values()) == len(messages)
        assert taken.received_per_s > 0 == taken.done_per_s
        assert taken.pull_ms > 0
        consumer.ack(messages[1:])
        consumer.change_invisible(messages[0], 0)
        done = consumer.stats()
        assert (done.done, done.later, done.in_flight) == (len(messages) - 1, 1, 0)
        assert done.done_per_s > 0
        assert done.call_ms > 0
        consumer.unsubscribe(filled)
        assert consumer.stats().queues == 0
    assert consumer.stats().done == done.done, "also when it is closed"

    async def main() -> None:
        options = {"name_server": address, "group": f"aio-{filled}"}
        async with aio.SimpleConsumer(**options) as consumer:  # type: ignore[arg-type]
            await consumer.subscribe(filled)
            messages = await consumer.receive(10)
            assert consumer.stats().in_flight == len(messages)
            await consumer.ack(messages)
            assert (consumer.stats().done, consumer.stats().in_flight) == (len(messages), 0)

    asyncio.run(main())


def test_a_message_that_is_renewed_stays_in_hand_and_one_that_is_forgotten_does_not(
    address: str, filled: str
) -> None:
    with SimpleConsumer(name_server=address, group=f"g-{filled}") as consumer:
        consumer.subscribe(filled)
        (kept,) = consumer.receive(1, invisible=1.5)
        (_forgotten,) = consumer.receive(1, invisible=1.5)
        with consumer.renewing(kept, invisible=1.5):
            await_true(lambda: consumer.stats().in_flight == 1, 10)
            await_true(lambda: consumer.stats().renewed >= 4, 10)
            assert consumer.stats().in_flight == 1
        consumer.ack(kept)
        assert (consumer.stats().done, consumer.stats().in_flight) == (1, 0)


def test_a_message_that_came_for_nobody_waits(address: str, topic: str) -> None:
    with Admin(name_server=address) as admin:
        admin.create_topic(topic, queues=1)
    with SimpleConsumer(name_server=address, group=f"g-{topic}") as consumer:
        consumer.subscribe(topic)
        with ThreadPoolExecutor(1) as pool, Producer(name_server=address) as producer:
            received = pool.submit(consumer.receive, 1, 60.0, 15.0)
            # Both brokers hold a pop for this call by then, and each gets a message.
            assert not wait([received], timeout=1).done
            for broker in ("broker-a", "broker-b"):
                producer.send(topic, bytes(SIZE), queue=QueueId(topic, broker, 0))
            consumer.ack(received.result(15))
        await_true(lambda: consumer.stats().waiting == 1, 5)
        waits = consumer.stats()
        assert SIZE < waits.waiting_bytes < 2 * SIZE
        assert waits.in_flight == 0
        assert len(consumer.receive(1, wait=0)) == 1
        assert (consumer.stats().waiting, consumer.stats().waiting_bytes) == (0, 0)


def test_listeners_of_a_group_that_pops_have_all_of_it(
    shared: Cluster, address: str, filled: str
) -> None:
    group, release = f"g-{filled}", threading.Event()
    with Admin(name_server=address) as admin:
        admin.set_consume_mode(group, filled, "pop")
    consumer = PushConsumer(name_server=address, group=group, threads=2, invisible=1.0)

    def listener(_message: ReceivedMessage) -> None:
        release.wait(20)

    consumer.subscribe(filled, listener)
    with consumer:
        await_true(lambda: consumer.stats().in_flight == 2, 20)
        blocked = consumer.stats()
        assert blocked.received_per_s > 0 == blocked.done_per_s
        assert blocked.pull_ms > 0
        assert blocked.waiting_bytes > 2 * SIZE
        places = {QueueId(filled, broker, -1) for broker in ("broker-a", "broker-b")}
        assert places <= set(blocked.assigned)
        await_true(lambda: consumer.stats().renewed > 0, 10)
        release.set()
        await_true(lambda: consumer.stats().done >= COUNT, 20)
        await_true(lambda: consumer.stats().in_flight == 0, 10)
        done = consumer.stats()
        assert (done.waiting, done.waiting_bytes) == (0, 0)
        assert done.queues == len(done.assigned)
        assert done.done_per_s > 0
        assert done.call_ms > 0
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        fields = {"consumerGroup": group, "clientId": consumer._control.client_id()}
        answer = ask(shared.broker.address, code, fields)
        told: Any = _core.parse_json(answer.body or b"")
        assert told["statusTable"][filled]["pullTPS"] > 0
        assert told["statusTable"][filled]["pullRT"] > 0


def test_ahead_messages_bounds_what_waits(address: str, filled: str) -> None:
    options = {"name_server": address, "group": f"g-{filled}", "ahead_messages": 16}
    with PullConsumer(**options) as consumer:  # type: ignore[arg-type]
        consumer.subscribe(filled)
        got = 0
        while got < COUNT:
            assert consumer.stats().waiting <= 16
            got += len(consumer.poll(max_messages=7, timeout=5))


def test_operators_see_the_rates_of_our_consumers(shared: Cluster, filled: str) -> None:
    group = f"g-{filled}"
    consumer = PushConsumer(name_server=shared.name_server, group=group)

    def listener(message: ReceivedMessage) -> None:
        if message.queue_offset % 10 == 0:
            raise ValueError("again")

    consumer.subscribe(filled, listener)
    with consumer:
        await_true(lambda: consumer.stats().done + consumer.stats().later >= COUNT, 10)
        fields = {
            "consumerGroup": group,
            "clientId": consumer._control.client_id(),
            "jstackEnable": "false",
        }
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        answer = ask(shared.broker.address, code, fields)
        # Its tables have queues as keys, which is not JSON.
        told: Any = _core.parse_json(answer.body or b"")
        status = told["statusTable"][filled]
        assert status["pullTPS"] > 0
        assert status["pullRT"] > 0
        assert status["consumeOKTPS"] > 0
        assert status["consumeFailedTPS"] > 0
        assert status["consumeRT"] > 0
        assert status["consumeFailedMsgs"] >= 8


@dataclass
class Order:
    """What the listener asks for."""

    number: int


@pytest.mark.parametrize("form", ["threads", "lists", "aio"])
def test_a_body_that_does_not_fit_is_counted_and_traced(
    address: str, topic: str, form: str
) -> None:
    traces = f"{topic}-traces"
    with Admin(name_server=address) as admin, Producer(name_server=address) as producer:
        admin.create_topic(topic, queues=1)
        admin.create_topic(traces, queues=1)
        producer.send(topic, "no order")
    options = {
        "name_server": address,
        "group": f"g-{topic}",
        "trace": True,
        "trace_topic": traces,
        "consume_batch": 2 if form == "lists" else 1,
    }
    if form == "aio":

        async def main() -> None:
            listening = aio.PushConsumer(**options)  # type: ignore[arg-type]

            @listening.listener(topic)
            async def handle(order: Order) -> None:
                raise AssertionError(order)

            async with listening:
                await asyncio.to_thread(await_true, lambda: listening.stats().dead == 1, 10)
                assert listening.stats().unfit == 1

        asyncio.run(main())
    else:
        consumer = PushConsumer(**options)  # type: ignore[arg-type]

        def one(order: Order) -> None:
            raise AssertionError(order)

        def several(orders: list[Order]) -> None:
            raise AssertionError(orders)

        consumer.subscribe(topic, several if form == "lists" else one)
        with consumer:
            await_true(lambda: consumer.stats().dead == 1, 10)
            assert consumer.stats().unfit == 1
    with PullConsumer(name_server=address, group=f"looks-{topic}") as looker:
        looker.subscribe(traces)
        rows: list[list[str]] = []

        def has_both() -> bool:
            for message in looker.poll(timeout=0.2):
                contexts = message.body.decode().split("\x02")
                rows.extend(context.split("\x01") for context in contexts if context)
            return len(rows) >= 2

        await_true(has_both, 10)
    (after,) = [row for row in rows if row[0] == "SubAfter"]
    assert after[4] == "false"
    assert len(after) == 10
    assert "does not fit the listener's annotation" in after[9]


WAKES = 600
"""How often the threads of ten listeners wake up in two seconds at most. Measured: 200."""

IDLE = """
import os, sys, time
from pathlib import Path
from pyrmq import PushConsumer
consumers = []
for number in range(10):
    consumer = PushConsumer(name_server=sys.argv[1], group=f"{sys.argv[2]}-{number}")
    consumer.subscribe(sys.argv[2], print)
    consumer.start()
    consumers.append(consumer)

def wakes():
    states = [task.read_text() for task in Path("/proc/self/task").glob("*/status")]
    return sum(int(state.split("\\nvoluntary_ctxt_switches:")[1].split()[0]) for state in states)

windows = []
for _ in range(4):
    began = wakes()
    time.sleep(2)
    windows.append(wakes() - began)
print(min(windows), flush=True)
os._exit(0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_ten_idle_listeners_cost_next_to_nothing(address: str, topic: str) -> None:
    """Counts how often threads wake up: what a wake-up costs is the machine's matter.

    The share of a core is a row of the benchmarks, `idle`.
    """
    with Admin(name_server=address) as admin:
        admin.create_topic(topic, queues=4)
    command = [sys.executable, "-c", IDLE, address, topic]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert int(ran.stdout) < WAKES
