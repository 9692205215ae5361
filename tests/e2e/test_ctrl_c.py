"""Ctrl-C ends every wait, and the interpreter exits although clients are left open."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.e2e.test_push import make
from tests.e2e.wire import await_true

from pyrmq import Producer, PullConsumer, QueueId, RouteError, TopicNotFound
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyrmq.testing import Cluster

HEAD = """
import signal
import sys
from pyrmq import Producer, PullConsumer

# A shell starts what runs in its background with SIGINT ignored, and Python leaves it so.
signal.signal(signal.SIGINT, signal.default_int_handler)
address, topic = sys.argv[1:]
producer = Producer(name_server=address, send_timeout=20)
producer.send(topic, b"x")
consumer = PullConsumer(name_server=address, group="ctrl-c")
consumer.subscribe(topic)
"""

WAITS = {
    "poll": """
        while True:
            consumer.poll(timeout=None)
    """,
    "iteration": """
        for message in consumer:
            pass
    """,
    "silent name server": """
        import socket

        silent = socket.create_server(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        with Producer(name_server=f"127.0.0.1:{port}", send_timeout=20) as far:
            far.send(topic, b"x")
    """,
    "event loop": """
        import asyncio
        from pyrmq import aio

        async def main():
            async with aio.PullConsumer(name_server=address, group="ctrl-c-aio") as own:
                await own.subscribe(topic)
                async for message in own:
                    pass

        asyncio.run(main())
    """,
}


@pytest.mark.parametrize("wait", list(WAITS))
def test_ctrl_c_ends_a_wait(address: str, topic: str, wait: str) -> None:
    program = HEAD + "print('ready', flush=True)\n" + textwrap.dedent(WAITS[wait])
    process = subprocess.Popen(
        [sys.executable, "-c", program, address, topic],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        # The wait begins within this time; an earlier signal ends the program too.
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=15)
        assert time.monotonic() - begin < 10
    finally:
        process.kill()
        process.communicate()
    # Log lines of the core while the producer closes may follow the traceback.
    assert "KeyboardInterrupt" in errors.splitlines(), errors


def test_ctrl_c_gives_up_the_route_that_a_send_waits_for() -> None:
    """The look-up takes the name server's 3 s by itself, and then fails for another reason."""
    program = """
import signal
import socket
from pyrmq import Producer

signal.signal(signal.SIGINT, signal.default_int_handler)
silent = socket.create_server(("127.0.0.1", 0))
port = silent.getsockname()[1]
try:
    with Producer(name_server=f"127.0.0.1:{port}", send_timeout=20) as producer:
        future = producer.send_async("orders", b"x")
        print("ready", flush=True)
        future.result()
except KeyboardInterrupt:
    print(future.exception(0))
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=15)
    assert "the client is closed" in said


CLOSES = """
import json
import os
import signal
import sys
import threading
import time
from pyrmq import PullConsumer, PushConsumer
from pyrmq.codes import RequestCode
from pyrmq.errors import BrokerError, CommitError
from pyrmq.remoting import Client

signal.signal(signal.SIGINT, signal.default_int_handler)
address, healthy, frozen = sys.argv[1:]

def await_true(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, (members("polled"), members("pushed"), threading.enumerate())
        time.sleep(0.02)

def members(group):
    with Client() as client:
        try:
            code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
            answer = client.ask(healthy, code, {"consumerGroup": group})
        except BrokerError:
            return []
        return json.loads(answer.body)["consumerIdList"]

def close(consumer):
    try:
        consumer.close()
    except CommitError as error:
        return [broker for _, broker, _ in error.offsets]

class All:
    def allocate(self, client_id, queues, client_ids):
        return queues

seen = []
pulled = PullConsumer(name_server=address, group="polled", allocate=All(), auto_commit=60)
pulled.subscribe("orders")
pushed = PushConsumer(name_server=address, group="pushed", commit_interval=60)
pushed.subscribe("orders", seen.append)
pushed.start()
polled = []
while len(polled) < 20:
    polled += pulled.poll(timeout=5)
await_true(lambda: len(seen) == 20 and members("polled") and members("pushed"), 20)
os.kill(int(frozen), signal.SIGSTOP)
for consumer in (pulled, pushed):
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        consumer.close()
        print("not interrupted")
    except KeyboardInterrupt:
        pass
own = ("pyrmq-callbacks", "pyrmq-listener")
await_true(lambda: not any(one.name.startswith(own) for one in threading.enumerate()), 10)
print(sorted({*close(pulled), *close(pushed)}))
await_true(lambda: members("polled") == members("pushed") == [], 10)
"""


def _is_sent(producer: Producer, queue: QueueId, body: str) -> bool:
    with suppress(RouteError):
        producer.send(queue.topic, body, queue=queue)
        return True
    return False


@pytest.mark.timeout(100)
def test_a_close_that_ctrl_c_interrupts_goes_on_and_a_second_one_waits_for_it() -> None:
    with cluster(brokers=2, processes=True) as running:
        healthy, frozen = running.brokers
        assert frozen.pid is not None
        make(running.name_server, "orders", [])
        with Producer(name_server=running.name_server, send_timeout=20) as producer:
            # Each broker has some, also if the name server hears of one broker's queues late.
            for number, broker in enumerate(("broker-a", "broker-b") * 10):
                queue = QueueId("orders", broker, 0)
                await_true(partial(_is_sent, producer, queue, str(number)), 20)
        words = [sys.executable, "-c", CLOSES, running.name_server, healthy.address]
        try:
            done = subprocess.run(
                [*words, str(frozen.pid)], capture_output=True, text=True, timeout=80, check=False
            )
        finally:
            os.kill(frozen.pid, signal.SIGCONT)
    assert (done.returncode, done.stdout) == (0, "['broker-b']\n"), done.stderr


SUBSCRIBES = """
import os
import signal
import sys
import threading
import time
from pyrmq import Admin, PullConsumer, PushConsumer, SimpleConsumer
from pyrmq.errors import BrokerError

signal.signal(signal.SIGINT, signal.default_int_handler)
address, kind, frozen = sys.argv[1], sys.argv[2], int(sys.argv[3])
kinds = {"pull": PullConsumer, "push": PushConsumer, "simple": SimpleConsumer}

def await_true(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, (subscriptions(), threading.enumerate())
        time.sleep(0.02)

def subscriptions():
    with Admin(name_server=address) as admin:
        try:
            return admin.describe_group(kind).subscriptions
        except BrokerError:
            return {}

def own_threads():
    # The log's thread lives as long as a client.
    return {one for one in threading.enumerate() if one.name != "pyrmq-log"} - before

before = set(threading.enumerate())
consumer = kinds[kind](name_server=address, group=kind)
if kind == "push":
    consumer.subscribe("orders", print)
os.kill(frozen, signal.SIGSTOP)
timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
try:
    timer.start()
    consumer.start() if kind == "push" else consumer.subscribe(["orders", "returns"])
    print("not interrupted")
except KeyboardInterrupt:
    pass
finally:
    os.kill(frozen, signal.SIGCONT)
timer.join()
assert not own_threads(), own_threads()
assert kind != "simple" or not consumer.topics(), consumer.topics()
await_true(lambda: not subscriptions(), 10)
# What was asked for before the interruption does not come late.
time.sleep(0.5)
assert not subscriptions(), subscriptions()
if kind != "push":
    consumer.subscribe("orders")
    take = consumer.poll if kind == "pull" else consumer.receive
    print([one.body for one in take(1)])
consumer.close()
"""


@pytest.fixture(scope="module")
def frozen() -> Iterator[Cluster]:
    """A cluster whose servers can be stopped, with a message on each broker."""
    with cluster(brokers=2, processes=True) as running:
        for topic in ("orders", "returns"):
            make(running.name_server, topic, [], queues=1)
        with Producer(name_server=running.name_server, send_timeout=20) as producer:
            for broker in running.brokers:
                queue = QueueId("orders", broker.name, 0)
                await_true(partial(_is_sent, producer, queue, "late"), 20)
        yield running


@pytest.mark.parametrize(
    ("server", "kind"),
    [
        ("name server", "pull"),
        ("name server", "push"),
        ("name server", "simple"),
        pytest.param("broker", "pull", marks=pytest.mark.nightly),
        pytest.param("broker", "push", marks=pytest.mark.nightly),
        ("broker", "simple"),
    ],
)
def test_a_subscription_that_ctrl_c_interrupts_leaves_neither_topic_nor_thread(
    frozen: Cluster, server: str, kind: str
) -> None:
    member = (frozen.name_servers if server == "name server" else frozen.brokers)[0]
    assert member.pid is not None
    words = [sys.executable, "-c", SUBSCRIBES, frozen.name_server, kind, str(member.pid)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=40, check=False)
    finally:
        os.kill(member.pid, signal.SIGCONT)
    wanted = "" if kind == "push" else "[b'late']\n"
    assert (done.returncode, done.stdout) == (0, wanted), done.stderr


def test_a_program_that_closes_nothing_ends_and_keeps_what_it_sent(
    address: str, topic: str
) -> None:
    program = HEAD + (
        "futures = [producer.send_async(topic, str(n)) for n in range(100)]\n"
        "print(sum(f.result(10) is not None for f in futures))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, address, topic],
        capture_output=True,
        text=True,
        timeout=25,
        check=False,
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "100", "")


ENDS = {
    "atexit sends": """
        import atexit

        atexit.register(lambda: producer.send(topic, b"at exit"))
        atexit.register(lambda: print("sent", flush=True))
    """,
    "a close in atexit": """
        import atexit

        atexit.register(producer.close)
        producer.produce(topic, b"gathered")
    """,
    "futures that nobody awaits": """
        for number in range(100):
            producer.send_async(topic, str(number))
    """,
    "an exception": """
        producer.produce(topic, b"gathered")
        raise SystemExit(0)
    """,
    "a thread that sends": """
        import threading

        threading.Thread(target=lambda: [producer.send(topic, b"x") for _ in range(50)]).start()
    """,
    "a request": """
        import threading

        asking = producer.request_async(topic, b"?", timeout=0.2)
    """,
    "an open transaction producer": """
        from pyrmq import TransactionProducer, TransactionState

        own = TransactionProducer(
            check=lambda _: TransactionState.UNKNOWN, group="own", name_server=address
        )
        own.send_in_transaction(topic, b"x", lambda _: None)
    """,
}


@pytest.mark.parametrize("end", list(ENDS))
def test_the_interpreter_ends_in_order(address: str, topic: str, end: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HEAD + textwrap.dedent(ENDS[end]), address, topic],
        capture_output=True,
        text=True,
        timeout=25,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


LISTENS = """
import sys, time
from pyrmq import PushConsumer

consumer = PushConsumer(name_server=sys.argv[1], group=sys.argv[2], commit_interval=60)
consumer.subscribe(sys.argv[2], lambda _: None)
consumer.start()
while consumer.stats().done < 20:
    time.sleep(0.01)
print("done", flush=True)
"""


def test_a_program_that_leaves_a_started_listener_open_ends_and_has_committed(
    address: str, topic: str
) -> None:
    with Producer(name_server=address) as producer:
        for number in range(20):
            producer.send(topic, str(number))
    command = [sys.executable, "-c", LISTENS, address, topic]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
        began = time.monotonic()
        _, errors = process.communicate(timeout=20)
        # The interval of the commits is a minute: it is not waited for.
        assert time.monotonic() - began < 15
    assert (process.returncode, errors) == (0, "")
    with PullConsumer(name_server=address, group=topic, auto_commit=None) as looker:
        offsets = looker.offsets(looker.queues(topic)).values()
    assert sum(each.lag for each in offsets) == 0


def test_what_was_produced_before_ctrl_c_leaves_where_the_name_server_answers(
    address: str, topic: str
) -> None:
    """The first message of a topic waits for its route: Ctrl-C does not drop it."""
    with suppress(KeyboardInterrupt), Producer(name_server=address) as producer:
        producer.produce(topic, b"before")
        raise KeyboardInterrupt
    with PullConsumer(name_server=address, group="looks", auto_commit=None) as consumer:
        await_true(lambda: has_topic(consumer, topic))
        consumer.subscribe(topic)
        assert [one.body for one in consumer.poll(timeout=10)] == [b"before"]


def has_topic(consumer: PullConsumer, topic: str) -> bool:
    """Whether the name server knows a topic."""
    try:
        return bool(consumer.queues(topic))
    except TopicNotFound:
        return False
