"""Simple consumers in order: what a call does not take of an answer waits for what it took."""

from __future__ import annotations

from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

from tests.e2e.wire import await_true

from pyrmq import Admin, Producer, QueueId, SimpleConsumer

if TYPE_CHECKING:
    from pyrmq.testing import Cluster

ROUNDS, SIZE = 4, 31


def test_calls_of_different_sizes_get_each_message_once_and_in_order(
    shared: Cluster, topic: str
) -> None:
    name_server = shared.name_server
    queue = QueueId(topic, shared.brokers[0].name, 0)
    with Admin(name_server=name_server) as admin:
        admin.create_topic(topic, queues=1)
    got: list[tuple[int, int]] = []
    lock, stop = Lock(), Event()
    with (
        Producer(name_server=name_server) as producer,
        SimpleConsumer(name_server=name_server, group=f"{topic}-order", order="queue") as consumer,
    ):
        consumer.subscribe(topic)

        def take(most: int) -> None:
            while not stop.is_set():
                for message in consumer.receive(most, wait=1):
                    with lock:
                        got.append((int(message.body), message.reconsume_times))
                    consumer.ack(message)

        threads = [Thread(target=take, args=(most,)) for most in (1, 1, 1, 32)]
        for thread in threads:
            thread.start()
        try:
            for done in range(ROUNDS):
                bodies = [str(done * SIZE + number) for number in range(SIZE)]
                producer.send_batch(topic, bodies, queue=queue)
                await_true(lambda count=(done + 1) * SIZE: len(got) >= count, 10)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    # A message that was given back unseen would count a delivery, and at last be a dead letter.
    assert got == [(number, 0) for number in range(ROUNDS * SIZE)]
