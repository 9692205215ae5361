"""A consumer's read-ahead: limited for all queues together, and shared between them."""

from __future__ import annotations

from tests.e2e.wire import ask, await_true, body_of

from pyrmq import Admin, Producer, PullConsumer
from pyrmq.codes import RequestCode
from pyrmq.testing import Cluster, cluster

QUEUES = 32
EACH = 12
BODY = 13 * 1024
AHEAD = 2 * 1024 * 1024


def backlog(address: str, topic: str) -> None:
    """Fill every queue equally."""
    with Admin(name_server=address) as admin:
        admin.create_topic(topic, queues=QUEUES)
    with Producer(name_server=address) as producer:
        for queue in range(QUEUES):
            producer.send_batch(topic, [bytes(BODY)] * EACH, queue=queue)


def sent(running: Cluster) -> int:
    """Return how many messages the broker has sent to consumers."""
    figures = body_of(ask(running.broker.address, RequestCode.GET_BROKER_RUNTIME_INFO))
    assert isinstance(figures, dict)
    return int(figures["table"]["msgGetTotalTodayNow"])


def test_what_is_fetched_ahead_is_bounded_for_all_queues_together(topic: str) -> None:
    with cluster() as running:
        backlog(running.name_server, topic)
        before = sent(running)
        with PullConsumer(
            name_server=running.name_server, group="ahead", ahead_bytes=AHEAD
        ) as consumer:
            consumer.subscribe(topic)
            # Two answers for each queue, each with half of the queue's share.
            await_true(lambda: sent(running) - before >= 4 * QUEUES)
            await_true(lambda: consumer.stats().waiting >= 4 * QUEUES)
            # One poll returns everything that is available at that time.
            fetched = consumer.poll(QUEUES * EACH, timeout=0)
            assert len(fetched) * BODY <= AHEAD
            assert len({message.queue_id for message in fetched}) == QUEUES
            seen = len(fetched)
            while seen < QUEUES * EACH:
                messages = consumer.poll(QUEUES * EACH, timeout=10)
                assert messages
                assert len(messages) * BODY <= AHEAD
                seen += len(messages)


def test_a_message_larger_than_its_queues_share_is_read_all_the_same(
    address: str, topic: str
) -> None:
    backlog(address, topic)
    with PullConsumer(name_server=address, group="small", ahead_bytes=1) as consumer:
        consumer.subscribe(topic)
        seen = 0
        while seen < QUEUES * EACH:
            messages = consumer.poll(QUEUES * EACH, timeout=10)
            assert messages
            seen += len(messages)
