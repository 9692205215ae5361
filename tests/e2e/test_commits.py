"""What a consumer commits, and when, with two brokers of which one may be away."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from tests.e2e.relay import BROKER_IP, frames, listening
from tests.e2e.wire import await_true
from tests.reference.frame import decode

from pyrmq import Admin, ConfigError, Producer, PullConsumer, aio
from pyrmq.errors import CommitError, RmqError
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyrmq import QueueId
    from pyrmq.testing import Cluster, ClusterBroker

BROKERS = 2
QUEUES = 2
MESSAGES = 5
UPDATE_CONSUMER_OFFSET = 15


def fill(address: str, topic: str) -> int:
    """Send to every queue of two brokers; return the number of messages."""
    with Admin(name_server=address) as admin:
        admin.create_topic(topic, queues=QUEUES)
    with PullConsumer(name_server=address, group="looks", auto_commit=None) as consumer:
        await_true(lambda: len(consumer.queues(topic)) == QUEUES * BROKERS)
        send(address, topic, consumer.queues(topic))
    return QUEUES * BROKERS * MESSAGES


def send(address: str, topic: str, queues: list[QueueId]) -> None:
    """Send to each of these queues."""
    with Producer(name_server=address) as producer:
        for queue in queues:
            producer.send_batch(topic, [b"x"] * MESSAGES, queue=queue)


def take(consumer: PullConsumer, count: int) -> None:
    """Take `count` messages; the next poll marks them as consumed."""
    while count > 0:
        messages = consumer.poll(count, timeout=10)
        assert messages
        count -= len(messages)
    assert consumer.poll(timeout=0) == []


def committed(address: str, group: str, topic: str) -> dict[QueueId, int | None]:
    """Return the group's committed offsets, as another client sees them."""
    with PullConsumer(name_server=address, group=group, auto_commit=None) as consumer:
        return {queue: consumer.committed(queue) for queue in consumer.queues(topic)}


def test_without_auto_commit_closing_commits_nothing(address: str, topic: str) -> None:
    count = fill(address, topic)
    with PullConsumer(name_server=address, group="manual-close", auto_commit=None) as consumer:
        consumer.subscribe(topic)
        take(consumer, count)
    assert set(committed(address, "manual-close", topic).values()) == {None}


def test_without_auto_commit_closing_in_a_loop_commits_nothing(address: str, topic: str) -> None:
    count = fill(address, topic)

    async def main() -> None:
        async with aio.PullConsumer(
            name_server=address, group="manual-loop", auto_commit=None
        ) as consumer:
            await consumer.subscribe(topic)
            seen = 0
            while seen < count:
                seen += len(await consumer.poll(timeout=10))
            assert await consumer.poll(timeout=0) == []

    asyncio.run(main())
    assert set(committed(address, "manual-loop", topic).values()) == {None}


def test_without_auto_commit_giving_a_queue_back_commits_nothing(address: str, topic: str) -> None:
    count = fill(address, topic)
    with PullConsumer(name_server=address, group="manual-share", auto_commit=None) as one:
        one.subscribe(topic)
        take(one, count)
        with PullConsumer(name_server=address, group="manual-share", auto_commit=None) as two:
            two.subscribe(topic)
            await_true(lambda: len(one.assignment()) == len(two.assignment()) == QUEUES)
            assert set(committed(address, "manual-share", topic).values()) == {None}
        one.assign([])
        assert set(committed(address, "manual-share", topic).values()) == {None}


def test_with_auto_commit_giving_a_queue_back_commits_what_is_done(
    address: str, topic: str
) -> None:
    count = fill(address, topic)
    with PullConsumer(name_server=address, group="given-back", auto_commit=600) as consumer:
        consumer.subscribe(topic)
        take(consumer, count)
        consumer.assign([])
        assert set(committed(address, "given-back", topic).values()) == {MESSAGES}


def test_an_interval_of_nothing_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="`auto_commit` is 0"):
        PullConsumer(name_server=address, group="no-interval", auto_commit=0)


@contextmanager
def two_brokers(topic: str) -> Iterator[tuple[str, ClusterBroker]]:
    """Yield the name server of brokers `broker-a` and `broker-b` with messages, and the second."""
    with cluster(brokers=2, processes=True) as running:
        fill(running.name_server, topic)
        yield running.name_server, running.brokers[1]


def reader(address: str, topic: str, auto_commit: float) -> tuple[PullConsumer, list[QueueId]]:
    """Yield a consumer that has read all queues of both brokers."""
    consumer = PullConsumer(name_server=address, group="two", auto_commit=auto_commit)
    queues = consumer.queues(topic)
    consumer.assign(queues)
    take(consumer, len(queues) * MESSAGES)
    return consumer, queues


def of(queues: list[QueueId], broker: str) -> list[QueueId]:
    return [queue for queue in queues if queue.broker == broker]


