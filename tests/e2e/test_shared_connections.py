"""Clients of one process share their connections, and nothing else."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import pytest
from tests.e2e.wire import await_true

from pyrmq import Admin, Producer, PullConsumer, QueueId
from pyrmq.errors import ConnectionLost
from pyrmq.testing import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = pytest.mark.timeout(180)

GROUPS = 20
MESSAGES = 40


@pytest.fixture(scope="module")
def pair() -> Iterator[Cluster]:
    """Two brokers, each in its own process and behind a link that can fail."""
    with cluster(brokers=2, faults=True) as running:
        yield running


def connections(running: Cluster) -> list[int]:
    """Return how many connections each broker has."""
    return [broker.health()["descriptors"]["connections"] for broker in running.brokers]


def send(producer: Producer, topic: str, running: Cluster, word: str) -> set[bytes]:
    """Send messages to every broker; return their bodies."""
    bodies = set()
    for number in range(MESSAGES):
        broker = running.brokers[number % 2].name
        body = f"{word}-{number}".encode()
        producer.send(topic, body, queue=QueueId(topic, broker, 0))
        bodies.add(body)
    return bodies


def read(consumers: Sequence[PullConsumer], wanted: set[bytes]) -> None:
    """Poll until each consumer has had each of these messages."""
    left = {consumer: set(wanted) for consumer in consumers}
    deadline = time.monotonic() + 40
    while any(left.values()):
        assert time.monotonic() < deadline, [len(bodies) for bodies in left.values()]
        for consumer, bodies in left.items():
            if bodies:
                bodies -= {message.body for message in consumer.poll(timeout=0.05)}


def make(stack: ExitStack, running: Cluster, group: str, topic: str) -> PullConsumer:
    consumer = PullConsumer(name_server=running.name_server, group=group, start="first")
    stack.enter_context(consumer)
    consumer.subscribe(topic)
    return consumer


def settled(pair: Cluster) -> list[int]:
    """Wait until the connections of the test before have ended."""
    await_true(lambda: connections(pair) == [0, 0], 20)
    return [0, 0]


def is_connected(producer: Producer, topic: str, pair: Cluster) -> bool:
    with suppress(ConnectionLost):
        send(producer, topic, pair, "probe")
        return True
    return False


def test_twenty_groups_share_one_connection_to_each_broker(pair: Cluster, topic: str) -> None:
    before = settled(pair)
    with ExitStack() as stack:
        admin = stack.enter_context(Admin(name_server=pair.name_server))
        admin.create_topic(topic, queues=1)
        producer = stack.enter_context(Producer(name_server=pair.name_server, group="shares"))
        first = send(producer, topic, pair, "first")
        consumers = [make(stack, pair, f"shares-{number}", topic) for number in range(GROUPS)]
        read(consumers, first)
        await_true(lambda: connections(pair) == [count + 1 for count in before], 20)

        # The end of some leaves the connections to the others.
        for consumer in consumers[:10]:
            consumer.close()
        read(consumers[10:], send(producer, topic, pair, "second"))
        await_true(lambda: connections(pair) == [count + 1 for count in before], 20)

        # A connection that breaks is made again for all.
        for broker in pair.brokers:
            broker.network.cut()
        # A send before the client has noticed has an unknown outcome, and is not repeated.
        await_true(lambda: is_connected(producer, topic, pair), 20)
        read(consumers[10:], send(producer, topic, pair, "third"))
        await_true(lambda: connections(pair) == [count + 1 for count in before], 20)

        producer.close()
        admin.close()
        for consumer in consumers:
            consumer.close()
        await_true(lambda: connections(pair) == before, 20)


def test_a_second_member_of_a_group_has_connections_of_its_own(pair: Cluster, topic: str) -> None:
    before = settled(pair)
    with ExitStack() as stack:
        with Admin(name_server=pair.name_server) as admin:
            admin.create_topic(topic, queues=4)
        members = [make(stack, pair, "pair-of-members", topic) for _ in range(2)]

        def is_shared() -> bool:
            for member in members:
                member.poll(timeout=0.05)
            return [len(member.assignment()) for member in members] == [4, 4]

        await_true(is_shared, 40)
        await_true(lambda: connections(pair) == [count + 2 for count in before], 20)
        # Other groups share the connections of the first of them.
        other = make(stack, pair, "a-third", topic)
        await_true(
            lambda: other.poll(timeout=0.05) is not None and len(other.assignment()) == 8, 40
        )
        await_true(lambda: connections(pair) == [count + 2 for count in before], 20)


def test_a_client_with_a_name_of_its_own_shares_nothing(pair: Cluster, topic: str) -> None:
    before = settled(pair)
    with (
        Producer(name_server=pair.name_server, group="named") as one,
        Producer(name_server=pair.name_server, group="named-too", instance_name="apart") as two,
    ):
        one.send(topic, b"x")
        queue = one.send(topic, b"x")
        two.send(topic, b"x", queue=QueueId(topic, queue.broker, queue.queue_id))
        await_true(lambda: sum(connections(pair)) >= sum(before) + 2, 20)


def test_a_forked_child_has_connections_of_its_own(pair: Cluster, topic: str) -> None:
    with (
        Producer(name_server=pair.name_server, group="parent") as one,
        Producer(name_server=pair.name_server, group="parent-too") as two,
    ):
        for producer in (one, two):
            producer.send(topic, b"parent")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with Producer(name_server=pair.name_server, group="child") as own:
                    status = 0 if own.send(topic, b"child").message_id else 1
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        one.close()
        assert two.send(topic, b"after").message_id
