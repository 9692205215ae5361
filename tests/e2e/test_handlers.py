"""Handlers of signals that use the object whose call they have interrupted, with silent brokers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.e2e.test_push import make
from tests.e2e.timing import least
from tests.e2e.wire import await_true

from pyrmq import PullConsumer, PushConsumer, ReceiptError, SimpleConsumer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyrmq.testing import Cluster

SILENT_S = 1.0
two_brokers = pytest.mark.rocketmq(brokers=2, faults=True)


@contextmanager
def interrupted(handler: Callable[[], object], after: float = 0.3) -> Iterator[list[object]]:
    """Run a handler in this thread soon; give what it has returned or raised."""
    outcomes: list[object] = []

    def run(_number: int, _frame: object) -> None:
        try:
            outcomes.append(handler())
        except Exception as error:  # noqa: BLE001 - for the test
            outcomes.append(error)

    before = signal.signal(signal.SIGALRM, run)
    signal.setitimer(signal.ITIMER_REAL, after)
    try:
        yield outcomes
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def silent(rocketmq: Cluster) -> Iterator[None]:
    """Hold all data of the brokers back for a second."""
    faults = [broker.network.silence() for broker in rocketmq.brokers]

    def heal() -> None:
        for fault in faults:
            fault.heal()

    timer = threading.Timer(SILENT_S, heal)
    timer.start()
    try:
        yield
    finally:
        timer.join()
        heal()


@two_brokers
@pytest.mark.timeout(30)
def test_a_handler_settles_the_message_that_is_being_settled(rocketmq: Cluster, topic: str) -> None:
    make(rocketmq.name_server, topic, ["x"], queues=1)
    with SimpleConsumer(name_server=rocketmq.name_server, group="handlers") as consumer:
        consumer.subscribe(topic)
        (message,) = consumer.receive(1, invisible=60.0, wait=5.0)
        give_back = lambda: consumer.change_invisible(message, 0)  # noqa: E731
        with silent(rocketmq), interrupted(give_back) as outcomes:
            consumer.change_invisible(message, 300.0)
        assert outcomes == [None]
        with pytest.raises(ReceiptError, match="given back"):
            consumer.ack(message)


@two_brokers
@pytest.mark.timeout(30)
def test_a_handler_closes_a_consumer_that_leaves_a_topic(rocketmq: Cluster, topic: str) -> None:
    for name in (topic, f"{topic}-2"):
        make(rocketmq.name_server, name, ["x"] * 4)
    revoked: list[int] = []
    consumer = PullConsumer(
        name_server=rocketmq.name_server,
        group="handlers",
        on_revoked=lambda _, queues: revoked.append(len(queues)),
    )
    consumer.subscribe([topic, f"{topic}-2"])
    left = 8
    while left > 0:
        left -= len(consumer.poll(timeout=10))
    with silent(rocketmq), interrupted(consumer.close) as outcomes:
        try:
            consumer.unsubscribe(topic)
        except Exception as error:  # noqa: BLE001 - it was closed meanwhile
            outcomes.append(error)
    assert repr(consumer).endswith("closed>")
    assert sum(revoked) == 16


def test_a_handler_may_close_a_push_consumer_that_its_thread_closes(
    address: str, topic: str
) -> None:
    make(address, topic, ["x"] * 4)
    busy = threading.Event()
    consumer = PushConsumer(name_server=address, group=f"handlers-{topic}", threads=2)

    @consumer.listener(topic)
    def handle(_: bytes) -> None:
        busy.set()
        time.sleep(1.0)

    consumer.start()
    assert busy.wait(10)
    began = time.monotonic()
    with interrupted(consumer.close) as outcomes:
        consumer.close(timeout=10)
    assert outcomes == [None]
    assert time.monotonic() - began < 8


RUN = """
import sys
from pyrmq import PushConsumer, aio

way, address, topic = sys.argv[1:]
if way == "threads":
    consumer = PushConsumer(name_server=address, group="silent")
    consumer.subscribe(topic, print)
    print("ready", flush=True)
    consumer.run()
else:
    import asyncio

    consumer = aio.PushConsumer(name_server=address, group="silent")

    async def handle(_: bytes) -> None:
        pass

    async def main() -> None:
        consumer.subscribe(topic, handle)
        print("ready", flush=True)
        await consumer.run()

    asyncio.run(main())
"""


def handles(pid: int, number: signal.Signals) -> bool:
    """Return whether the process has a handler for the signal."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (caught,) = [line.split()[1] for line in lines if line.startswith("SigCgt:")]
    return bool(int(caught, 16) >> (number - 1) & 1)


@two_brokers
@pytest.mark.timeout(90)
@pytest.mark.parametrize("way", ["threads", "asyncio"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_that_waits_for_a_silent_server(
    rocketmq: Cluster, topic: str, way: str, number: signal.Signals
) -> None:
    rocketmq.name_servers[0].network.silence()
    words = [sys.executable, "-c", RUN, way, rocketmq.name_server, topic]

    def run() -> float:
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            await_true(lambda: handles(process.pid, signal.SIGTERM))
            # It asks the name server meanwhile.
            time.sleep(0.3)
            began = time.monotonic()
            os.kill(process.pid, number)
            _, errors = process.communicate(timeout=30)
            assert (process.returncode, errors) == (0, b"")
            return time.monotonic() - began

    assert least(run, 2.5) < 2.5, "a name server has 3 s for its answer"