def test_a_broker_that_hangs_holds_up_no_other_commit(topic: str) -> None:
    with two_brokers(topic) as (address, other):
        consumer, queues = reader(address, topic, auto_commit=0.05)
        await_true(lambda: all(consumer.committed(queue) == MESSAGES for queue in queues))
        assert other.pid is not None
        os.kill(other.pid, signal.SIGSTOP)
        send(address, topic, of(queues, "broker-a"))
        take(consumer, QUEUES * MESSAGES)
        for queue in of(queues, "broker-b"):
            consumer.seek(queue, 1)
        ours = of(queues, "broker-a")
        await_true(lambda: all(consumer.committed(queue) == 2 * MESSAGES for queue in ours))
        with pytest.raises(CommitError) as caught:
            consumer.close()
        assert caught.value.offsets == dict.fromkeys(of(queues, "broker-b"), 1)


def test_closing_names_what_is_not_committed_and_commits_the_rest(topic: str) -> None:
    with two_brokers(topic) as (address, other):
        consumer, queues = reader(address, topic, auto_commit=600)
        other.kill()
        with pytest.raises(CommitError, match=r"2 of 4 queues .* on broker `broker-b`") as caught:
            consumer.close()
        lost = of(queues, "broker-b")
        assert caught.value.offsets == dict.fromkeys(lost, MESSAGES)
        assert caught.value.causes.keys() == set(lost)
        assert caught.value.__cause__ in caught.value.causes.values()
        seen = committed_on(address, "two", of(queues, "broker-a"))
        assert seen == dict.fromkeys(of(queues, "broker-a"), MESSAGES)


def committed_on(address: str, group: str, queues: list[QueueId]) -> dict[QueueId, int | None]:
    with PullConsumer(name_server=address, group=group, auto_commit=None) as consumer:
        return {queue: consumer.committed(queue) for queue in queues}


def test_a_failed_commit_does_not_hide_the_exception_of_the_block(topic: str) -> None:
    with two_brokers(topic) as (address, other):

        def work() -> None:
            consumer, _ = reader(address, topic, auto_commit=600)
            with consumer:
                other.kill()
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            work()


def test_a_group_is_joined_while_a_broker_is_away(topic: str) -> None:
    with two_brokers(topic) as (address, other):
        other.kill()
        with PullConsumer(name_server=address, group="joins") as consumer:

            def has_joined() -> bool:
                # While the name server still has the broker it may fail, which changes nothing.
                with suppress(RmqError):
                    consumer.subscribe(topic)
                return bool(consumer.assignment())

            await_true(has_joined, 40)
            take(consumer, QUEUES * MESSAGES)
            assert {queue.broker for queue in consumer.assignment()} == {"broker-a"}


@contextmanager
def overtaking() -> Iterator[tuple[Cluster, threading.Event, threading.Event]]:
    """Run a broker that processes commits of one connection concurrently, as Apache's does.

    Once the first event is set, the next commit waits for a second; if another one passes it, until
    the client has closed. The second event is set when that client's connection is finished.
    """
    armed, passed, done = threading.Event(), threading.Event(), threading.Event()

    def serve(client: socket.socket) -> None:
        closed = threading.Event()
        with socket.create_connection(("127.0.0.1", port)) as server:
            back = threading.Thread(target=carry, args=(server, client))
            back.start()
            late: list[threading.Thread] = []
            for whole in frames(client):
                if decode(whole).code != UPDATE_CONSUMER_OFFSET:
                    server.sendall(whole)
                elif armed.is_set():
                    passed.clear()
                    late.append(threading.Thread(target=wait, args=(server, whole, closed)))
                    late[-1].start()
                    armed.clear()
                else:
                    server.sendall(whole)
                    passed.set()
            closed.set()
            for thread in late:
                thread.join()
            server.shutdown(socket.SHUT_WR)
            back.join()
            if late:
                done.set()

    def carry(server: socket.socket, client: socket.socket) -> None:
        while some := server.recv(1 << 16):
            with suppress(OSError):
                client.sendall(some)

    def wait(server: socket.socket, whole: bytes, closed: threading.Event) -> None:
        if passed.wait(1):
            closed.wait(20)
        server.sendall(whole)

    with cluster(broker_ip1=BROKER_IP) as running:
        port = int(running.broker.address.rpartition(":")[2])
        with listening(serve, BROKER_IP, port):
            yield running, armed, done


def test_no_commit_overtakes_an_older_one_of_its_queue(topic: str) -> None:
    with overtaking() as (running, armed, done):
        address = running.name_server
        with Admin(name_server=address) as admin:
            admin.create_topic(topic, queues=1)
            (queue,) = admin.topic_stats(topic)
        with (
            Producer(name_server=address) as producer,
            PullConsumer(name_server=address, group="order", auto_commit=0.05) as consumer,
        ):
            consumer.assign({queue: 0})
            producer.send(topic, b"first", queue=queue)
            await_true(lambda: consumer.committed(queue) == 0)
            armed.set()
            take(consumer, 1)
            # Wait until the commit of the first message is in flight.
            await_true(lambda: not armed.is_set())
            producer.send(topic, b"second", queue=queue)
            take(consumer, 1)
            consumer.commit()
        assert done.wait(20)
        assert committed(address, "order", topic) == {queue: 2}
