"""What a consumer commits, and when: with two brokers, of which one may be away."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from tests.e2e.wire import await_true

from pyrmq import Admin, ConfigError, Producer, PullConsumer, aio
from pyrmq.errors import CommitError, RmqError
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyrmq import QueueId
    from pyrmq.testing import ClusterBroker

BROKERS = 2
QUEUES = 2
MESSAGES = 5


def fill(address: str, topic: str) -> int:
    """Send to every queue of two brokers; gives how many messages there are."""
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
    """Take `count` messages; the poll after them hands them over as done."""
    while count > 0:
        messages = consumer.poll(count, timeout=10)
        assert messages
        count -= len(messages)
    assert consumer.poll(timeout=0) == []


def committed(address: str, group: str, topic: str) -> dict[QueueId, int | None]:
    """What the group has committed, as another client sees it."""
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
    """Give the name server of brokers `broker-a` and `broker-b` with messages, and the second."""
    with cluster(brokers=2, processes=True) as running:
        fill(running.name_server, topic)
        yield running.name_server, running.brokers[1]


def reader(address: str, topic: str, auto_commit: float) -> tuple[PullConsumer, list[QueueId]]:
    """A consumer that has read all queues of both brokers."""
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
            # An error while the name server still has the route to the broker.
            with suppress(RmqError):
                consumer.subscribe(topic)
            take(consumer, QUEUES * MESSAGES)
            assert {queue.broker for queue in consumer.assignment()} == {"broker-a"}
