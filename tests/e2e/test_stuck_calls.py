"""Calls of listeners that do not return: how many threads they cost, and how a program ends."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import textwrap
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.test_push import committed, consume, make
from tests.e2e.wire import ask, await_true

from pyrmq import Producer, PullConsumer, PushConsumer, QueueId, _core
from pyrmq.codes import RequestCode

if TYPE_CHECKING:
    from pyrmq.testing import Cluster

THREADS = 3


def test_calls_that_hang_cost_at_most_as_many_threads_again(
    address: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    make(address, topic, [str(number) for number in range(40)])
    group, release = f"push-{topic}", threading.Event()
    seen: set[str] = set()
    counts: list[int] = []

    def listener(body: str) -> None:
        release.wait(30)
        seen.add(body)

    def running() -> int:
        prefix = f"pyrmq-listener-{group}-"
        return sum(thread.name.startswith(prefix) for thread in threading.enumerate())

    def timed_out() -> int:
        counts.append(running())
        return consumer.stats().timed_out

    consumer = PushConsumer(name_server=address, group=group, threads=THREADS, time_limit=0.1)
    consumer.subscribe(topic, listener)
    with caplog.at_level(logging.ERROR, "pyrmq.consumer"), consumer:
        await_true(lambda: timed_out() >= 2 * THREADS, 15)
        # Ten time limits later nothing more has begun.
        until = time.monotonic() + 1
        await_true(lambda: timed_out() > 2 * THREADS or time.monotonic() > until, 5)
        assert consumer.stats().timed_out == max(counts) == 2 * THREADS
        assert not seen
        release.set()
        await_true(lambda: len(seen) == 40, 15)
        await_true(lambda: running() == THREADS, 5)
    assert f"{2 * THREADS} calls of listeners hang" in caplog.text


HOLDS = """
import ctypes, sys
from pyrmq import PushConsumer

consumer = PushConsumer(name_server=sys.argv[1], group=sys.argv[2], threads=1)

@consumer.listener(sys.argv[2])
def handle(body: str) -> None:
    print(consumer._control.client_id(), flush=True)
    # Other than CDLL's functions it keeps the interpreter's lock: no Python thread runs.
    ctypes.PyDLL(None).sleep(3)
    print("released", flush=True)

consumer.start()
sys.stdin.read()
consumer.close()
"""


def test_a_call_that_keeps_the_interpreters_lock_keeps_no_broker_waiting(
    shared: Cluster, address: str, topic: str
) -> None:
    """Heartbeats and answers to brokers need no Python: asked for its offsets, it answers."""
    make(address, topic, [], queues=1)
    with Producer(name_server=address) as producer:
        producer.send(topic, "x", queue=QueueId(topic, "broker-a", 0))
    command = [sys.executable, "-c", HOLDS, address, topic]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        client_id = process.stdout.readline().strip()
        began = time.monotonic()
        answer = ask(
            shared.broker.address,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            {"topic": topic, "group": topic},
        )
        took = time.monotonic() - began
        assert answer.code == 0, answer.remark
        told: Any = _core.parse_json(answer.body or b"")
        offsets = {
            QueueId(place["topic"], place["brokerName"], place["queueId"]): offset
            for place, offset in (
                (dict(name), offset) for name, offset in told["consumerTable"][client_id].items()
            )
        }
        assert offsets[QueueId(topic, "broker-a", 0)] == 0, "its message is at work"
        assert process.stdout.readline() == "released\n"
        assert took < 2 < time.monotonic() - began
        process.communicate("", timeout=10)


RUN = {
    "threads": """
        import sys, threading
        from pyrmq import PushConsumer

        consumer = PushConsumer(name_server=sys.argv[1], group=sys.argv[2], threads=2)

        @consumer.listener(sys.argv[2])
        def handle(body: str) -> None:
            print(body + "\\n", end="", flush=True)
            if body == "stuck":
                threading.Event().wait()

        consumer.run(grace=0.5)
        print("left", flush=True)
    """,
    "asyncio": """
        import asyncio, sys
        from pyrmq.aio import PushConsumer

        async def main():
            consumer = PushConsumer(name_server=sys.argv[1], group=sys.argv[2], tasks=2)

            @consumer.listener(sys.argv[2])
            async def handle(body: str) -> None:
                print(body, flush=True)
                if body == "stuck":
                    await asyncio.Event().wait()

            await consumer.run(grace=0.5)
            print("left", flush=True)

        asyncio.run(main())
    """,
}


@pytest.mark.parametrize("kind", list(RUN))
def test_run_leaves_a_stuck_call_behind_when_its_grace_is_over(
    address: str, topic: str, kind: str
) -> None:
    make(address, topic, [], queues=1)
    with PullConsumer(name_server=address, group="looks", auto_commit=None) as looker:
        queue, other = looker.queues(topic)
    with Producer(name_server=address) as producer:
        for body in ("done", "stuck"):
            producer.send(topic, body, queue=queue)
    command = [sys.executable, "-c", textwrap.dedent(RUN[kind]), address, topic]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert {process.stdout.readline() for _ in range(2)} == {"done\n", "stuck\n"}
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            output, errors = process.communicate(timeout=20)
        finally:
            process.kill()
        took = time.monotonic() - began
    assert (process.returncode, output) == (0, "left\n"), errors
    assert 0.5 <= took < 15
    assert "their messages will be delivered again" in errors
    assert committed(address, topic, topic) == {queue: 1, other: 0}
    seen: list[str] = []
    consume(address, topic, topic, lambda one: seen.append(one.body.decode()), lambda: bool(seen))
    assert seen == ["stuck"]
