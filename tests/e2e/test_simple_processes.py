"""Simple consumers in forked children, and what Ctrl-C leaves of them."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from tests.e2e.test_fork import run

from pyrmq import Producer, SimpleConsumer

FORK = """
    import os, sys
    from pyrmq import ForkError, Producer, PushConsumer, SimpleConsumer

    address, topic = sys.argv[1:]
    consumer = SimpleConsumer(name_server=address, group="simple-forks")
    consumer.subscribe(topic)
    with Producer(name_server=address) as producer:
        for number in range(2):
            producer.send(topic, str(number))
    found = []
    while len(found) < 2:
        found += consumer.receive(2 - len(found), invisible=60, wait=5)
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            for use in (
                lambda: consumer.receive(wait=0),
                lambda: consumer.ack(found[0]),
                lambda: consumer.change_invisible(found[0], 0),
                lambda: consumer.subscribe(topic),
                lambda: consumer.unsubscribe(topic),
                lambda: consumer.renewing(found[0]).__enter__(),
                lambda: consumer.stats(),
            ):
                try:
                    use()
                except ForkError as error:
                    assert "open a new one there" in str(error), error
                else:
                    raise AssertionError("no ForkError")
            consumer.close()
            with SimpleConsumer(name_server=address, group="simple-forks") as own:
                own.subscribe(topic)
                # What the parent has is hidden, and its receipt is good anywhere.
                print("child received", own.receive(wait=0.2), flush=True)
                own.ack(found[1])
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    # The second was acknowledged by the child: once more has no effect.
    consumer.ack(found)
    consumer.close()
    print("parent acknowledged")
"""

HEAD = """
import signal, sys
from pyrmq import SimpleConsumer

# A shell starts what runs in its background with SIGINT ignored, and Python leaves it so.
signal.signal(signal.SIGINT, signal.default_int_handler)
address, topic, group = sys.argv[1:]
consumer = SimpleConsumer(name_server=address, group=group)
consumer.subscribe(topic)
"""

WAITS = {
    "receive": """
print("ready", flush=True)
while True:
    consumer.receive(wait=60)
""",
    "renewing": """
import time
(message,) = consumer.receive(invisible=60, wait=10)
with consumer.renewing(message, invisible=60):
    print("ready", flush=True)
    time.sleep(60)
""",
    "asyncio": """
import asyncio
from pyrmq import aio

async def main():
    async with aio.SimpleConsumer(name_server=address, group=group) as own:
        await own.subscribe(topic)
        print("ready", flush=True)
        while True:
            await own.receive(wait=60)

asyncio.run(main())
""",
}


def test_a_child_is_refused_the_parents_consumer_and_works_with_its_own(
    address: str, topic: str
) -> None:
    with Producer(name_server=address) as producer:
        producer.send(topic, "first")
    with SimpleConsumer(name_server=address, group="simple-forks") as consumer:
        consumer.subscribe(topic)
        consumer.ack(consumer.receive(wait=10.0))
    lines = run(FORK, address, topic).splitlines()
    assert lines == ["child received []", "parent acknowledged"]


@pytest.mark.parametrize("wait", list(WAITS))
def test_ctrl_c_ends_a_wait_and_what_arrives_then_is_for_others(
    address: str, topic: str, wait: str
) -> None:
    with Producer(name_server=address) as producer:
        producer.send(topic, "before")
    group = f"ctrl-c-{topic}"
    if wait != "renewing":
        with SimpleConsumer(name_server=address, group=group) as consumer:
            consumer.subscribe(topic)
            consumer.ack(consumer.receive(wait=10.0))
    command = [sys.executable, "-c", HEAD + WAITS[wait], address, topic, group]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=15)
    assert "KeyboardInterrupt" in errors.splitlines(), errors
    with Producer(name_server=address) as producer:
        producer.send(topic, "after")
    with SimpleConsumer(name_server=address, group=group) as consumer:
        consumer.subscribe(topic)
        found = consumer.receive(8, wait=5.0)
        # A pop that the dead program left at the broker took nothing.
        assert [one.body for one in found] == [b"after"]
