"""Acknowledgements work, or an error says that the message may be delivered again."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.e2e.test_push import make
from tests.e2e.test_push_pop import popped
from tests.e2e.wire import await_true

from pyrmq import Admin, Producer, PushConsumer, QueueId, ReceiptError, RmqError, SimpleConsumer
from pyrmq.errors import AckError

if TYPE_CHECKING:
    from pyrmq import PoppedMessage
    from pyrmq.testing import Cluster

pytestmark = pytest.mark.rocketmq(brokers=2, faults=True)


def receive_all(
    consumer: SimpleConsumer, count: int, invisible: float, seconds: float = 10.0
) -> list[PoppedMessage]:
    """Receive `count` messages, or fewer if no more come in time."""
    until = time.monotonic() + seconds
    found: list[PoppedMessage] = []
    while len(found) < count and time.monotonic() < until:
        found += consumer.receive(count - len(found), invisible=invisible, wait=0.5)
    return found


def test_a_change_whose_answer_is_lost_leaves_the_receipt_in_doubt(
    rocketmq: Cluster, topic: str
) -> None:
    """The broker has another handle then, which no client knows: the message is delivered again."""
    make(rocketmq.name_server, topic, ["x"], queues=1)
    with SimpleConsumer(name_server=rocketmq.name_server, group="doubt") as consumer:
        consumer.subscribe(topic)
        (message,) = receive_all(consumer, 1, 30.0)
        (broker,) = (one for one in rocketmq.brokers if one.name == message.broker)
        fault = broker.network.lose()
        with pytest.raises(RmqError) as raised:
            consumer.change_invisible(message, 2.0)
        assert not isinstance(raised.value, ReceiptError)
        fault.heal()
        with pytest.raises(ReceiptError, match="may be delivered again"):
            consumer.ack(message)
        (again,) = receive_all(consumer, 1, 30.0)
        assert again.body == b"x"
        consumer.ack(again)


@pytest.mark.parametrize("count", [1, 2])
def test_an_acknowledgement_that_is_answered_too_late_is_an_error(
    rocketmq: Cluster, topic: str, count: int
) -> None:
    address = rocketmq.name_server
    with Admin(name_server=address) as admin:
        admin.create_topic(topic, queues=1)
    with Producer(name_server=address) as producer:
        for _ in range(count):
            producer.send(topic, "x", queue=QueueId(topic, "broker-a", 0))
    with SimpleConsumer(name_server=address, group="late") as consumer:
        consumer.subscribe(topic)
        messages = receive_all(consumer, count, 1.0)
        assert len(messages) == count
        (name,) = {message.broker for message in messages}
        (broker,) = (one for one in rocketmq.brokers if one.name == name)
        fault = broker.network.silence(direction="requests")
        timer = threading.Timer(1.5, fault.heal)
        timer.start()
        try:
            with pytest.raises(RmqError) as raised:
                consumer.ack(messages[0] if count == 1 else messages)
        finally:
            timer.join()
        error = raised.value
        causes = [cause for _, cause in error.causes] if isinstance(error, AckError) else [error]
        assert {type(cause) for cause in causes} == {ReceiptError}
        assert len(causes) == count
        assert "may be delivered again" in str(error)


def test_a_receive_does_not_raise_what_an_earlier_one_has_missed(
    rocketmq: Cluster, topic: str
) -> None:
    """A topic is deleted while another still has messages: the failed pop affects no later one."""
    address = rocketmq.name_server
    make(address, topic, [])
    make(address, f"{topic}-gone", [])
    with (
        SimpleConsumer(name_server=address, group="old") as consumer,
        Producer(name_server=address) as producer,
        Admin(name_server=address) as admin,
    ):
        consumer.subscribe([topic, f"{topic}-gone"])
        assert consumer.receive(wait=0.2) == []
        admin.delete_topic(f"{topic}-gone")
        for number in range(8):
            producer.send(topic, str(number))
        seen: list[bytes] = []
        until = time.monotonic() + 10
        while len(seen) < 8 and time.monotonic() < until:
            try:
                found = consumer.receive(32, invisible=30.0, wait=0.5)
            except RmqError:
                # The deleted topic: each refusal may be raised once.
                continue
            seen += [one.body for one in found]
            consumer.ack(found)
        assert len(seen) == 8


def test_a_close_reports_no_position_at_which_nothing_was_read(
    rocketmq: Cluster, topic: str
) -> None:
    """A member that pops pulls the retry topic, where it only has a start."""
    address = rocketmq.name_server
    group = popped(address, topic, [str(number) for number in range(8)])
    done: Counter[bytes] = Counter()
    consumer = PushConsumer(name_server=address, group=group, threads=2)
    consumer.subscribe(topic, lambda message: done.update([message.body]))
    consumer.start()

    def is_complete() -> bool:
        retries = [one for one in consumer.assignment() if one.topic.startswith("%RETRY%")]
        return len(done) == 8 and {one.broker for one in retries} == {"broker-a", "broker-b"}

    await_true(is_complete, 20)
    fault = rocketmq.brokers[1].network.silence()
    try:
        consumer.close(timeout=1.0)
    finally:
        fault.heal()
